"""Candidates that share their input hop together: the same rows and bits as apart, on both engines.

The candidates are plain ones, and what they share is only said: nothing of it is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db.queries import load
from mmdb.store import stored_features
from mmdb.store.stored_features import FeatureSpec
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.locked_connection import LockedConnection
from mmdb.train.drive.run_state import CandidateState, HopGroups, load_run
from mmdb.train.drive.worker import workers_of
from mmdb.train.watch import Watch
from tests.cluster import Cluster
from tests.integration.test_strategies import train_all
from tests.points import fill, logged

GRID = {"space": {"optimizer": ["sgd"], "lr": [0.1, 0.05, 0.02, 0.01, 0.005]}}
#: The same but for one candidate, whose loss soon is no number.
BAD = {"space": {"optimizer": ["sgd"], "lr": [0.1, 1e30, 0.02, 0.01, 0.005]}}
FREE = {"order": "free", "checkpoint": "hop"}
#: Arguments of `create_run` by name.
RUNS: dict[str, dict[str, Any]] = {
    "apart": {"search": GRID, "epochs": 2},
    "together": {"search": GRID, "epochs": 2},
    "free_together": {"search": GRID, "options": FREE},
    "off": {"search": GRID, "options": {"features": {"fuse": 1}}},
    "bad": {"search": BAD, "options": {"features": {"fuse": 3}}},
    "task": {"search": GRID, "strategy": "task"},
}
_numbers = count(1)
SHARING = ("together", "free_together", "off", "bad", "task")


class Joining(Watch):
    """Counts by run how many candidates each hop had that several did, and their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.joined: Counter[str] = Counter()
        self.hops: Counter[str] = Counter()

    def hop_joined(self, worker: str, candidate: int) -> None:
        super().hop_joined(worker, candidate)
        present = self._tracks[worker].present
        assert present is not None
        self.joined[present.run] += 1

    def hop_done(self, worker: str, at: float, objective: float | None = None) -> None:
        present = self._tracks[worker].present
        assert present is not None
        self.hops[present.run] += 1
        super().hop_done(worker, at, objective)


def share(db: Database, run: str, key: bytes) -> None:
    """Say that all candidates of a run train on the same features."""
    connection = db.connection
    state = load_run(connection, run)
    (row,) = connection.rows(load("runs").find_run, name=run)
    spec = FeatureSpec(
        feature_key=key,
        dataset_id=row["dataset_id"],
        owner="",
        prefix_key=key,
        layer="0",
        pool="none",
        storage="float32",
        shape=(2,),
        architecture_hash=key,
        tensors_hash=key,
        network_hash=key,
        depth=0,
        backbone=None,
        model_id=None,
        seed=0,
        row_bytes=8,
    )
    with connection.transaction():
        feature_id = stored_features.put(connection, [spec])[key].feature_id
        place = {"run_id": state.run_id, "feature_id": feature_id}
        for member in state.members:
            connection.run(
                load("features").put_candidate, candidate_id=member.candidate_id, **place
            )


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """Yield a database with the runs, none of which is trained."""
    folder = tmp_path_factory.mktemp("fused")
    url = f"duckdb:///{folder}/mmdb.duckdb"
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_fused", request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        fill(database)
        for name, asked in RUNS.items():
            database.create_run(name, dataset="d", architecture="mlp(dropout=0.2)", **asked)
        for name in SHARING:
            share(database, name, name.encode().ljust(32))
        yield database
    if request.param == "postgres":
        cluster.drop_database("mmdb_fused")


@pytest.fixture(scope="module")
def trained(db: Database) -> tuple[dict[str, Any], Joining]:
    """Train all runs; return what became of each, and what was heard of their hops."""
    watch = Joining()
    return train_all(db, list(RUNS), watch=watch), watch


def outputs(db: Database, run: str) -> set[tuple[Any, ...]]:
    """Return candidate, epoch, partition, loss and state of each hop."""
    return set(logged(db, run))


