"""Every strategy and search, over one pool of workers: the same rows and bits on both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.data import node_cache
from mmdb.db.connection import Connection
from mmdb.store import states
from mmdb.train.compute.live import state_hash, weights
from mmdb.train.drive import job
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.logged_search import last_goals
from mmdb.train.drive.run_state import RunState, load_run, search_of
from mmdb.train.drive.worker import workers_of
from mmdb.train.search import Decision, Report, Start, Stop, Want, from_row
from mmdb.train.watch import Watch
from tests.cluster import Cluster
from tests.integration.test_same_bits import fill

ARCHITECTURE = "mlp(hidden=[8], dropout=0.1, batch_norm=True)"
GRID = {"space": {"lr": [0.05, 0.01], "optimizer": "adam", "batch_size": 64}}
SPACE = {"lr": {"low": 0.001, "high": 0.3, "log": True}, "batch_size": 64}
RUNS: dict[str, dict[str, Any]] = {
    "mop": {"search": GRID, "epochs": 2},
    "task": {"search": GRID, "epochs": 2, "strategy": "task"},
    "model_average": {"search": GRID, "epochs": 3, "strategy": "model_average"},
    "data_parallel": {
        "search": {"space": {"lr": 0.05, "optimizer": "adam"}},
        "epochs": 2,
        "strategy": "data_parallel",
    },
    "asha": {"search": {"method": "asha", "trials": 5, "space": SPACE}, "epochs": 3},
    "pbt": {"search": {"method": "pbt", "population": 4, "space": SPACE}, "epochs": 3},
}


def train_all(
    db: Database, names: list[str], workers: int = 2, watch: Watch | None = None
) -> dict[str, Any]:
    """Train runs side by side over one pool of workers; return what became of each."""
    driver = Driver(db.connection, watch=watch)
    for worker in workers_of(db.connection, workers):
        driver.add_worker(worker)
    for name in names:
        driver.add_run(name)
    driver.drive()
    return driver.outcomes


@pytest.fixture(scope="module")
def trained(
    cluster: Cluster, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Database]]:
    """Return a database on each engine in which every run of RUNS is trained."""
    folder = tmp_path_factory.mktemp("strategies")
    urls = {
        "duckdb": f"duckdb:///{folder / 'mmdb.duckdb'}",
        "postgres": cluster.create_database("mmdb_strategies", template),
    }
    found = {}
    for engine, url in urls.items():
        db = found[engine] = mmdb.connect(url)
        fill(db)
        for name, asked in RUNS.items():
            db.create_run(name, dataset="d", architecture=ARCHITECTURE, **asked)
        outcomes = train_all(db, list(RUNS))
        assert {
            name: type(outcome).__name__ for name, outcome in outcomes.items()
        } == dict.fromkeys(RUNS, "Summary")
    yield found
    for db in found.values():
        db.close()
    cluster.drop_database("mmdb_strategies")


def chain(db: Database, run: str) -> dict[int, list[tuple[int, str, str]]]:
    """Return epoch, role and state of each hop by candidate, in order."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, p.role, h.state_out FROM mmdb.hop h"
        " JOIN mmdb.candidate c ON c.candidate_id = h.candidate_id"
        " JOIN mmdb.partition p ON p.part_id = h.part_id"
        f" JOIN mmdb.run r ON r.run_id = c.run_id WHERE r.name = '{run}'"
        " ORDER BY c.ordinal, h.ordinal"
    )
    found: dict[int, list[tuple[int, str, str]]] = {}
    for row in rows:
        hop = (row["epoch"], row["role"], bytes(row["state_out"]).hex())
        found.setdefault(row["candidate"], []).append(hop)
    return found


@pytest.mark.parametrize("run", ["mop", "task", "model_average", "data_parallel"])
def test_both_engines_give_the_same_bits(trained: dict[str, Database], run: str) -> None:
    chains = [chain(db, run) for db in trained.values()]
    assert chains[0] == chains[1]
    visits = RUNS[run]["epochs"] * 4
    assert all(len(hops) == visits for hops in chains[0].values())


def test_task_and_mop_differ_in_nothing_but_where(trained: dict[str, Database]) -> None:
    db = trained["duckdb"]
    assert chain(db, "mop") == chain(db, "task")
    rows = db.sql(
        "SELECT candidate, count(DISTINCT worker) AS workers FROM mmdb.hop_timeline"
        " WHERE run = 'task' GROUP BY candidate"
    )
    assert [row["workers"] for row in rows] == [1, 1]


