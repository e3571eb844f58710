"""Garbage collection: what goes and what stays, its bytes, and saves that run beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import torch

from mmdb import errors
from mmdb.api import Database, connect
from mmdb.db.space import reclaim
from mmdb.graph.trace.call_tracer import trace
from mmdb.store import garbage as collector
from mmdb.store.garbage import FoundGarbage, collect, gc, gc_and_reclaim, plan
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recover import load_tensors
from mmdb.store.models.registry import drop_model
from mmdb.store.models.save import About, save_model

Tensors = dict[str, torch.Tensor]
NOW = timedelta(0)

#: Tables that hold something of a model's, beside its own row.
STORE = (
    "tensor",
    "encoding",
    "tensor_chunk",
    "manifest",
    "manifest_tensor",
    "model_change",
    "recipe_tensor",
    "architecture",
)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with connect(database_url) as opened:
        yield opened


def tensors(seed: int = 0, scale: float = 1.0) -> Tensors:
    """Return a small model: three tensors with chunks of their own, one in the pack."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "body.weight": torch.randn(128, 128, generator=generator) * scale,
        "neck.weight": torch.randn(128, 128, generator=generator) * scale,
        "head.weight": torch.randn(40, 128, generator=generator) * scale,
        "head.bias": torch.randn(40, generator=generator) * scale,
    }


def tuned(base: Tensors) -> Tensors:
    """Return a model whose every weight moved a little."""
    return {path: tensor + 1e-4 for path, tensor in base.items()}


def counts(db: Database) -> dict[str, int]:
    """Return how many rows the store's tables have."""
    return {t: db.sql(f"SELECT count(*) AS n FROM mmdb.{t}")[0]["n"] for t in STORE}


def chunk_bytes(db: Database) -> int:
    """Return the bytes of all chunks."""
    sql = "SELECT coalesce(sum(octet_length(data)), 0) AS n FROM mmdb.tensor_chunk"
    return int(db.sql(sql)[0]["n"])


def check(db: Database, reference: str, expected: Tensors) -> None:
    """Assert that a model is what was saved, bit for bit."""
    found = load_tensors(db.connection, find_model(db.connection, reference))
    assert list(found) == list(expected)
    for path, tensor in expected.items():
        assert torch.equal(found[path], tensor), path


def gone(found: list[FoundGarbage]) -> dict[str, tuple[int, int | None]]:
    """Return number and bytes of what goes, by kind."""
    return {each.what: (each.items, each.bytes) for each in found if each.goes}


def kept(found: list[FoundGarbage]) -> dict[str, int]:
    """Return the number of tensors that stay though no model needs them, by reason."""
    return {each.reason: each.items for each in found if not each.goes}


# -- what goes ----------------------------------------------------------------


def test_a_dry_run_says_what_the_next_run_deletes_and_deletes_nothing(db: Database) -> None:
    save_model(db.connection, "net", tensors())
    save_model(db.connection, "other", tensors(1))
    drop_model(db.connection, "net")
    before, size = counts(db), chunk_bytes(db)
    planned = plan(db.connection, NOW)
    assert gc(db.connection, grace=NOW) == planned
    assert counts(db) == before
    assert gc(db.connection, dry_run=False, grace=NOW) == planned
    assert gone(planned)["model"] == (1, None)
    assert gone(planned)["tensor"] == (5, size - chunk_bytes(db))  # four and their pack
    check(db, "other", tensors(1))
    assert plan(db.connection, NOW) == []


def test_nothing_is_left_of_the_last_model_but_its_row(db: Database) -> None:
    save_model(db.connection, "net", tensors())
    save_model(db.connection, "net", tuned(tensors()), parent="net@1")
    for version in (1, 2):
        drop_model(db.connection, "net", version)
    collect(db.connection, NOW)
    assert set(counts(db).values()) == {0}
    rows = db.sql("SELECT version, parent FROM mmdb.model_overview ORDER BY version")
    assert [tuple(row.values()) for row in rows] == [(1, None), (2, "net@1")]


def test_tensors_that_another_model_has_stay(db: Database) -> None:
    changed = tensors() | {"head.bias": torch.zeros(40)}
    save_model(db.connection, "net", tensors())
    save_model(db.connection, "net", changed)
    drop_model(db.connection, "net", 1)
    found = gc(db.connection, dry_run=False, grace=NOW)
    assert gone(found)["tensor"][0] == 2  # the old bias and the old pack
    check(db, "net@2", changed)


def test_what_differences_are_kept_against_stays_and_goes_with_the_last_of_them(
    db: Database,
) -> None:
    first = tensors()
    save_model(db.connection, "net", first)
    save_model(db.connection, "net", tuned(first), parent="net@1")
    deltas = db.sql("SELECT count(*) AS n FROM mmdb.encoding WHERE base_id IS NOT NULL")[0]["n"]
    assert deltas > 0
    drop_model(db.connection, "net", 1)
    planned = plan(db.connection, NOW)
    assert kept(planned) == {"differences of other tensors are kept against them": deltas}
    assert gc(db.connection, dry_run=False, grace=NOW) == planned
    check(db, "net@2", tuned(first))
    drop_model(db.connection, "net", 2)
    collect(db.connection, NOW)
    assert chunk_bytes(db) == 0