def test_several_candidates_do_a_hop_together(trained: tuple[dict[str, Any], Joining]) -> None:
    outcomes, watch = trained
    for run in ("together", "free_together", "bad"):
        assert watch.joined[run] > outcomes[run].hops / 4, (run, watch.joined)
    assert watch.joined.keys().isdisjoint({"apart", "off"})
    assert {run: outcomes[run].hops for run in RUNS} == watch.hops
    assert outcomes["together"].hops == outcomes["apart"].hops == 5 * 2 * 3


def test_rows_and_bits_are_those_of_hops_apart(
    db: Database, trained: tuple[dict[str, Any], Joining]
) -> None:
    assert logged(db, "together") == logged(db, "apart")
    first = {row for row in outputs(db, "apart") if row[1] == 0}
    assert {row[0] for row in first} == set(range(5)) and outputs(db, "off") == first
    assert logged(db, "task") == logged(db, "off")
    boards = [db.run(name).leaderboard() for name in ("apart", "together")]
    assert [row["config"] for row in boards[0]] == [row["config"] for row in boards[1]]
    assert [row["objective"] for row in boards[0]] == [row["objective"] for row in boards[1]]


def test_the_rows_of_a_free_order_are_whole(
    db: Database, trained: tuple[dict[str, Any], Joining]
) -> None:
    """The order may differ, which partition is visited how often does not."""
    found = logged(db, "free_together")
    assert len(found) == len({row[:3] for row in found}) == 5 * 3
    kept = db.sql(
        "SELECT count(DISTINCT candidate_id) AS n FROM mmdb.checkpoint AS k"
        " JOIN mmdb.candidate AS c USING (candidate_id) JOIN mmdb.run AS r USING (run_id)"
        " WHERE r.name = 'free_together'"
    )
    assert kept == [{"n": 5}]


def test_one_that_fails_ends_alone_and_the_others_go_on(
    db: Database, trained: tuple[dict[str, Any], Joining]
) -> None:
    outcomes, _ = trained
    assert outcomes["bad"].failed == 1
    failed = [row["config"]["lr"] for row in db.run("bad").leaderboard() if row["error"]]
    assert [float(lr) for lr in failed] == [1e30]
    others = {row for row in outputs(db, "off") if row[0] != 1}
    assert {row for row in outputs(db, "bad") if row[0] != 1} == others


def test_hops_have_their_own_times(db: Database, trained: tuple[dict[str, Any], Joining]) -> None:
    rows = db.sql(
        "SELECT worker, started_at, finished_at FROM mmdb.hop_timeline"
        " WHERE run = 'together' ORDER BY worker, started_at, finished_at"
    )
    assert len(rows) > len({row["worker"] for row in rows})
    for before, after in pairwise(rows):
        if before["worker"] == after["worker"]:
            assert before["finished_at"] <= after["started_at"]


# -- by hand -------------------------------------------------------------------------


@pytest.fixture
def hand(db: Database) -> tuple[list[int], list[int]]:
    """Return the partitions and the candidates of a run that nobody drives."""
    name = f"hand_{next(_numbers)}"
    db.create_run(name, dataset="d", architecture="mlp", search=BAD, options=FREE)
    state = load_run(db.connection, name)
    return [state.part_ids[0], state.part_ids[1]], [m.candidate_id for m in state.members]


def test_a_call_does_a_hop_of_each_and_does_none_twice(
    db: Database, hand: tuple[list[int], list[int]]
) -> None:
    (part, _), (first, _, third, fourth, _) = hand
    call = f"SELECT * FROM mmdb.train_hops({part}, ARRAY[{third}, {first}])"
    rows = db.sql(call)
    assert [(row["candidate_id"], row["part_id"], row["epoch"]) for row in rows] == [
        (third, part, 0),
        (first, part, 0),
    ]
    again = db.sql(f"SELECT * FROM mmdb.train_hops({part}, ARRAY[{first}, {fourth}, {third}], 0)")
    states = {row["candidate_id"]: row["state_out"] for row in rows}
    found = {row["candidate_id"]: row["state_out"] for row in again}
    assert found.keys() == {first, third, fourth} and states.items() <= found.items()


