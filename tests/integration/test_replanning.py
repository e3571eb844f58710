"""Runs that leave the band of their plan are planned anew, and say so once, on both engines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

import mmdb
from mmdb.api import Database, Run
from mmdb.db.connection import Connection
from mmdb.plan.auto_strategy import decider
from mmdb.plan.explain_train import put
from mmdb.train.drive import driver, replanning
from mmdb.train.drive.locked_connection import LockedConnection
from mmdb.train.drive.replanning import FEW_HOPS, Replanner
from mmdb.train.drive.run_state import load_run
from mmdb.train.drive.train_run import train
from mmdb.train.watch import Watch
from tests.copies import Copies
from tests.watched import watched

QUERY = "SELECT i * 0.01 AS a, i % 7 AS b, i % 3 AS y FROM generate_series(1, 600) AS g (i)"
#: Hops of a candidate of the runs here: of an epoch, and epochs.
VISITS, EPOCHS = 4, 8


def fill(db: Database) -> None:
    """Make a dataset, and train runs without a plan."""
    db.create_dataset("points", QUERY, partitions=VISITS - 1, validation=0.1)
    for run in (create(db, "before", 3), create(db, "unplanned", seed=1)):
        train(db.connection, run.name, workers=1)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as opened:
        opened.create_dataset("points", QUERY, partitions=VISITS - 1, validation=0.1)
        yield opened


@pytest.fixture(params=["duckdb", "postgres"])
def trained(request: pytest.FixtureRequest, copies: Copies) -> Iterator[Database]:
    """Yield a database in which runs have been trained without a plan."""
    with copies.open(request.param, fill) as opened:
        yield opened


def create(db: Database, name: str, epochs: int = EPOCHS, **given: Any) -> Run:
    search = {"space": {"lr": [0.1, 0.01], "batch_size": 16}}
    architecture = "mlp(hidden=[8])"
    return db.create_run(
        name, dataset="points", architecture=architecture, search=search, epochs=epochs, **given
    )


def states(db: Database, run: str) -> list[tuple[Any, ...]]:
    """Return the state that every hop of a run left."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, h.part_id, h.state_out FROM mmdb.hop AS h "
        "JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id "
        f"JOIN mmdb.run AS r ON c.run_id = r.run_id WHERE r.name = '{run}' ORDER BY 1, h.ordinal"
    )
    return [tuple(row.values()) for row in rows]


def events(db: Database, run: str, event: str = "replanned") -> list[str]:
    rows = db.sql(
        "SELECT e.message FROM mmdb.run_event AS e JOIN mmdb.run AS r ON e.run_id = r.run_id "
        f"WHERE r.name = '{run}' AND e.event = '{event}' ORDER BY e.happened_at"
    )
    return [row["message"] for row in rows]


def said(db: Database, run: str) -> list[float]:
    """Return what each plan of a run has said of what is trained, in order."""
    rows = db.sql(
        "SELECT e.t_p50 FROM mmdb.estimate AS e JOIN mmdb.plan AS p ON e.plan_id = p.plan_id "
        f"JOIN mmdb.run AS r ON p.run_id = r.run_id WHERE r.name = '{run}' AND e.chosen "
        "ORDER BY p.plan_id"
    )
    return [row["t_p50"] for row in rows]


