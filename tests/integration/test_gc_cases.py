"""Collections of checkpoints, in batches of every size, and the space that they give back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from mmdb.api import Database, connect
from mmdb.db.duck import DuckConnection
from mmdb.db.space import reclaim, used_bytes
from mmdb.store import garbage as collector
from mmdb.store.garbage import TENSORS, collect, gc, gc_and_reclaim, plan
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recover import load_tensors
from mmdb.store.models.registry import drop_model
from mmdb.store.models.save import save_model
from tests.catalogs import described
from tests.integration.test_gc import (
    NOW,
    check,
    counts,
    gone,
    tensors,
)
from tests.integration.test_install import objects


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with connect(database_url) as opened:
        yield opened


@pytest.mark.parametrize(
    ("rows", "size", "lengths"), [(2, 1 << 30, [2, 2, 1]), (1024, 1, [1] * 5), (1024, 1 << 30, [5])]
)
def test_batches_are_bounded_by_rows_and_by_bytes(
    rows: int,
    size: int,
    lengths: list[int],
    monkeypatch: pytest.MonkeyPatch,
    duckdb_url: str,
) -> None:
    monkeypatch.setattr(collector, "BATCH", {"duckdb": rows})
    monkeypatch.setattr(collector, "BATCH_BYTES", size)
    with connect(duckdb_url) as db:
        save_model(db.connection, "net", tensors())
        drop_model(db.connection, "net")
        db.sql("DELETE FROM mmdb.manifest_tensor")
        db.sql("UPDATE mmdb.model SET pack_id = NULL")
        batches = list(collector._batches(db.connection, TENSORS, NOW))
        assert [len(batch) for batch in batches] == lengths
        collect(db.connection, NOW)
        assert counts(db)["tensor"] == 0


@pytest.fixture
def trained(db: Database) -> Database:
    """Return a database with a run, trained for one epoch."""
    db.sql(
        "CREATE TABLE points AS SELECT 1.0 * i AS x, i % 2 AS y FROM generate_series(1, 40) t(i)"
    )
    db.create_dataset("points", "SELECT x, y FROM points", partitions=1, validation=0)
    db.create_run("search", dataset="points", architecture="linear").train(workers=1)
    return db


def test_checkpoints_go_with_their_dataset(trained: Database) -> None:
    assert plan(trained.connection, NOW) == []
    trained.drop_dataset("points", force=True)
    (size,) = trained.sql("SELECT cast(sum(byte_count) AS bigint) AS n FROM mmdb.checkpoint")
    found = gc(trained.connection, dry_run=False, grace=NOW)
    assert gone(found)["checkpoint"][1] == size["n"]
    assert trained.sql("SELECT * FROM mmdb.checkpoint") == []
    assert trained.sql("SELECT * FROM mmdb.checkpoint_chunk") == []


def test_a_checkpoint_that_a_recipe_needs_stays(trained: Database) -> None:
    trained.sql("UPDATE mmdb.model SET approach = 'provenance'")
    trained.drop_dataset("points", force=True)
    assert "checkpoint" not in gone(plan(trained.connection, NOW))


def test_the_space_is_given_back(db: Database) -> None:
    for _ in range(4):
        save_model(db.connection, "net", {"weight": torch.randn(1024, 1024)}, parent=None)
    for version in (1, 2, 3):
        drop_model(db.connection, "net", version)
    expected = load_tensors(db.connection, find_model(db.connection, "net"))
    reclaim(db.connection)
    planned = gc_and_reclaim(db.connection, grace=NOW)
    assert planned.bytes_after == planned.bytes_before
    report = gc_and_reclaim(db.connection, dry_run=False, grace=NOW)
    assert report.freed == planned.freed > 3 * 3 << 20
    assert report.bytes_before - report.bytes_after > 0.8 * report.freed
    check(db, "net", expected)


def test_giving_space_back_leaves_the_schema_as_it_was(duckdb_url: str) -> None:
    with connect(duckdb_url) as db:
        save_model(db.connection, "net", tensors())
    before = described(duckdb_url)
    with connect(duckdb_url) as db:
        assert isinstance(db.connection, DuckConnection)
        assert used_bytes(db.connection) > 0
        reclaim(db.connection)
        check(db, "net", tensors())
    assert described(duckdb_url) == before
    assert ("tensor_chunk_before", "BASE TABLE") not in objects(duckdb_url)
