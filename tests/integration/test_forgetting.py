"""Forgetting rows: they leave blocks, caches and models, which are made again without them."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset
from mmdb.data.reader import ensure_partition, read_columns, verify_blocks
from mmdb.db.check import shown
from mmdb.store import states
from tests.lineage_walk import models_below

#: f says in a feature what id says in the key: by it a test knows the rows of a partition.
TABLE = """
    CREATE TABLE points AS
    SELECT i AS id, CAST(i AS double precision) AS f,
        (i * 37 % 101) / 101.0 AS a, (i * 53 % 97) / 97.0 AS b, 'c' || CAST(i % 5 AS text) AS c,
        CASE WHEN (i * 37 % 101) / 101.0 + (i * 53 % 97) / 97.0 > 1 THEN 'yes' ELSE 'no' END AS y
    FROM generate_series(1, 300) AS g (i)
"""
QUERY = "SELECT id, f, a, b, c, y FROM points"
SEARCH = {"space": {"lr": 0.01, "batch_size": 32}}
ADAM = {"space": {"lr": 0.01, "batch_size": 32, "optimizer": "adam"}}
#: A text and a number that no other row has.
TEXT, NUMBER = "Rosebud-77131", 90210.71875


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        database.sql(TABLE)
        yield database


def create(
    db: mmdb.Database, name: str, *, keyed: bool = True, transforms: dict[str, Any] | None = None
) -> None:
    options = {
        "roles": {"id": "key" if keyed else "excluded"},
        "transforms": transforms or {"c": "index"},
    }
    db.create_dataset(name, QUERY, label="y", partitions=3, options=options)


def train(db: mmdb.Database, run: str, dataset: str, **given: Any) -> None:
    chosen: dict[str, Any] = {"architecture": "mlp(hidden=[4])", "epochs": 1, "search": SEARCH}
    db.create_run(run, dataset=dataset, **{**chosen, **given}).train(workers=1)


def weights(db: mmdb.Database, name: str) -> bytes:
    """Return the hash of the weights of a model's last version."""
    rows = db.sql(
        f"SELECT weights_hash FROM mmdb.model WHERE name = '{name}' AND dropped_at IS NULL"
    )
    assert len(rows) == 1
    return bytes(rows[0]["weights_hash"])


def held(db: mmdb.Database, dataset: str) -> list[set[int]]:
    """Return the ids that each partition of a dataset has."""
    found = find_dataset(db.connection, dataset)
    return [
        {
            int(value)
            for given in read_columns(db.connection, part.part_id, found.decoding)
            for value in np.asarray(given["f"]).ravel()
        }
        for part in found.slices
    ]


def check(db: mmdb.Database) -> None:
    """Check that hashes and counts are those of the blocks."""
    assert not verify_blocks(db.connection, lambda _: None).wrong


def drawn(db: mmdb.Database, kind: str, seed: int) -> set[int]:
    """Return the ids of rows to forget: some, those of a partition, or both."""
    source = random.Random(seed)
    found = set(source.sample(range(1, 301), 9)) if kind != "partition" else set()
    return found if kind == "rows" else found | source.choice(held(db, "points")[:3])


@pytest.mark.parametrize("data", [False, True])
def test_a_model_is_copied_of_whose_dataset_a_partition_is_forgotten(
    db: mmdb.Database, tmp_path: Path, data: bool
) -> None:
    create(db, "points")
    train(db, "m", "points")
    db.forget("points", f"id IN ({', '.join(map(str, held(db, 'points')[1]))})")
    url = f"duckdb:///{tmp_path / 'copy.duckdb'}"
    db.push("m", to=url, data=data)
    with mmdb.connect(url) as copy:
        assert weights(copy, "m") == weights(db, "m")
        hops = "SELECT ordinal, state_out FROM mmdb.hop ORDER BY ordinal"
        parts = "SELECT ordinal, role, row_count FROM mmdb.partition ORDER BY role, ordinal"
        assert copy.sql(hops) == db.sql(hops)
        assert copy.sql(parts) == db.sql(parts)
        if data:
            check(copy)
            assert held(copy, "points") == held(db, "points")


