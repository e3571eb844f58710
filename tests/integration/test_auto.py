"""`strategy => 'auto'`: planned before the first hop, decided once, the bits of what is named."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

import mmdb
from mmdb.api import Database, Run
from mmdb.db.check import shown
from mmdb.db.postgres import PostgresConnection
from mmdb.errors import InvalidOption, MmdbWarning, OutOfTurn
from mmdb.plan import auto_strategy, step_probe
from mmdb.train.drive.train_run import train
from mmdb.train.watch import Watch
from tests.worker_process import WorkerCommand

GRID = {"space": {"lr": [0.1, 0.01], "batch_size": 32}}
QUERY = "SELECT i * 0.01 AS a, i % 7 AS b, i % 3 AS y FROM generate_series(1, 400) AS g (i)"


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as opened:
        opened.create_dataset("points", QUERY, partitions=2)
        yield opened


def create(
    db: Database, name: str, strategy: str = "auto", options: Mapping[str, Any] | None = None
) -> Run:
    return db.create_run(
        name,
        dataset="points",
        architecture="mlp(hidden=[8], dropout=0.1)",
        search=GRID,
        epochs=2,
        strategy=strategy,
        seed=3,
        options=options,
    )


def hops(db: Database, run: str) -> list[tuple[Any, ...]]:
    """Return every hop of a run with the state that it left."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, h.part_id, h.group_size, h.state_out "
        "FROM mmdb.hop AS h JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id "
        f"JOIN mmdb.run AS r ON c.run_id = r.run_id WHERE r.name = '{run}' ORDER BY 1, h.ordinal"
    )
    return [tuple(row.values()) for row in rows]


def decided(db: Database, run: str) -> dict[str, Any]:
    (row,) = db.sql(
        "SELECT s.* FROM mmdb.run_strategy AS s JOIN mmdb.run AS r ON s.run_id = r.run_id "
        f"WHERE r.name = '{run}'"
    )
    return dict(row)


def outcome(db: Database, run: str) -> dict[str, Any]:
    (row,) = db.sql(f"SELECT * FROM mmdb.plan_outcome WHERE run = '{run}'")
    return dict(row)


def test_auto_gives_the_bits_of_the_strategy_that_it_takes(db: Database) -> None:
    create(db, "mop", "mop").train(workers=1)
    create(db, "groups", "data_parallel").train(workers=2)
    create(db, "open").train(workers=2)
    create(db, "task", options={"strategies": ["task"]}).train(workers=2)
    create(db, "dp", options={"strategies": ["data_parallel"], "group": 2}).train(workers=2)
    assert hops(db, "open") == hops(db, "task") == hops(db, "mop")
    assert hops(db, "dp") == hops(db, "groups") != hops(db, "mop")
    taken = {run: decided(db, run) for run in ("open", "task", "dp")}
    assert {run: row["strategy"] for run, row in taken.items()} == {
        "open": "mop",
        "task": "task",
        "dp": "data_parallel",
    }
    assert taken["dp"]["group_size"] == 2 and "predicted" in taken["open"]["reason"]
    shown = db.sql("SELECT run, strategy FROM mmdb.run_progress ORDER BY run")
    assert {row["run"]: row["strategy"] for row in shown} == {
        "mop": "mop",
        "groups": "data_parallel",
        "open": "mop",
        "task": "task",
        "dp": "data_parallel",
    }


def test_every_run_has_a_plan_that_is_older_than_its_first_hop(db: Database) -> None:
    for strategy in ("auto", "mop", "data_parallel"):
        run = create(db, strategy.replace("_", "-"), strategy)
        run.train(workers=3 if strategy == "mop" else 2)  # two candidates leave one idle
        found = outcome(db, run.name)
        assert found["t_p50"] > 0 and found["is_comparable"]
        assert found["strategy"] == ("mop" if strategy == "auto" else strategy)
        hops_of = f"FROM mmdb.hop_timeline WHERE run = '{run.name}'"
        (first,) = db.sql(f"SELECT min(started_at) AS at {hops_of}")
        assert found["planned_at"] < first["at"]
    assert len(db.sql("SELECT * FROM mmdb.run_strategy")) == 1


def test_a_run_goes_on_with_what_was_decided(db: Database) -> None:
    run = create(db, "r", options={"strategies": ["data_parallel"]})

    class Enough(Exception):
        """Ends a training."""

    def stop() -> None:
        if hops(db, "r"):
            raise Enough

    watch = Watch(lambda snapshot: stop(), every_s=0)
    with pytest.raises(Enough):
        run.train(workers=2, watch=watch)
    before = decided(db, "r")
    with pytest.raises(InvalidOption, match="groups of 2"):
        run.train(workers=1)
    run.train(workers=2)
    assert decided(db, "r") == before
    assert {group for *_, group, _ in hops(db, "r")} == {2, None}
    assert len(db.sql("SELECT * FROM mmdb.plan")) == 1
    create(db, "whole", "data_parallel").train(workers=2)
    assert hops(db, "r") == hops(db, "whole")


def test_a_hop_by_hand_makes_an_undecided_run_mop(db: Database) -> None:
    run = create(db, "r", options={"strategies": ["data_parallel"]})
    places = db.sql(
        "SELECT c.candidate_id, p.part_id FROM mmdb.candidate AS c, mmdb.partition AS p "
        "WHERE c.ordinal = 0 AND p.role = 'train'"
    )
    for place in places:  # one of them is the first
        with suppress(OutOfTurn):
            db.sql("SELECT * FROM mmdb.train_hop({part_id}, {candidate_id})".format(**place))
            break
        assert db.sql("SELECT * FROM mmdb.run_strategy") == []  # no hop, no decision
    assert decided(db, "r")["strategy"] == "mop" and "before any plan" in decided(db, "r")["reason"]
    run.train(workers=2)
    create(db, "named", "mop").train(workers=2)
    assert hops(db, "r") == hops(db, "named")
    assert db.sql("SELECT * FROM mmdb.plan WHERE run_id = 1") == []