def test_what_a_shared_list_names_stays(db: Database) -> None:
    first = tensors()
    changed = first | {"head.weight": torch.randn(40, 128)}
    save_model(db.connection, "net", first)
    save_model(db.connection, "net", changed, parent="net@1")
    drop_model(db.connection, "net", 1)
    planned = plan(db.connection, NOW)
    reasons = set(kept(planned))
    assert reasons <= {
        "a list of tensors that another model shares names them",
        "differences of other tensors are kept against them",
    }
    assert sum(kept(planned).values()) >= 1
    assert gc(db.connection, dry_run=False, grace=NOW) == planned
    check(db, "net@2", changed)


def test_an_architecture_goes_with_its_last_model(db: Database) -> None:
    structure = trace(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()))
    save_model(db.connection, "net", tensors(), about=About(structure=structure))
    assert plan(db.connection, NOW) == []
    drop_model(db.connection, "net")
    assert gone(gc(db.connection, dry_run=False, grace=NOW))["architecture"] == (1, None)
    for table in ("architecture_node", "architecture_edge", "architecture_prefix"):
        assert db.sql(f"SELECT * FROM mmdb.{table}") == []


# -- the grace period ---------------------------------------------------------


def test_a_model_dropped_just_now_is_left_alone(db: Database) -> None:
    save_model(db.connection, "net", tensors())
    drop_model(db.connection, "net")
    before = counts(db)
    found = gc(db.connection, dry_run=False)
    assert (gone(found), kept(found)) == (
        {},
        {"their model was dropped within the grace period": 5},
    )
    assert counts(db) == before


def test_tensors_of_an_unfinished_transfer_are_left_alone(db: Database) -> None:
    save_model(db.connection, "net", tensors())
    db.sql(
        "INSERT INTO mmdb.tensor (tensor_hash, dtype, shape, byte_count)"
        " SELECT weights_hash, 'uint8', ARRAY[1], 1 FROM mmdb.model"
    )
    assert kept(gc(db.connection, dry_run=False)) == {"stored within the grace period": 1}
    assert gone(gc(db.connection, dry_run=False, grace=NOW)) == {"tensor": (1, 0)}


def test_the_grace_period_ends(db: Database) -> None:
    save_model(db.connection, "net", tensors())
    drop_model(db.connection, "net")
    past = "now() - CAST('8 days' AS interval)"
    db.sql(f"UPDATE mmdb.model SET dropped_at = {past}")
    db.sql(f"UPDATE mmdb.manifest SET created_at = {past}")
    db.sql(f"UPDATE mmdb.tensor SET created_at = {past}")
    assert gone(gc(db.connection, grace="9 days")) == {}
    assert gone(gc(db.connection))["tensor"][0] == 5


# -- space --------------------------------------------------------------------


def test_inside_a_transaction_no_space_is_given_back(db: Database) -> None:
    save_model(db.connection, "net", tensors())
    drop_model(db.connection, "net")
    with db.connection.transaction():
        gc_and_reclaim(db.connection, dry_run=False, grace=NOW)
        with pytest.raises(errors.InTransaction):
            reclaim(db.connection)
    assert chunk_bytes(db) == 0


# -- SQL ----------------------------------------------------------------------


def test_the_function_says_and_does_the_same(db: Database) -> None:
    save_model(db.connection, "net", tensors())
    drop_model(db.connection, "net")
    assert db.sql("SELECT what FROM mmdb.gc() WHERE goes") == []
    columns = "what, items, bytes, goes, reason"
    planned = db.sql(f"SELECT {columns} FROM mmdb.gc(grace => '0 days')")
    assert [FoundGarbage(**row) for row in planned] == plan(db.connection, NOW)
    went = db.sql(f"SELECT {columns} FROM mmdb.gc(dry_run => false, grace => '0 days')")
    assert went == planned
    assert set(counts(db).values()) == {0}


@pytest.mark.parametrize("dry_run", ["NULL", None, 0, "false"])
def test_what_is_neither_true_nor_false_deletes_nothing(db: Database, dry_run: Any) -> None:
    save_model(db.connection, "net", tensors())
    drop_model(db.connection, "net")
    before = counts(db)
    with pytest.raises(errors.InvalidOption, match="dry_run is") as raised:
        if dry_run == "NULL":
            db.sql("SELECT * FROM mmdb.gc(NULL, '0 days')")
        else:
            db.gc(dry_run=dry_run, grace="0 days")
    assert "true or false" in raised.value.hint
    assert counts(db) == before


