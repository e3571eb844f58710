"""Candidates that fail, on both engines: each fails alone, and it is said why.

The runs of a database are trained side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from tests.cluster import Cluster
from tests.integration.test_strategies import train_all
from tests.points import Acting, fill

#: Arguments of `create_run` by name.
RUNS: dict[str, dict[str, Any]] = {
    "nan": {
        "architecture": "mlp",
        "search": {"space": {"optimizer": ["sgd"], "lr": [1e30, 0.01]}},
        "epochs": 2,
    },
    "all": {
        "architecture": "mlp",
        "search": {"space": {"optimizer": ["sgd"], "lr": [1e30, 2e30]}},
        "epochs": 2,
    },
    "raises": {
        "architecture": "fails",
        "search": {"space": {"architecture.when": ["training", "validation", "never"]}},
    },
    "ends": {
        "architecture": "fails",
        "search": {"space": {"architecture.when": ["exit", "interrupt", "never"]}},
    },
}


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """Yield a database with the runs."""
    folder = tmp_path_factory.mktemp("failures")
    url = f"duckdb:///{folder}/mmdb.duckdb"
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_failures", request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        fill(database)
        database.register_factory("fails", "tests.broken:fails")
        for name, asked in RUNS.items():
            database.create_run(name, dataset="d", **asked)
        yield database
    if request.param == "postgres":
        cluster.drop_database("mmdb_failures")


@pytest.fixture(scope="module")
def trained(db: Database) -> tuple[dict[str, Any], Counter[tuple[str, int]]]:
    """Train the runs; return what became of each, and how often each candidate's hops failed."""
    watch = Acting()
    return train_all(db, list(RUNS), watch=watch), watch.failures


@pytest.fixture
def outcomes(trained: tuple[dict[str, Any], Counter[tuple[str, int]]]) -> dict[str, Any]:
    return trained[0]


def failures(db: Database, run: str) -> list[Mapping[str, Any]]:
    """Return why candidates of a run failed, in order."""
    return db.sql(
        "SELECT e.sqlstate, e.message, e.trace FROM mmdb.candidate_event AS e "
        "JOIN mmdb.candidate AS c ON e.candidate_id = c.candidate_id "
        f"JOIN mmdb.run AS r ON r.run_id = c.run_id WHERE r.name = '{run}' ORDER BY c.ordinal"
    )


def test_a_candidate_whose_loss_is_no_number_fails_and_the_others_go_on(
    db: Database, outcomes: dict[str, Any]
) -> None:
    summary = outcomes["nan"]
    assert (summary.candidates, summary.failed) == (2, 1)
    good, bad = db.run("nan").leaderboard()
    assert good["config"]["lr"] == 0.01 and good["error"] is None and good["hops"] == 4
    assert float(bad["config"]["lr"]) == 1e30 and "nan" in bad["error"] and bad["rank"] == 2
    (event,) = failures(db, "nan")
    assert event["sqlstate"] == errors.NotANumber.sqlstate
    (part, *_) = db.sql("SELECT part_id FROM mmdb.partition_overview ORDER BY part_id DESC")
    hop = f"SELECT * FROM mmdb.train_hop({part['part_id']}, {bad['candidate_id']}, 1)"
    with pytest.raises(errors.CandidateStopped, match="nan"):
        db.sql(hop)


def test_a_module_that_raises_is_marked_failed_and_the_others_go_on(
    db: Database, trained: tuple[dict[str, Any], Counter[tuple[str, int]]]
) -> None:
    outcomes, tried = trained
    assert outcomes["raises"].failed == 2
    assert [tried["raises", k] for k in range(3)] == [2, 2, 0]
    assert [row["error"] is None for row in db.run("raises").leaderboard()] == [True, False, False]
    events = failures(db, "raises")
    assert [event["sqlstate"] for event in events] == 2 * [errors.TrainingFailed.sqlstate]
    assert "KeyError" in events[0]["message"] and "AssertionError" in events[1]["message"]


def test_a_module_that_would_end_its_process_fails_alone(
    db: Database, outcomes: dict[str, Any]
) -> None:
    assert outcomes["ends"].failed == 2
    assert [row["error"] is None for row in db.run("ends").leaderboard()] == [True, False, False]
    for event, end in zip(failures(db, "ends"), ("SystemExit", "KeyboardInterrupt"), strict=True):
        assert event["sqlstate"] == errors.TrainingFailed.sqlstate
        assert event["message"].endswith(f"{end}: enough")
        assert "in forward" in event["trace"] and "broken.py" in event["trace"]


def test_a_run_all_of_whose_candidates_fail_is_failed(
    db: Database, outcomes: dict[str, Any]
) -> None:
    assert isinstance(outcomes["all"], errors.RunFailed)
    with pytest.raises(errors.RunFailed, match="'all'"):
        db.run("all").train(workers=1)
    assert all(row["error"] for row in db.run("all").leaderboard())
    assert db.sql("SELECT model FROM mmdb.model_overview WHERE model = 'all'") == []