SECOND = {"space": {"lr": [1e-6, 0.05]}}
ASHA = {"space": {"lr": {"low": 1e-4, "high": 0.1}}, "method": "asha", "trials": 5, "eta": 2}
CASES = [
    ("partition", {"architecture": "tabular(hidden=[8])"}),
    ("both", {"architecture": "mlp(hidden=[8], dropout=0.3)", "epochs": 2}),
    ("rows", {"per": "c", "search": {}}),
    # the best candidate is not the first, whose seeds and order of partitions are others
    ("rows", {"search": SECOND}),
    ("rows", {"search": SECOND, "options": {"stack": 2}}),
    ("partition", {"search": SECOND, "strategy": "model_average", "epochs": 2}),
    # candidates that never train to the end of theirs
    ("rows", {"search": ASHA, "options": {"ensemble": 2}, "epochs": 4}),
]


@pytest.mark.parametrize(("kind", "given"), CASES)
def test_a_model_that_is_made_again_has_the_bits_of_one_that_never_had_the_rows(
    db: mmdb.Database, kind: str, given: dict[str, Any]
) -> None:
    create(db, "points")
    create(db, "apart")
    train(db, "m", "points", **given)
    (best,) = db.sql("SELECT candidate FROM mmdb.leaderboard WHERE run = 'm' AND rank = 1")
    assert best["candidate"] == (given.get("search") == SECOND)
    db.set_alias("m", "live")
    gone = drawn(db, kind, seed=len(kind))
    condition = f"id IN ({', '.join(map(str, sorted(gone)))})"
    planned = db.forget("points", condition, dry_run=True)
    before = weights(db, "m")
    assert db.forget("points", condition) == planned
    assert not set[int]().union(*held(db, "points")) & gone
    check(db)
    assert weights(db, "m") == before  # it answers until it is made again
    assert db.remake(workers=1) == 1
    assert db.remake(workers=1) == 0
    db.sql(f"DELETE FROM points WHERE {condition}")
    assert db.refresh_dataset("apart").deleted == len(gone)
    train(db, "never", "apart", **given)
    assert weights(db, "m") == weights(db, "never") != before
    assert db.sql("SELECT version FROM mmdb.model_alias") == [{"version": 2}]
    left = db.sql("SELECT entity FROM mmdb.forgetting_overview WHERE done_at IS NULL")
    assert {row["entity"].split(":")[0] for row in left} == {"dataset"}


def test_a_partition_of_arrays_that_loses_all_rows_is_passed_over(db: mmdb.Database) -> None:
    db.sql("UPDATE points SET c = 'of ' || CAST(id AS text) WHERE id % 2 = 0")  # its own category
    query = "SELECT id, f, ARRAY[a, b] AS v, c, y FROM points"
    for name in ("points", "apart"):
        options = {"roles": {"id": "key"}, "transforms": {"c": {"kind": "index", "min_count": 1}}}
        db.create_dataset(name, query, label="y", partitions=3, options=options)
    train(db, "m", "points")
    condition = f"id IN ({', '.join(map(str, sorted(held(db, 'points')[1])))})"
    db.forget("points", condition)
    assert len(held(db, "points")) == 3  # of four, with what is held out
    db.remake(workers=1)
    db.sql(f"DELETE FROM points WHERE {condition}")
    db.refresh_dataset("apart")
    train(db, "never", "apart")
    assert weights(db, "m") == weights(db, "never")


def trained_on(db: mmdb.Database, run: str, dataset: str, **given: Any) -> int:
    """Train a run with Adam; return its candidate."""
    train(db, run, dataset, search=ADAM, **given)
    return int(db.run(run).leaderboard()[0]["candidate_id"])


@pytest.mark.parametrize("kept", [True, False], ids=["resumes", "anew"])
def test_a_model_that_went_on_is_made_again_as_it_began(db: mmdb.Database, kept: bool) -> None:
    """`kept`: whether the state was there from which its optimizer could go on."""
    db.sql("CREATE TABLE later AS SELECT * FROM points WHERE id > 260")
    db.sql("DELETE FROM points WHERE id > 260")
    create(db, "points")
    parent = trained_on(db, "m", "points", epochs=3)
    if not kept:
        states.prune_checkpoints(db.connection, parent, set())
    db.sql("INSERT INTO points SELECT * FROM later")
    done = db.retrain("m@1", workers=1)
    db.save_candidate(db.run(done["run"]).leaderboard()[0]["candidate_id"], "child")
    planned = db.forget("points", "id IN (7, 8, 270)", dry_run=True)
    listed = {row["entity"] for row in planned if row["entity"].startswith("model:")}
    assert listed == models_below(db, "dataset:points")
    (candidate,) = db.sql(f"SELECT candidate_id AS id FROM mmdb.model WHERE name = '{done['run']}'")
    db.forget("points", "id IN (7, 8, 270)")
    assert not states.checkpoints(db.connection, candidate["id"])  # its first state, too
    db.remake(workers=1)
    # Trained apart on what is left, from a model that was, with or without its optimizer.
    first = trained_on(db, "never", "points@1", epochs=3)
    assert weights_at(db, "m", 3) == weights(db, "never")
    if not kept:
        states.prune_checkpoints(db.connection, first, set())
    options = {"warm_start": {"optimizer": True, "lr_epochs": 1}}
    trained_on(db, "apart", done["dataset"], warm_start="never@1", options=options)
    assert weights(db, "child") == weights(db, "apart") == weights_at(db, "m", 4)