@pytest.mark.parametrize("load", [10.0, 0.1], ids=["slower", "faster"])
def test_a_run_that_misses_its_plan_is_planned_anew_from_its_own_hops(
    trained: Database, load: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = trained
    monkeypatch.setattr(replanning, "PLANNING_SHARE", 1e6)  # of a run that is over in a second
    monkeypatch.setattr(driver, "ATTEND_S", 0.0)  # which may end before anybody looks
    parts = ("compute_s", "total_s", "read_s", "load_s", "store_s")
    scaled = ", ".join(f"{name} = {name} / {load}" for name in parts)
    times = ", ".join(f"{t}_at = base + ({t}_at - base) / {load}" for t in ("started", "finished"))
    began = "(SELECT min(started_at) AS base FROM mmdb.hop) AS b"
    db.sql(f"UPDATE mmdb.hop SET {scaled}, {times} FROM {began}")  # as if nothing else was busy
    run = create(db, "run", seed=1)
    run.explain({"workers": 1})
    run.train(workers=1)
    first = said(db, "run")[1]
    (outcome,) = db.sql("SELECT * FROM mmdb.plan_outcome WHERE run = 'run'")
    assert outcome["t_p50"] == first and outcome["is_comparable"]  # it is what had been said
    found = events(db, "run")
    assert found and len(found) <= len(said(db, "run")) - 2
    assert found[0].startswith("Said: ") and "Said now: " in found[0]

    def off(seconds: float) -> float:  # as a ratio: the machine may have other things to do, too
        return abs(math.log(seconds / outcome["actual_s"]))

    assert all(off(now) < off(first) for now in said(db, "run")[2:])
    assert db.sql("SELECT status FROM mmdb.run_progress WHERE run = 'run'")[0]["status"] == (
        "finished"
    )
    assert states(db, "run") == states(db, "unplanned")


def test_a_run_within_its_band_is_left_alone(db: Database) -> None:
    plans = decider(say=lambda text: None)

    def wide(connection: Connection, name: str, workers: int | None) -> None:
        plans(connection, name, workers)
        db.sql("UPDATE mmdb.estimate SET t_p10 = 0, t_p90 = 1e6")

    train(db.connection, create(db, "run", 5).name, workers=1, decide=wide)
    assert len(said(db, "run")) == 1 and events(db, "run") == []
    assert len(events(db, "run", "started")) == len(events(db, "run", "finished")) == 1


def keep(connection: Connection, run_id: int, hop_s: float, hops: int) -> None:
    """Keep a plan by which each hop takes so long, more or less."""
    numbers: dict[str, Any] = dict.fromkeys(
        ("lower_bound", "compute_s", "read_s", "hop_s", "communication_s", "validation_s",
         "idle_s", "bytes_moved", "peak_memory"), 0)  # fmt: skip
    known = {"rank": 1, "strategy": "mop", "workers": 1, "group_size": 1, "partitions": 3,
             "batch_size": None, "knobs": "{}", "chosen": True, "feasible": True, "why_not": None,
             "executed": True, "hops": hops}  # fmt: skip
    times = {"t_p10": 0.9 * hop_s * hops, "t_p50": hop_s * hops, "t_p90": 1.1 * hop_s * hops}
    put(connection, run_id, [{**known, **numbers, **times}], candidates=1, measured=1, options={},
        notes=[], simulated=False, assumed=False)  # fmt: skip


class Trained:
    """A run of 100 hops on one worker, by a clock of its own."""

    def __init__(self, db: Database, hops: int = 100, planning_s: float = 0.0) -> None:
        run = load_run(db.connection, create(db, "run").name)
        self.plans, self.pace, self.done, self.now = 0, 1.0, 0, 0.0
        keep(db.connection, run.run_id, 1.0, hops)

        def decide(connection: Connection, name: str, workers: int | None) -> None:
            self.plans += 1
            keep(connection, run.run_id, self.pace, 100)

        self.replanner = Replanner(LockedConnection(db.connection), run, decide, planning_s)
        self.watch = Watch()
        self.watch.begin(watched("run", maximize=False, epochs=25, visits=4))
        self.watch.worker("w")
        self.watch.candidate("run", 0, {}, candidate_id=1, goal=25, hops=0, hop_s=None)

    def hop(self, pace: float, count: int = 1) -> list[str]:
        """Do hops, and return what is said of the plan after each."""
        self.pace = pace
        found: list[str] = []
        for _ in range(count):
            self.watch.hop_started("run", "w", 0, self.done // 4, self.done % 4, self.now)
            self.done, self.now = self.done + 1, self.now + pace
            self.watch.hop_done("w", self.now)
            view = self.watch.view("run", self.now)
            found += filter(None, [self.replanner.check(view, self.now, 1)])
        return found


def test_each_crossing_is_said_once(db: Database) -> None:
    trained = Trained(db)
    assert trained.hop(1.0, 10) == [] and trained.plans == 0
    assert trained.hop(3.0, 40) == [  # the first of them that bring the mean of hops above 1.1
        "Said: 1 min 40 s (1 min 30 s to 1 min 50 s). Then 11 of 100 hops took 13 s. "
        "Said now: 4 min 40 s (4 min 13 s to 5 min 07 s)."
    ]
    assert trained.plans == 1
    (faster,) = trained.hop(0.1, 30)
    assert "Said: 4 min 40 s" in faster and trained.plans == 2


def test_a_first_hop_that_takes_long_is_not_enough(db: Database) -> None:
    trained = Trained(db)
    assert trained.hop(9.0, FEW_HOPS - 1) == [] and trained.plans == 0
    assert len(trained.hop(9.0, 20)) == 1


def test_a_plan_of_other_hops_does_not_compare(db: Database) -> None:
    trained = Trained(db, hops=200)
    assert trained.hop(9.0, 100) == [] and trained.plans == 0


def test_what_is_left_must_be_worth_a_plan(db: Database) -> None:
    trained = Trained(db, planning_s=1e4)
    assert trained.hop(9.0, 100) == [] and trained.plans == 0


def test_a_plan_that_says_the_same_is_not_said(db: Database) -> None:
    trained = Trained(db)
    trained.hop(3.0, 2)
    assert trained.hop(1.0, 98) == []  # what two hops took was nothing to go by