def test_without_anyone_who_decides_auto_is_mop(db: Database) -> None:
    create(db, "r")
    train(db.connection, "r", workers=1)
    assert decided(db, "r")["strategy"] == "mop" and decided(db, "r")["plan_id"] is None


def test_a_plan_that_cannot_be_made_stops_no_training(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **given: Any) -> int:
        raise ZeroDivisionError("no plan today")

    monkeypatch.setattr(auto_strategy, "plan", fails)
    with pytest.warns(MmdbWarning, match="not planned.*no plan today"):
        create(db, "r").train(workers=1)
    assert decided(db, "r")["strategy"] == "mop"
    assert outcome(db, "r")["plan_id"] is None


def test_a_model_that_misbehaves_is_followed_apart(db: Database) -> None:
    db.register_factory("fails", "tests.broken:fails")
    for when in ("exit", "interrupt"):
        run = db.create_run(when, dataset="points", architecture=f"fails(when='{when}')")
        with (
            pytest.warns(MmdbWarning, match="not planned"),
            pytest.raises(mmdb.errors.RunFailed),
        ):
            run.train(workers=1)
        assert decided(db, when)["strategy"] == "mop"


def test_work_that_does_not_end_is_left_behind() -> None:
    ends = threading.Event()
    with pytest.raises(InvalidOption, match="takes more than 0 seconds"):
        auto_strategy._within(0.1, lambda: None, ends.wait)
    ends.set()
    with pytest.raises(SystemExit):
        auto_strategy._within(60, lambda: None, lambda: sys.exit(3))


@pytest.mark.parametrize(
    ("strategy", "options", "said"),
    [
        ("mop", {"strategies": ["task"]}, "with the strategy 'mop'"),
        ("auto", {"strategies": []}, "is a list"),
        ("auto", {"strategies": "mop"}, "is a list"),
        ("auto", {"strategies": ["mop", "pipeline"]}, "names 'pipeline'"),
        ("auto", {"group": 2}, "group is given"),
        ("auto", {"strategies": ["model_average"], "order": "fixed"}, "order is 'fixed'"),
    ],
)
def test_what_auto_may_choose_from_is_checked(
    db: Database, strategy: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidOption) as raised:
        create(db, "r", strategy, options)
    assert said in str(raised.value) + raised.value.hint


def test_in_sql_runs_are_planned_too(db: Database) -> None:
    create(db, "r")
    if isinstance(db.connection, PostgresConnection):
        dsn = {"dsn": shown(db.connection.url)}
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
        db.sql("CALL mmdb.train('r', 1)")
    else:
        db.sql("SELECT mmdb.train('r', workers := 1)")
    assert outcome(db, "r")["t_p50"] > 0


def test_worker_processes_plan_what_is_submitted(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        db.create_dataset("points", QUERY, partitions=2)
        create(db, "r", options={"strategies": ["task"]}).submit()
        create(db, "named", "data_parallel").submit()
        with WorkerCommand(postgres_url, "--slots", "2", "--once") as process:
            assert process.ends() == 0, process.said
        assert decided(db, "r")["strategy"] == "task"
        assert outcome(db, "r")["t_p50"] > 0 and outcome(db, "named")["t_p50"] > 0


def test_steps_are_timed_once_and_plans_rest_on_them(db: Database) -> None:
    if isinstance(db.connection, PostgresConnection):
        dsn = {"dsn": shown(db.connection.url)}
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
    run = create(db, "r")
    plan = run.explain({"workers": 2, "probe_s": 5})
    (timed,) = db.sql("SELECT * FROM mmdb.step_time")  # two rates of one cost key
    assert timed["steps"] > 2 and timed["row_count"] == 32 * timed["steps"]
    assert timed["seconds"] > 0 and timed["state_bytes"] > 0 and "torch" in timed["environment"]
    assert db.sql("SELECT * FROM mmdb.hop") == [] and plan.estimates
    run.explain({"probe_s": 60})
    assert len(db.sql("SELECT * FROM mmdb.step_time")) == 1
    kept = db.sql("SELECT candidates, measured FROM mmdb.plan")
    assert all(row["candidates"] == row["measured"] == 2 for row in kept)
    for seconds in (-1, 61, "1", True):
        with pytest.raises(InvalidOption, match="probe_s"):
            run.explain({"probe_s": seconds})


def test_steps_of_a_bad_model_are_not_timed(
    duckdb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file alone: what breaks a step off is patched in this process."""
    with mmdb.connect(duckdb_url) as db:
        db.create_dataset("points", QUERY, partitions=2)
        _time_bad_models(db, monkeypatch)


def _time_bad_models(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_probe, "_OVER_S", 0.5)
    db.register_factory("fails", "tests.broken:fails")
    db.register_factory("slow", "tests.slow:slow")
    grid = {"space": {"architecture.when": ["exit", "training", "never"]}}
    run = db.create_run("r", dataset="points", architecture="fails", search=grid)
    plan = run.explain({"probe_s": 3})
    assert len(db.sql("SELECT * FROM mmdb.step_time")) == 1
    assert sum("could not be timed" in note for note in plan.notes) == 2
    slow = db.create_run("s", dataset="points", architecture="slow(seconds=0.8)")
    plan = slow.explain({"probe_s": 0.1})
    assert any("too long to be timed" in note for note in plan.notes)