def weights_at(db: mmdb.Database, name: str, version: int) -> bytes:
    """Return the hash of the weights of a model's version."""
    (row,) = db.sql(
        f"SELECT weights_hash FROM mmdb.model WHERE name = '{name}' AND version = {version}"
        " AND dropped_at IS NULL"
    )
    return bytes(row["weights_hash"])


def test_a_model_that_lost_what_it_went_on_from_begins_anew_and_says_so(db: mmdb.Database) -> None:
    db.sql("CREATE TABLE later AS SELECT * FROM points WHERE id > 260")
    db.sql("DELETE FROM points WHERE id > 260")
    create(db, "points")
    trained_on(db, "m", "points")
    db.sql("INSERT INTO points SELECT * FROM later")
    db.retrain("m@1", replay=0.0, workers=1)
    db.drop_run("m")
    db.forget("points", "id IN (270, 271)")
    db.remake(workers=1)
    (row,) = db.sql("SELECT reason FROM mmdb.forgetting_overview WHERE entity = 'model:m@2'")
    assert "Its optimizer began anew" in row["reason"]


def test_a_candidate_that_is_saved_meanwhile_is_not_the_model_that_is_made_again(
    db: mmdb.Database,
) -> None:
    for name in ("points", "apart"):
        create(db, name)
    train(db, "m", "points", epochs=2)
    db.forget("points", "id = 7")
    (begun,) = db._call("next_remake")
    (row,) = db.sql(f"SELECT candidate_id FROM mmdb.leaderboard WHERE run = '{begun['run']}'")
    for part in find_dataset(db.connection, "points").slices:
        with suppress(errors.OutOfTurn):
            db.sql(f"SELECT * FROM mmdb.train_hop({part.part_id}, {row['candidate_id']})")
    db.save_candidate(row["candidate_id"], "early")
    assert db._call("next_remake") == [begun]
    db.remake(workers=1)
    db.sql("DELETE FROM points WHERE id = 7")
    db.refresh_dataset("apart")
    train(db, "never", "apart", epochs=2)
    assert weights(db, "m") == weights(db, "never")


def test_rows_that_are_gone_from_the_table_are_forgotten_without_a_condition(
    db: mmdb.Database,
) -> None:
    create(db, "points", keyed=False)
    db.sql("UPDATE points SET a = 0.5 WHERE id = 3")
    db.sql("DELETE FROM points WHERE id > 290")
    db.refresh_dataset("points")
    assert set[int]().union(*held(db, "points@1")) - set[int]().union(*held(db, "points")) == {
        *range(291, 301)
    }
    found = db.forget("points", note="request 12")
    assert sum(row["row_count"] for row in found if row["action"] == "erase") == 11
    assert set[int]().union(*held(db, "points@1")) == {*range(1, 291)} - {3}
    assert set[int]().union(*held(db, "points")) == {*range(1, 291)}
    check(db)
    (row,) = db.sql("SELECT row_count, note FROM mmdb.forgetting")
    assert row == {"row_count": 11, "note": "request 12"}
    with pytest.raises(errors.DataError, match="does not return any more"):
        db.forget("points")


def test_a_model_whose_version_has_no_rows_left_is_withdrawn(db: mmdb.Database) -> None:
    db.sql("DELETE FROM points WHERE id > 200")
    create(db, "points")
    train(db, "m", "points")
    db.sql(TABLE.replace("points", "more"))
    db.sql("INSERT INTO points SELECT * FROM more WHERE id > 280")
    done = db.retrain("m", replay=0.0, workers=1)
    assert done["dataset"] == "points/2-since-1-0"
    planned = {row["entity"]: row["action"] for row in db.forget("points", "id > 280")}
    assert planned["dataset:points/2-since-1-0"] == "drop"
    assert planned["model:m@2"] == planned["model:m/continue-1-on-2@1"] == "withdraw"
    assert "model:m@1" not in planned
    assert find_dataset(db.connection, "points@2").row_count == 200
    rows = db.sql("SELECT version FROM mmdb.model WHERE name = 'm' AND dropped_at IS NULL")
    assert [row["version"] for row in rows] == [1]
    check(db)