def test_a_call_does_all_hops_or_none(db: Database, hand: tuple[list[int], list[int]]) -> None:
    (part, other), (first, bad, third, *_) = hand
    with pytest.raises(errors.NotANumber):
        db.sql(f"SELECT * FROM mmdb.train_hops({part}, ARRAY[{first}, {third}, {bad}])")
    with pytest.raises(errors.OutOfTurn):
        db.sql(f"SELECT * FROM mmdb.train_hops({part}, ARRAY[{first}], 5)")
    done = f"SELECT count(*) AS n FROM mmdb.hop WHERE candidate_id IN ({first}, {third}, {bad})"
    assert db.sql(done) == [{"n": 0}]
    assert len(db.sql(f"SELECT * FROM mmdb.train_hops({other}, ARRAY[{first}, {third}])")) == 2
    assert db.sql(done) == [{"n": 2}]


@pytest.mark.parametrize(
    ("candidates", "error", "text"),
    [
        ("ARRAY[]::bigint[]", errors.InvalidOption, "candidate_ids is empty"),
        ("NULL", errors.InvalidOption, "candidate_ids is NULL"),
        ("ARRAY[987654]", errors.CandidateNotFound, "987654"),
        ("ARRAY[NULL]::bigint[]", errors.CandidateNotFound, "Candidate NULL"),
    ],
)
def test_candidates_that_are_none_are_refused(
    db: Database, candidates: str, error: type[errors.MmdbError], text: str
) -> None:
    with pytest.raises(error, match=text):
        db.sql(f"SELECT * FROM mmdb.train_hops(1, {candidates})")


# -- what is shared -------------------------------------------------------------------


def test_who_shares_is_asked_again_after_a_first_hop(db: Database) -> None:
    """The features of candidates may be settled with the first hop of one of them."""
    shared = load_run(db.connection, "together")
    sharing = HopGroups(LockedConnection(db.connection), shared)
    (feature_id,) = {sharing.of(member) for member in shared.members}
    assert feature_id is not None and sharing.settled_by([0, 1]) == []
    db.create_run("late", dataset="d", architecture="linear", search=GRID)
    state = load_run(db.connection, "late")
    sharing = HopGroups(LockedConnection(db.connection), state)
    plain, *frozen = (
        CandidateState(candidate_id=m.candidate_id, ordinal=m.ordinal, config=config)
        for m, config in zip(state.members, [{}, *[{"freeze_up_to": "0"}] * 4], strict=True)
    )
    assert [sharing.of(member) for member in (plain, *frozen)] == [None] * 5
    assert sharing.settled_by([1]) == []  # it has none: it is not asked for again
    with db.connection.transaction():
        for member in (plain, *frozen[:3]):
            db.connection.run(
                load("features").put_candidate,
                candidate_id=member.candidate_id,
                run_id=state.run_id,
                feature_id=feature_id,
            )
    assert sharing.settled_by([0, 1]) == []  # nobody is asked
    assert sharing.settled_by([2]) == [(2, feature_id), (3, feature_id)]
    assert sharing.settled_by([2, 3]) == []


def test_processes_of_the_client_do_hops_together_too(cluster: Cluster, template: str) -> None:
    url = cluster.create_database("mmdb_fused_client", template)
    try:
        with mmdb.connect(url) as db:
            fill(db)
            for name in ("apart", "together"):
                db.create_run(name, dataset="d", architecture="mlp", search=GRID)
            share(db, "together", b"k" * 32)
            watch = Joining()
            driver = Driver(db.connection, watch=watch)
            (worker,) = workers_of(db.connection, 1, mode="client")
            driver.add_worker(worker)
            for name in ("apart", "together"):
                driver.add_run(name)
            driver.drive()
            assert watch.joined["together"] and not watch.joined["apart"]
            assert len(outputs(db, "apart")) == 5 * 3
            assert outputs(db, "together") == outputs(db, "apart")
    finally:
        cluster.drop_database("mmdb_fused_client")