def test_a_trainer_may_look_and_the_owner_alone_collects(postgres_url: str) -> None:
    with connect(postgres_url) as db:
        save_model(db.connection, "net", tensors())
        db.sql("UPDATE mmdb.model SET owner = 'mmdb_trainer'")
        db.sql("SET ROLE mmdb_trainer")
        drop_model(db.connection, "net")
        assert gone(gc(db.connection, grace=NOW))["tensor"][0] == 5
        with pytest.raises(errors.RightsMissing):
            gc(db.connection, dry_run=False, grace=NOW)
        db.sql("RESET ROLE")
        assert counts(db)["tensor"] == 5


# -- beside saves -------------------------------------------------------------


def test_a_tensor_that_a_save_has_taken_is_left_alone(postgres_url: str) -> None:
    with connect(postgres_url) as db, connect(postgres_url) as saving:
        save_model(db.connection, "net", tensors())
        drop_model(db.connection, "net")
        with saving.connection.transaction():
            save_model(saving.connection, "again", tensors())
            found = gc(db.connection, dry_run=False, grace=NOW)
            assert "tensor" not in gone(found)
        check(db, "again", tensors())
        assert "tensor" not in gone(gc(db.connection, dry_run=False, grace=NOW))


def test_what_is_named_between_finding_and_locking_stays(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look is at what was committed after the first one."""
    with connect(postgres_url) as db, connect(postgres_url) as saving:
        save_model(db.connection, "net", tensors())
        drop_model(db.connection, "net")
        batches = collector._batches

        def save_between(*arguments: Any) -> Iterator[list[int]]:
            found = list(batches(*arguments))
            if arguments[1].what == "tensor" and not find_again(saving):
                save_model(saving.connection, "again", tensors())
            yield from found

        monkeypatch.setattr(collector, "_batches", save_between)
        collect(db.connection, NOW)
        check(db, "again", tensors())


def find_again(db: Database) -> bool:
    """Return whether the second model is saved."""
    return bool(db.sql("SELECT 1 FROM mmdb.model WHERE name = 'again'"))


def test_saves_that_use_dropped_tensors_beside_a_running_collection(postgres_url: str) -> None:
    """Each round drops what the next one saves again; two collections run all the while."""
    stop, failures = threading.Event(), list[BaseException]()

    def sweep() -> None:
        try:
            with connect(postgres_url) as db:
                while not stop.is_set():
                    gc(db.connection, dry_run=False, grace=NOW)
        except BaseException as error:
            failures.append(error)

    def work(name: str) -> None:
        try:
            with connect(postgres_url) as db:
                for turn in range(12):
                    wanted = tensors(turn % 3)
                    saved = save_model(db.connection, name, wanted)
                    check(db, saved.reference, wanted)
                    drop_model(db.connection, name, saved.version)
                save_model(db.connection, name, tensors(9))
        except BaseException as error:
            failures.append(error)

    savers = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in (*savers, *sweepers):
        thread.start()
    for thread in savers:
        thread.join()
    stop.set()
    for thread in sweepers:
        thread.join()
    assert failures == []
    with connect(postgres_url) as db:
        for name in ("a", "b"):
            check(db, name, tensors(9))
        collect(db.connection, NOW)
        assert counts(db)["tensor"] == 5


def test_a_collection_that_is_cut_off_leaves_whole_batches(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "BATCH", {"postgres": 2})
    with connect(postgres_url) as db:
        for seed in range(3):
            save_model(db.connection, "net", tensors(seed))
        for version in (1, 2):
            drop_model(db.connection, "net", version)
        with closing(psycopg.connect(postgres_url, autocommit=True)) as other:
            (pid,) = other.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'mmdb'"
                " AND datname = current_database()"
            ).fetchone() or (0,)
            deleted = collector._still_garbage

            def die_in_the_third(*arguments: Any) -> Any:
                found = deleted(*arguments)
                if arguments[1].what == "tensor" and arguments[2][0] > 5:
                    other.execute("SELECT pg_terminate_backend(%s)", (pid,))
                return found

            monkeypatch.setattr(collector, "_still_garbage", die_in_the_third)
            with pytest.raises(errors.ConnectionLost):
                collect(db.connection, NOW)
            monkeypatch.setattr(collector, "_still_garbage", deleted)
    with connect(postgres_url) as db:
        orphans = db.sql(
            "SELECT 1 FROM mmdb.tensor_chunk WHERE tensor_id NOT IN"
            " (SELECT e.tensor_id FROM mmdb.encoding AS e)"
        )
        assert orphans == []
        check(db, "net", tensors(2))
        collect(db.connection, NOW)
        assert counts(db)["tensor"] == 5


@pytest.mark.parametrize("grace", ["178000000 years", "-178000000 years"])
def test_a_grace_that_reaches_no_time(postgres_url: str, grace: str) -> None:
    with connect(postgres_url) as db, pytest.raises(errors.InvalidOption, match="grace is"):
        db.sql(f"SELECT * FROM mmdb.gc(grace => '{grace}')")