def test_children_follow_their_parents(db: mmdb.Database) -> None:
    create(db, "points")
    train(db, "m", "points")
    train(db, "child", "points", warm_start="m@1")
    db.save_candidate(db.run("m").leaderboard()[0]["candidate_id"], "same")
    module = db.recover("m@1")
    db.save("changed", module, parent="m@1", approach="update")
    db.sql("CREATE TABLE other AS SELECT * FROM points WHERE id > 100")
    db.create_dataset("elsewhere", "SELECT a, b, y FROM other", label="y")
    train(db, "unmoved", "elsewhere")
    planned = db.forget("points", "id = 7", dry_run=True)
    models = {row["entity"] for row in planned if row["entity"].startswith("model:")}
    assert models == models_below(db, "dataset:points")
    assert {row["entity"]: row["action"] for row in planned if row["entity"] in models} == {
        "model:m@1": "remake",
        "model:child@1": "remake",
        "model:same@1": "remake",
        "model:changed@1": "withdraw",
    }
    old = {name: weights(db, name) for name in ("m", "child", "same", "unmoved")}
    db.forget("points", "id = 7")
    # Cut off after a run is made, and after it is trained, it goes on.
    (begun,) = db._call("next_remake")
    assert db._call("next_remake") == [begun]
    db.run(begun["run"]).train(workers=1)
    assert db.remake(workers=1) == 1  # "same" is the candidate of m, which was trained by then
    new = {name: weights(db, name) for name in old}
    assert new["m"] == new["same"]
    assert new["unmoved"] == old["unmoved"]
    assert not {new["m"], new["child"]} & {old["m"], old["child"]}
    parents = db.sql("SELECT parent FROM mmdb.warm_start_overview WHERE run = 'child/1-without-1'")
    assert parents == [{"parent": "m@2"}]
    with pytest.raises(errors.ModelNotFound):
        db.recover("changed@1")
    assert not db.sql("SELECT 1 FROM mmdb.checkpoint WHERE candidate_id <= 2")


def test_a_calibrated_model_is_made_again_with_its_calibration(db: mmdb.Database) -> None:
    create(db, "points")
    train(db, "m", "points")
    goal = {"recall": 0.9}
    db.calibrate_model("m", "points", "temperature", goal=goal)
    db.set_alias("m", "live", version=2)
    db.forget("points", "id IN (3, 8, 20, 21, 22, 23, 24, 25)")
    assert db.remake(workers=1) == 1  # both versions are the same candidate
    shown = "SELECT version, calibration::text AS rule FROM mmdb.model WHERE dropped_at IS NULL"
    kept = {row["version"]: row["rule"] for row in db.sql(shown)}
    assert [*sorted(kept)] == [3, 4] and kept[3] is None
    assert db.sql("SELECT version FROM mmdb.model_alias") == [{"version": 4}]
    again = db.calibrate_model("m@3", "points", "temperature", goal=goal)
    assert again["calibration"] == json.loads(kept[4])


def test_withdrawn_models_are_gone_with_their_aliases(db: mmdb.Database) -> None:
    create(db, "points")
    train(db, "m", "points")
    db.set_alias("m", "live")
    found = db.forget("points", "id <= 2", models="withdraw")
    assert ("model:m@1", "withdraw") in [(row["entity"], row["action"]) for row in found]
    assert db.sql("SELECT * FROM mmdb.model_alias") == []
    assert db.remake(workers=1) == 0
    with pytest.raises(errors.ModelNotFound):
        db.recover("m@1")