def test_an_averaged_epoch_starts_from_one_state(trained: dict[str, Database]) -> None:
    for db in trained.values():
        rows = db.sql(
            "SELECT h.candidate_id, h.epoch, count(DISTINCT h.state_in) AS starts,"
            " count(DISTINCT h.state_out) AS ends FROM mmdb.hop h"
            " JOIN mmdb.partition p ON p.part_id = h.part_id"
            " JOIN mmdb.candidate c ON c.candidate_id = h.candidate_id"
            " JOIN mmdb.run r ON r.run_id = c.run_id"
            " WHERE r.name = 'model_average' AND p.role = 'train'"
            " GROUP BY h.candidate_id, h.epoch"
        )
        assert {(row["starts"], row["ends"]) for row in rows} == {(1, 3)}
        assert len(rows) == 2 * 3
        (merges,) = db.sql("SELECT count(*) AS n FROM mmdb.merge")
        assert merges["n"] == 2 * 3


def test_a_group_leaves_one_state_a_round(trained: dict[str, Database]) -> None:
    rows = trained["postgres"].sql(
        "SELECT epoch, group_size, row_count FROM mmdb.hop_timeline"
        " WHERE run = 'data_parallel' AND role = 'train' ORDER BY ordinal"
    )
    assert [row["group_size"] for row in rows] == [2, 2, None] * 2


@pytest.mark.parametrize("run", ["asha", "pbt"])
def test_a_search_decides_the_same_when_its_log_is_told_again(
    trained: dict[str, Database], run: str
) -> None:
    for db in trained.values():
        state = load_run(db.connection, run)
        log = db.sql(
            "SELECT kind, candidate, epoch, value, detail FROM mmdb.decision d"
            f" WHERE d.run_id = {state.run_id} ORDER BY d.ordinal"
        )
        rows = [{**row, "detail": _parsed(row["detail"])} for row in log]
        told = search_of(state)
        decided: list[Decision] = told.begin()
        for row in rows:
            entry = from_row(row)
            if isinstance(entry, Report):
                decided += told.report(entry)
            elif isinstance(entry, Want):
                decided += told.want(entry.idle)
        logged = [from_row(row) for row in rows if row["kind"] in ("start", "goal", "stop")]
        assert decided == logged
        assert told.done
        assert sum(isinstance(entry, Start) for entry in logged) == len(state.members)
        ends = last_goals([{**row, "detail": json.dumps(row["detail"])} for row in rows])
        for member in state.members:
            end = ends[member.ordinal]
            if not isinstance(end, Stop):
                assert member.progress.epoch == end.epochs


def _parsed(detail: Any) -> Any:
    return json.loads(detail) if isinstance(detail, str) else detail


def test_a_clone_goes_on_from_its_parents_state_with_its_own_settings(
    trained: dict[str, Database],
) -> None:
    for db in trained.values():
        parent = db.run("mop").leaderboard()[0]["candidate_id"]
        clone = db.clone_candidate(parent, {"lr": 0.002})
        summary = db.run("mop").train(workers=1)
        assert (summary.candidates, summary.hops) == (3, 2 * 4)
        (row,) = db.sql(f"SELECT * FROM mmdb.candidate WHERE candidate_id = {clone}")
        (first, *_) = db.sql(
            f"SELECT state_in FROM mmdb.hop WHERE candidate_id = {clone} ORDER BY ordinal"
        )
        state = _checkpoint(db, clone, bytes(row["parent_state"]).hex())
        (left,) = db.sql(
            f"SELECT state_out FROM mmdb.hop WHERE candidate_id = {parent} AND ordinal = 6"
        )
        assert bytes(row["parent_state"]) == bytes(left["state_out"])
        assert state_hash(state) != bytes(first["state_in"])  # its learning rate is another
        name = f"clone-{clone}"
        db.save_candidate(clone, name, approach="provenance")
        db.sql(f"DELETE FROM mmdb.checkpoint WHERE candidate_id = {clone} AND epoch >= 0")
        assert db.recover(name)


def _checkpoint(db: Database, candidate_id: int, name: str) -> bytes:
    (row,) = (
        c for c in states.checkpoints(db.connection, candidate_id) if c["state_hash"].hex() == name
    )
    state = states.read_checkpoint(db.connection, row["part_id"], candidate_id, name)
    assert state is not None
    return state


