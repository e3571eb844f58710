"""The strategy `sisa`: a model for each shard of a dataset, whose mean forgets shard by shard."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.db.check import shown
from tests.copies import Copies
from tests.integration.test_forgetting import QUERY, TABLE, check, held, weights
from tests.worker_process import WorkerCommand

SEARCH = {"space": {"lr": [0.01], "batch_size": [16]}}
FREEZES = "freeze_up_to is given with the strategy 'sisa'"
SHARDS = [f"m/shard-{place}" for place in (1, 2, 3)]
_TRAINS = """
import os, signal, sys, mmdb
from mmdb.train.watch import Watch

class Deadly(Watch):
    left = 4

    def hop_done(self, *given, **named):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        super().hop_done(*given, **named)

db = mmdb.connect(sys.argv[1])
run = sys.argv[2] if len(sys.argv) > 2 else db._call("next_remake")[0]["run"]
db.run(run).train(workers=1, watch=Deadly())
"""


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        database.sql(TABLE)
        yield database


def fill(db: mmdb.Database) -> None:
    """Train run `m` on dataset `points`, and save what a run could begin with."""
    db.sql(TABLE)
    create(db, "points")
    begin(db, "m", "points").train(workers=1)
    db.save("base", torch.nn.Linear(4, 2))


@pytest.fixture(params=["duckdb", "postgres"])
def trained(request: pytest.FixtureRequest, copies: Copies) -> Iterator[mmdb.Database]:
    """Yield a database of its own in which run `m` has been trained."""
    with copies.open(request.param, fill) as database:
        yield database


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def untouched(request: pytest.FixtureRequest, copies: Copies) -> Iterator[mmdb.Database]:
    """Yield a database of all tests that change nothing."""
    with copies.open(request.param, fill) as database:
        yield database


def create(db: mmdb.Database, name: str, **given: Any) -> None:
    options = {"roles": {"id": "key"}, "transforms": {"c": "index"}}
    chosen: dict[str, Any] = {"label": "y", "partitions": 6, "options": options}
    db.create_dataset(name, QUERY, **{**chosen, **given})


def begin(db: mmdb.Database, run: str, dataset: str, **given: Any) -> mmdb.Run:
    chosen: dict[str, Any] = {
        "architecture": "mlp(hidden=[8], dropout=0.2)",
        "epochs": 2,
        "search": SEARCH,
        "strategy": "sisa",
        "options": {"shards": 3},
    }
    return db.create_run(run, dataset=dataset, **{**chosen, **given})


def told(ids: set[int]) -> str:
    return f"id IN ({', '.join(map(str, sorted(ids)))})"


def listed(db: mmdb.Database, condition: str) -> set[str]:
    """Return the models that forgetting would make again."""
    rows = db.forget("points", condition, dry_run=True)
    return {row["entity"] for row in rows if row["action"] == "remake"}


def state(db: mmdb.Database, model: str) -> dict[str, torch.Tensor]:
    return db.recover(model).state_dict()


def test_a_shard_that_forgets_is_made_again_alone_to_the_bits(trained: mmdb.Database) -> None:
    db = trained
    create(db, "apart")
    summary = begin(db, "m2", "points").train(workers=1)  # on the shards that m has, too
    assert (summary.model, summary.version, summary.candidates) == ("m2", 1, 3)
    assert summary.hops == 3 * 2 * 3  # shards, epochs, two partitions and what is held out
    assert db.sql("SELECT count(*) AS n FROM mmdb.dataset WHERE name LIKE 'points/%'") == [{"n": 3}]
    (row,) = db.sql("SELECT status, strategy FROM mmdb.run_progress WHERE run = 'm'")
    assert row == {"status": "finished", "strategy": "sisa"}
    assert db.run("m").train(workers=1).version == 1  # the same mean is saved once
    for place, shard in enumerate(SHARDS):
        for name, value in state(db, shard).items():
            assert torch.equal(value, state(db, "m")[f"{place}.{name}"])
    db.set_alias("m", "live")
    parts = held(db, "points")
    shards = [parts[place] | parts[place + 3] for place in range(3)]
    gone = set(sorted(shards[1])[::9])
    assert listed(db, told(gone)) == {
        "model:m/shard-2@1",
        "model:m@1",
        "model:m2/shard-2@1",
        "model:m2@1",
    }
    before = {name: weights(db, name) for name in ("m", *SHARDS)}
    db.drop_model("m/shard-1@1")  # the mean has all that is needed of it
    db.forget("points", told(gone))
    check(db)
    assert weights(db, "m") == before["m"]  # it answers until it is made again
    assert db.remake(workers=1) == 2
    db.sql(f"DELETE FROM points WHERE {told(gone)}")
    assert db.refresh_dataset("apart").deleted == len(gone)
    begin(db, "never", "apart").train(workers=1)
    assert weights(db, "m") == weights(db, "never") != before["m"]
    assert weights(db, "m/shard-2") == weights(db, "never/shard-2") != before["m/shard-2"]
    assert weights(db, "m/shard-3") == before["m/shard-3"]
    assert db.sql("SELECT model, version FROM mmdb.model_alias") == [{"model": "m", "version": 2}]
    (row,) = db.sql("SELECT reason FROM mmdb.forgetting_overview WHERE entity = 'model:m@1'")
    assert row["reason"] == "Made again: 1 of its 3 shards had met the rows."


def test_what_is_forgotten_twice_is_made_again_once_without_either(trained: mmdb.Database) -> None:
    db = trained
    create(db, "apart")
    parts = held(db, "points")
    ordered = [sorted(part) for part in parts]
    first, second = set(ordered[0][:5]), {*ordered[1][:4], *ordered[0][6:8]}
    db.drop_model("m/shard-2@1")
    db.forget("points", told(first))
    db.forget("points", told(second))
    db.remake(workers=1)
    db.sql(f"DELETE FROM points WHERE {told(first | second)}")
    db.refresh_dataset("apart")
    begin(db, "never", "apart").train(workers=1)
    assert weights(db, "m") == weights(db, "never")
    assert not db.sql(
        "SELECT 1 AS left FROM mmdb.forgetting_overview WHERE action = 'remake' AND done_at IS NULL"
    )


def test_rows_that_are_held_out_were_met_by_all_shards_and_a_lost_shard_leaves_the_mean(
    trained: mmdb.Database,
) -> None:
    db = trained
    parts = held(db, "points")
    assert len(listed(db, told(set(sorted(parts[-1])[:1])))) == 4
    db.forget("points", told(parts[0] | parts[3]))
    assert db.remake(workers=1) == 0  # the two that are left had met nothing
    (row,) = db.sql("SELECT reason FROM mmdb.forgetting_overview WHERE entity = 'model:m@1'")
    assert row["reason"] == "Made again: 0 of its 3 shards had met the rows."
    assert {name.split(".")[0] for name in state(db, "m@2")} == {"0", "1"}
    check(db)
    db.forget("points", told(parts[1] | parts[4]))
    assert db.remake(workers=1) == 0
    (row,) = db.sql("SELECT new_model, reason FROM mmdb.forgetting_overview"
                    " WHERE entity = 'model:m@2'")  # fmt: skip
    assert row["new_model"] is None
    assert "one alone" in row["reason"]


def test_a_dataset_that_holds_out_nothing(db: mmdb.Database) -> None:
    create(db, "points", validation=0.0, partitions=2)
    begin(db, "m", "points", options={}).train(workers=1)  # a shard is a partition
    assert not db.sql("SELECT 1 AS n FROM mmdb.metric_overview WHERE model = 'm'")
    gone = sorted(held(db, "points")[0])[:3]
    db.forget("points", told(set(gone)))
    assert db.remake(workers=1) == 1
    assert len(db.predict_query("m", "SELECT * FROM points LIMIT 5", key="id")) == 5


def killed(db: mmdb.Database, *run: str) -> mmdb.Database:
    """Let another process train until it is killed at a hop; return the database."""
    url = str(db.connection.url)
    db.close()  # one process alone has a DuckDB file
    command = [sys.executable, "-W", "ignore", "-c", _TRAINS, url, *run]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    return mmdb.connect(url)


def test_what_was_killed_goes_on(db: mmdb.Database) -> None:
    create(db, "points")
    begin(db, "m", "points")
    begin(db, "whole", "points").train(workers=1)
    db = killed(db, "m")
    try:
        assert not db.sql("SELECT 1 AS n FROM mmdb.model WHERE name = 'm'")
        assert 0 < db.run("m").train(workers=1).hops < 18
        assert weights(db, "m") == weights(db, "whole")
        db.drop_model("whole")
        gone = set(sorted(held(db, "points")[2])[:3])
        db.forget("points", told(gone))
        db = killed(db)
        db.remake(workers=1)
        models = {row["name"] for row in db.sql("SELECT name FROM mmdb.model WHERE version = 2")}
        assert models == {"m", "m/shard-3", "whole/shard-3"}
        assert not db.sql("SELECT 1 AS n FROM mmdb.forgetting_overview"
                          " WHERE action = 'remake' AND done_at IS NULL")  # fmt: skip
    finally:
        db.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": {"shards": 7}}, "7 shards, and dataset 'points' has 6 train partitions"),
        ({"options": {"shards": 1}}, "options.shards is 1"),
        ({"options": {"shards": "many"}}, "options.shards is 'many'"),
        ({"options": {"shards": 3}, "strategy": "mop"}, "options.shards is given with"),
        ({"options": {"ensemble": 2}}, "'sisa' with options.ensemble"),
        ({"options": {"stack": "auto"}}, "options.stack is given with the strategy 'sisa'"),
        ({"per": "c", "search": {}}, "per is given with strategy 'sisa'"),
        ({"warm_start": "auto"}, "'sisa' with warm_start 'auto'"),
        ({"warm_start": "base"}, "'sisa' with warm_start 'base@1'"),
        ({"architecture": {"mean": ["mlp", "linear"]}}, "'sisa' with an architecture that is"),
        ({"options": {"freeze_up_to": "1"}}, FREEZES),
        ({"search": {"space": {"freeze_up_to": [None, "1"]}}}, FREEZES),
    ],
)
def test_what_cannot_be_sharded_is_refused(
    untouched: mmdb.Database, given: dict[str, Any], message: str
) -> None:
    before = stored(untouched)
    with pytest.raises(errors.InvalidOption, match=message) as refused:
        begin(untouched, "refused", "points", **given)
    assert refused.value.hint
    assert stored(untouched) == before


@pytest.mark.parametrize(
    "options", [{"inputs": {"left": ["f", "a"], "right": ["b", "c"]}}, {"labels": ["c"]}]
)
def test_rows_of_several_inputs_or_labels_are_not_sharded(
    db: mmdb.Database, options: dict[str, Any]
) -> None:
    create(db, "points", options={"roles": {"id": "key"}, **options})
    before = stored(db)
    with pytest.raises(errors.InvalidOption, match="several inputs or labels") as refused:
        begin(db, "m", "points")
    assert refused.value.hint
    assert stored(db) == before


def stored(db: mmdb.Database) -> dict[str, int]:
    """Return how many rows each table has."""
    tables = db.sql(
        "SELECT table_name AS name FROM information_schema.tables"
        " WHERE table_schema = 'mmdb' AND table_type = 'BASE TABLE'"
    )
    return {
        one["name"]: int(db.sql(f"SELECT count(*) AS n FROM mmdb.{one['name']}")[0]["n"])
        for one in tables
    }


def test_what_is_said_of_the_run_holds_for_its_shards(db: mmdb.Database) -> None:
    create(db, "points")
    run = begin(db, "m", "points")
    with pytest.raises(errors.InvalidOption, match="3 runs, one for each shard"):
        run.explain()
    assert db.run("m/shard-1").explain()
    with pytest.raises(errors.AlreadyExists):
        begin(db, "m", "points")
    run.train(workers=2)
    for mode in ("continue", "search"):
        with pytest.raises(errors.InvalidOption, match="mean of shards"):
            db.retrain("m", mode=mode)
    assert db.drop_run("m") > 0
    assert not db.sql("SELECT run FROM mmdb.run_progress WHERE status <> 'dropped'")
    begin(db, "m", "points").train(workers=1)
    db.drop_dataset("points", force=True)


def test_worker_processes_train_all_shards(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        db.sql(TABLE)
        create(db, "points")
        run = begin(db, "m", "points")
        asked = run.submit(priority=2)
        assert (asked["run"], asked["request"], asked["hops_total"]) == ("m", "submit", 18)
        assert run.cancel()["request"] == "cancel"
        assert run.resume()["priority"] == 2
        with WorkerCommand(postgres_url, "--once") as command:
            assert run.wait(120)
            assert command.ends() == 0
        assert db.sql("SELECT version FROM mmdb.model WHERE name = 'm'") == [{"version": 1}]
        with pytest.raises(errors.RunEnded):
            run.submit()


def test_sql_trains_and_makes_again_in_one_call(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        db.sql(TABLE)
        create(db, "points")
        begin(db, "m", "points")
        dsn = {"dsn": shown(postgres_url)}
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
        with psycopg.connect(postgres_url, autocommit=True) as session:
            row = session.execute("CALL mmdb.train('m', 1)").fetchone()
            assert row is not None
            assert (row[0], row[1], row[3], row[6]) == ("m", 3, 18, "m@1")
            db.forget("points", told(set(sorted(held(db, "points")[0])[:2])))
            assert session.execute("CALL mmdb.remake(workers => 1)").fetchone() == (1,)
        rows = db.sql("SELECT version FROM mmdb.model WHERE name = 'm' AND dropped_at IS NULL")
        assert rows == [{"version": 2}]