def test_no_byte_of_the_rows_is_left(
    db: mmdb.Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("MMDB_CACHE_DIR", str(cache))
    db.sql(f"UPDATE points SET c = '{TEXT}', f = {NUMBER}, y = 'no' WHERE id = 42")
    create(db, "points", transforms={"c": {"kind": "index", "min_count": 1}, "f": "passthrough"})
    train(db, "m", "points")
    db.evaluate("m", "points")
    db.evaluate("m", f"{QUERY} WHERE id < 50", by="c")
    for part in find_dataset(db.connection, "points").slices:
        ensure_partition(db.connection, part.part_id, part.content_hash)
    assert traces(db, cache) >= {
        *("block", "transform", "evaluation", "evaluation_metric", "cache")
    }
    db.forget("points", "id = 42")
    assert traces(db, cache) == set()
    db.remake(workers=1)
    assert traces(db, cache) == set()


def traces(db: mmdb.Database, cache: Path) -> set[str]:
    """Return the tables where the text or the number is found, and whether a file has it."""
    sought = [TEXT.encode(), struct.pack("<d", NUMBER), struct.pack("<f", NUMBER)]
    # Evaluations name their worst rows, in JSON that is a text or a dict.
    sought += [str(NUMBER).encode(), b'"key": "42"', b"'key': '42'"]

    def has(value: object) -> bool:
        data = bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
        return any(one in data for one in sought)

    tables = db.sql(
        "SELECT table_name FROM information_schema.tables"
        " WHERE table_schema = 'mmdb' AND table_type = 'BASE TABLE'"
    )
    found = {
        name
        for name in (row["table_name"] for row in tables)
        if any(has(value) for row in db.sql(f"SELECT * FROM mmdb.{name}") for value in row.values())
    }
    files = [path for path in cache.rglob("*") if path.is_file()]
    return found | {"cache" for path in files if has(path.read_bytes())}


def test_what_cannot_be_forgotten_is_refused(db: mmdb.Database) -> None:
    create(db, "points")
    with pytest.raises(errors.DataError, match="has no row"):
        db.forget("points", "id = 1000")
    with pytest.raises(errors.DataError, match="No row to train on"):
        db.forget("points", "TRUE")
    for wrong in ("nothing = 1", "id = 1; DELETE FROM points", "id ="):
        with pytest.raises(errors.QueryError):
            db.forget("points", wrong)
    with pytest.raises(errors.QueryFailed, match="x1"):  # once rows are read, in the transaction
        db.forget("points", "('x' || id)::integer = 1")
    for number in ("id", "5", "(SELECT id FROM points WHERE id = 3)"):  # true to DuckDB
        with pytest.raises(errors.InvalidOption, match="condition is"):
            db.forget("points", number)
    with pytest.raises(errors.InvalidOption):
        db.forget("points", "id = 1", models="keep")
    with pytest.raises(errors.InvalidOption):
        db.forget("points", "id = 1", note="")
    with pytest.raises(errors.DatasetNotFound):
        db.forget("nothing", "id = 1")
    assert db.sql("SELECT * FROM mmdb.forgetting") == []
    db.drop_dataset("points")
    with pytest.raises(errors.DatasetDropped):
        db.forget("points", "id = 1")


def test_only_admins_forget_and_no_run_that_is_trained_meanwhile(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        db.sql(TABLE)
        create(db, "points")
        train(db, "m", "points")
        db.sql("GRANT SELECT ON points TO public")
        (run,) = db.sql("SELECT run_id FROM mmdb.run WHERE name = 'm'")
        with mmdb.connect(postgres_url) as other:
            assert other.connection.try_lock("run", run["run_id"])
            with pytest.raises(errors.RunBusy):
                db.forget("points", "id = 1")
        assert 1 in set[int]().union(*held(db, "points"))
        with psycopg.connect(postgres_url, autocommit=True) as session:
            for role in ("mmdb_trainer", "mmdb_worker", "mmdb_reader"):
                session.execute(f"SET ROLE {role}")
                with pytest.raises(psycopg.Error) as refused:
                    session.execute("SELECT * FROM mmdb.forget('points', 'id = 1')")
                assert refused.value.sqlstate in ("MM407", "42501")
            session.execute("RESET ROLE")
        dsn = {"dsn": shown(postgres_url)}
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
        with psycopg.connect(postgres_url, autocommit=True) as session:
            session.execute("SET ROLE mmdb_admin")
            rows = session.execute("SELECT * FROM mmdb.forget('points', 'id = 1')").fetchall()
            assert ("model:m@1", "remake") in [row[:2] for row in rows]
            session.execute("RESET ROLE")
            assert session.execute("CALL mmdb.remake(workers => 1)").fetchone() == (1,)
        (step,) = db.sql("SELECT new_model FROM mmdb.forgetting_overview WHERE action = 'remake'")
        assert step == {"new_model": "m@2"}