def test_nothing_in_flight_is_left_behind(trained: dict[str, Database]) -> None:
    assert trained["duckdb"].connection.in_flight == {}  # type: ignore[union-attr]
    (row,) = trained["postgres"].sql("SELECT count(*) AS n FROM mmdb.state_chunk")
    assert row["n"] == 0


def test_a_lost_part_of_an_averaged_epoch_is_trained_again(
    trained: dict[str, Database],
) -> None:
    db = trained["postgres"]
    db.create_run(
        "lost", dataset="d", architecture=ARCHITECTURE, search=GRID, strategy="model_average"
    )
    (candidate, *_) = db.sql(
        "SELECT c.candidate_id FROM mmdb.candidate c JOIN mmdb.run r ON r.run_id = c.run_id"
        " WHERE r.name = 'lost' ORDER BY c.ordinal"
    )
    parts = db.sql(
        "SELECT p.part_id FROM mmdb.partition p WHERE p.role = 'train' ORDER BY p.ordinal"
    )
    for part in reversed(parts):
        db.sql(f"SELECT * FROM mmdb.train_hop({part['part_id']}, {candidate['candidate_id']}, 0)")
    (owner,) = db.connection.rows(_queries().find_database)
    node_cache.keep_only(owner["name"], candidate["candidate_id"], ())
    (merged,) = db.sql(f"SELECT * FROM mmdb.merge_epoch({candidate['candidate_id']}, 0)")
    (expected,) = db.sql(
        "SELECT m.state_out FROM mmdb.merge m JOIN mmdb.candidate c"
        " ON c.candidate_id = m.candidate_id JOIN mmdb.run r ON r.run_id = c.run_id"
        " WHERE r.name = 'model_average' AND c.ordinal = 0 AND m.epoch = 0"
    )
    assert merged["state_out"] == bytes(expected["state_out"]).hex()


def _queries() -> Any:
    from mmdb.db.queries import load

    return load("states")


@pytest.mark.parametrize("run", list(RUNS))
def test_weights_come_back_out_of_the_hops_alone(trained: dict[str, Database], run: str) -> None:
    """Saved without weights, with no checkpoint but those that clones began with."""
    db = trained["duckdb"]
    for candidate_id, expected in _last_weights(db, run).items():
        name = f"{run}-{candidate_id}"
        db.save_candidate(candidate_id, name, approach="provenance")
        db.sql(f"DELETE FROM mmdb.checkpoint WHERE candidate_id = {candidate_id} AND epoch >= 0")
        module = db.recover(name)
        found = module.state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[path], tensor) for path, tensor in expected.items())


def _last_weights(db: Database, run: str) -> dict[int, Mapping[str, torch.Tensor]]:
    """Return the weights of each candidate's best epoch, out of its checkpoint."""
    found: dict[int, Mapping[str, torch.Tensor]] = {}
    for row in db.sql(f"SELECT * FROM mmdb.leaderboard WHERE run = '{run}'"):
        candidate_id, epoch = row["candidate_id"], row["best_epoch"]
        for checkpoint in states.checkpoints(db.connection, candidate_id):
            if checkpoint["epoch"] == epoch:
                name = checkpoint["state_hash"].hex()
                found[candidate_id] = weights(_checkpoint(db, candidate_id, name))
    assert found
    return found


def test_a_partition_on_a_node_without_workers_ends_the_run_which_can_go_on(
    trained: dict[str, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = trained["duckdb"]
    run = db.create_run("placed", dataset="d", architecture=ARCHITECTURE, search=GRID)

    far = {1: frozenset({"far"})}

    def placed(connection: Connection, name: str) -> RunState:
        return replace(load_run(connection, name), placement=far)

    with monkeypatch.context() as patch:
        patch.setattr(job, "load_run", placed)
        patch.setattr(job, "find_places", lambda connection, part_ids: far)
        error = train_all(db, ["placed"])["placed"]
    assert isinstance(error, errors.PartitionUnreachable)
    assert "Partition 1" in error.message and "far" in error.message
    done = sum(map(len, chain(db, "placed").values()))
    assert 0 < done < 2 * 4  # the other partitions were visited
    assert run.train(workers=2).hops == 2 * 4 - done
