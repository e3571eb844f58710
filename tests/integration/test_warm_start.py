"""Candidates that begin with a parent's tensors: alike on both engines, resumed and replayed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

import psycopg
import pytest
import torch
from torch import Tensor, nn

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.data.reader import read_partition
from mmdb.db.duck import DuckConnection
from mmdb.db.queries import Query, load
from mmdb.graph.factories import mlp
from mmdb.store import parents, states
from mmdb.store.models import find_model
from mmdb.store.parents import Candidate
from mmdb.train.compute.live import weights
from mmdb.train.driver.driver import ATTEND_S
from mmdb.train.warm import begin, outside
from mmdb.train.warm.options import lr_scale
from tests.cluster import Cluster
from tests.integration.test_lost_sessions import worker_processes
from tests.integration.test_same_bits import CLASSES, WIDTH, fill
from tests.integration.test_strategies import train_all
from tests.points import at
from tests.worker_process import WorkerCommand

ADAM = {"optimizer": "adam", "batch_size": 64}
GRID = {"space": {"lr": [0.05, 0.01], **ADAM}}
ONE = {"space": {"lr": 0.05, **ADAM}}
PARENT = "mlp(hidden=[16, 8], batch_norm=True)"
WIDE = "mlp(hidden=[24, 8], batch_norm=True)"
DEEP = "mlp(hidden=[16, 8, 8], batch_norm=True, dropout=0.1)"
SLOWER = {"warm_start": {"lr_epochs": 1}}
#: Runs that begin with the model `parent`.
RUNS: dict[str, dict[str, Any]] = {
    "wide": {"architecture": WIDE, "search": GRID, "epochs": 2},
    "slower": {"architecture": WIDE, "search": GRID, "epochs": 2, "options": SLOWER},
    "deep": {"architecture": DEEP, "search": ONE, "epochs": 1},
    "shrunk": {
        "architecture": WIDE,
        "search": ONE,
        "epochs": 1,
        "options": {"warm_start": {"shrink": 0.7}},
    },
    "task": {"architecture": WIDE, "search": GRID, "epochs": 2, "strategy": "task"},
    "average": {
        "architecture": WIDE,
        "search": ONE,
        "epochs": 2,
        "strategy": "model_average",
        "options": SLOWER,
    },
    "group": {
        "architecture": WIDE,
        "search": ONE,
        "epochs": 2,
        "strategy": "data_parallel",
        "options": SLOWER,
    },
}
_numbers = count(1)
#: Three candidates, one after the other where one worker trains them.
GROWING: dict[str, Any] = {
    "architecture": "mlp(batch_norm=True)",
    "search": {"space": {"architecture.hidden": [[8], [12], [16]], "lr": 0.05, **ADAM}},
    "epochs": 2,
    "strategy": "task",
    "options": {"warm_start": {"within_run": True, "threshold": 0.5}},
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMDB_CACHE_DIR", str(tmp_path / "cache"))


def add_parent(db: Database) -> None:
    """Make dataset `d`, and train the model `parent` on it."""
    fill(db)
    run = db.create_run("parent", dataset="d", architecture=PARENT, search=ONE, epochs=3, seed=7)
    run.train(workers=1)


@pytest.fixture(scope="module")
def duckdb_parent(installed_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with dataset `d` and the model `parent`, to be copied."""
    path = tmp_path_factory.mktemp("parent") / "mmdb.duckdb"
    shutil.copy(installed_file, path)
    with mmdb.connect(f"duckdb:///{path}") as opened:
        add_parent(opened)
    return path


@pytest.fixture(scope="module")
def postgres_parent(cluster: Cluster, template: str) -> Iterator[str]:
    """Return the name of a database likewise."""
    name = "mmdb_warm_parent"
    with mmdb.connect(cluster.create_database(name, template)) as opened:
        add_parent(opened)
    yield name
    cluster.drop_database(name)


@pytest.fixture
def duckdb_copy(duckdb_parent: Path, tmp_path: Path) -> str:
    """Return the URL of a fresh file with dataset `d` and the model `parent`."""
    shutil.copy(duckdb_parent, tmp_path / "mmdb.duckdb")
    return f"duckdb:///{tmp_path / 'mmdb.duckdb'}"


@pytest.fixture
def postgres_copy(cluster: Cluster, postgres_parent: str) -> Iterator[str]:
    """Return the URL of a fresh database likewise."""
    name = f"mmdb_warm_{next(_numbers)}"
    yield cluster.create_database(name, postgres_parent)
    cluster.drop_database(name)


@pytest.fixture(params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Yield a database with dataset `d` and the model `parent`, once on each engine."""
    with mmdb.connect(str(request.getfixturevalue(f"{request.param}_copy"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def trained(
    cluster: Cluster, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Database]]:
    """Return a database on each engine with every run of RUNS, one within itself and a cold one."""
    folder = tmp_path_factory.mktemp("warm")
    urls = {
        "duckdb": f"duckdb:///{folder / 'mmdb.duckdb'}",
        "postgres": cluster.create_database("mmdb_warm", template),
    }
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMDB_CACHE_DIR", str(folder / "cache"))
        for engine, url in urls.items():
            db = found[engine] = mmdb.connect(url)
            add_parent(db)
            for name, asked in RUNS.items():
                db.create_run(name, dataset="d", warm_start="parent", seed=3, **asked)
            db.create_run("cold", dataset="d", seed=4, **RUNS["wide"])
            outcomes = train_all(db, [*RUNS, "cold"])
            assert [type(one).__name__ for one in outcomes.values()] == ["Summary"] * 8
            db.save_candidate(db.run("wide").leaderboard()[0]["candidate_id"], "wide")
            run = db.create_run("growing", dataset="d", warm_start="auto", **GROWING)
            run.train(workers=1)
    yield found
    for db in found.values():
        db.close()
    cluster.drop_database("mmdb_warm")


def chain(db: Database, run: str) -> list[tuple[int, int, str, str, str]]:
    """Return candidate, epoch, role and the states around each hop of a run, in order."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, p.role, h.state_in, h.state_out"
        " FROM mmdb.hop AS h JOIN mmdb.candidate AS c ON c.candidate_id = h.candidate_id"
        " JOIN mmdb.partition AS p ON p.part_id = h.part_id JOIN mmdb.run AS r"
        f" ON r.run_id = c.run_id WHERE r.name = '{run}' ORDER BY c.ordinal, h.ordinal"
    )
    return [
        (r["candidate"], r["epoch"], r["role"], _hex(r["state_in"]), _hex(r["state_out"]))
        for r in rows
    ]


def _hex(state: Any) -> str:
    return bytes(state).hex()


def warm(db: Database, run: str) -> list[Mapping[str, Any]]:
    """Return what the candidates of a run began with, in order."""
    return db.sql(
        "SELECT w.*, s.state_hash FROM mmdb.warm_start_overview AS w JOIN mmdb.warm_start AS s"
        f" ON s.candidate_id = w.candidate_id WHERE w.run = '{run}' ORDER BY w.candidate"
    )


def first_weights(db: Database, row: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights that a candidate began with, out of its checkpoint."""
    for checkpoint in states.checkpoints(db.connection, row["candidate_id"]):
        if bytes(checkpoint["state_hash"]) == bytes(row["state_hash"]):
            place = (checkpoint["part_id"], row["candidate_id"], _hex(row["state_hash"]))
            state = states.read_checkpoint(db.connection, *place)
            assert state is not None and checkpoint["epoch"] == -1
            return weights(state)
    raise AssertionError("its first state is gone")


def held_out(db: Database) -> tuple[Tensor, Tensor]:
    """Return the rows of dataset `d` that candidates are validated on."""
    (row,) = db.sql("SELECT part_id, content_hash FROM mmdb.partition WHERE role = 'validation'")
    x, y = read_partition(db.connection, row["part_id"], bytes(row["content_hash"])).plain
    return torch.from_numpy(x), torch.from_numpy(y)


def accuracy(module: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((module.eval()(x).argmax(1) == y).float().mean())


# -- bits --------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["parent", *RUNS, "growing", "cold"])
def test_both_engines_give_the_same_bits(trained: dict[str, Database], run: str) -> None:
    duck, postgres = (chain(db, run) for db in trained.values())
    assert duck and duck == postgres


@pytest.mark.parametrize("run", list(RUNS))
def test_every_candidate_begins_with_the_state_that_was_made_for_it(
    trained: dict[str, Database], run: str
) -> None:
    for db in trained.values():
        rows = warm(db, run)
        starts: dict[int, set[str]] = {}
        for candidate, epoch, role, state_in, _ in chain(db, run):
            if epoch == 0 and role == "train":
                starts.setdefault(candidate, set()).add(state_in)
        averages = run == "average"
        for row in rows:
            assert row["parent"] == "parent@1"
            assert _hex(row["state_hash"]) in starts[row["candidate"]]
            assert not averages or len(starts[row["candidate"]]) == 1
        assert len(rows) == len(starts)


def test_a_wider_child_knows_what_its_parent_knew_before_its_first_step(
    trained: dict[str, Database],
) -> None:
    for db in trained.values():
        x, y = held_out(db)
        parent = db.recover("parent")
        for row in warm(db, "wide"):
            child = mlp((WIDTH,), CLASSES, hidden=[24, 8], batch_norm=True)
            child.load_state_dict(first_weights(db, row))
            assert accuracy(child, x, y) == accuracy(parent, x, y) > 0.8
            assert torch.allclose(child(x), parent(x), atol=1e-5)
            assert row["coverage"] == 1 and "computes what the parent does" in row["reason"]


def test_where_each_tensor_came_from_is_a_row(trained: dict[str, Database]) -> None:
    expected = mlp((WIDTH,), CLASSES, hidden=[24, 8], batch_norm=True).state_dict()
    for db in trained.values():
        (row, *_) = warm(db, "wide")
        found = db.sql(
            "SELECT path, parent_path, operator, fraction FROM mmdb.transfer_tensor"
            f" WHERE transfer_id = {row['transfer_id']} ORDER BY ordinal"
        )
        assert [one["path"] for one in found] == list(expected)
        by_path = {one["path"]: one for one in found}
        assert (by_path["1.weight"]["operator"], by_path["7.weight"]["operator"]) == (
            "widen",
            "copy",
        )
        assert all(one["parent_path"] and one["fraction"] == 1 for one in found)


def test_shrinking_keeps_a_part_of_the_parent(trained: dict[str, Database]) -> None:
    for db in trained.values():
        (plain, *_), (shrunk,) = warm(db, "wide"), warm(db, "shrunk")
        assert "shrunk to 0.7" in shrunk["reason"]
        # Both have one seed, so one initialisation: own = (shrunk - 0.7 plain) / 0.3.
        one, other = first_weights(db, plain), first_weights(db, shrunk)
        own = (other["1.weight"] - 0.7 * one["1.weight"]) / 0.3
        bound = WIDTH**-0.5  # of torch's initialisation
        assert float(own.abs().max()) <= bound * 1.01
        assert float(own.std()) == pytest.approx(bound / 3**0.5, rel=0.15)


def test_the_first_epochs_learn_at_a_lower_rate(trained: dict[str, Database]) -> None:
    for db in trained.values():
        plain, slower = chain(db, "wide"), chain(db, "slower")
        firsts = [next(hop for hop in hops if hop[0] == 0) for hops in (plain, slower)]
        assert firsts[0][3] == firsts[1][3] and firsts[0][4] != firsts[1][4]
        for row in warm(db, "slower"):
            assert (row["lr_scale"], row["lr_epochs"]) == (lr_scale(row["coverage"]), 1)
        assert {(row["lr_scale"], row["lr_epochs"]) for row in warm(db, "wide")} == {(1.0, 0)}


@pytest.mark.parametrize("mode", ["server", "client"])
def test_worker_processes_give_the_same_bits(
    trained: dict[str, Database], postgres_copy: str, mode: str
) -> None:
    names = ["slower", "average", "group"]
    with mmdb.connect(postgres_copy) as db:
        for name in names:
            db.create_run(name, dataset="d", warm_start="parent", seed=3, **RUNS[name]).submit()
        with WorkerCommand(postgres_copy, "--slots", "2", "--once", "--mode", mode) as process:
            assert all(db.run(name).wait(timeout_s=300) for name in names), process.said
            assert process.ends() == 0, process.said
        assert db.sql("SELECT message FROM mmdb.assignment WHERE sqlstate IS NOT NULL") == []
        for name in names:
            assert chain(db, name) == chain(trained["postgres"], name)
            assert [row["parent"] for row in warm(db, name)] == ["parent@1"] * (
                1 + (name == "slower")
            )


# -- parents in the same run ---------------------------------------------------------------


def test_candidates_that_have_ended_are_parents_of_later_ones(
    trained: dict[str, Database],
) -> None:
    for db in trained.values():
        rows = db.sql(
            "SELECT c.ordinal, t.parent_id, p.ordinal AS parent, t.parent_state, w.reason"
            " FROM mmdb.warm_start AS w JOIN mmdb.candidate AS c"
            " ON c.candidate_id = w.candidate_id JOIN mmdb.run AS r ON r.run_id = c.run_id"
            " LEFT JOIN mmdb.transfer AS t ON t.transfer_id = w.transfer_id"
            " LEFT JOIN mmdb.candidate AS p ON p.candidate_id = t.parent_candidate_id"
            " WHERE r.name = 'growing' ORDER BY c.ordinal"
        )
        assert [row["parent"] for row in rows][1:] == [0, 1]
        for row in rows[1:]:
            assert row["parent_id"] is None and "of the run" in row["reason"]
            left = {state for c, *_, state in chain(db, "growing") if c == row["parent"]}
            assert _hex(row["parent_state"]) in left


def test_a_candidate_is_no_parent_of_one_that_began_before_it_ended(db: Database) -> None:
    asked = {**GROWING, "strategy": "mop"}
    db.create_run("together", dataset="d", warm_start="auto", **asked).train(workers=1)
    rows = db.sql("SELECT parent FROM mmdb.warm_start_overview WHERE run = 'together'")
    assert not any((row["parent"] or "").startswith("candidate") for row in rows)


# -- what is shown ---------------------------------------------------------------------------


def test_the_leaderboard_shows_the_parent_and_the_steps_saved(
    trained: dict[str, Database],
) -> None:
    for db in trained.values():
        steps = db.sql(
            "SELECT run, candidate_id, epoch, steps, objective FROM mmdb.candidate_progress"
            " WHERE run IN ('cold', 'wide') ORDER BY run, candidate_id, epoch"
        )
        target = max(row["objective"] for row in steps if row["run"] == "cold")
        reached: dict[str, list[int]] = {"cold": [], "wide": []}
        taken: dict[int, int] = {}
        firsts: dict[int, int] = {}
        for row in steps:
            candidate = row["candidate_id"]
            taken[candidate] = taken.get(candidate, 0) + row["steps"]
            if row["objective"] >= target and candidate not in firsts:
                firsts[candidate] = taken[candidate]
                reached[row["run"]].append(taken[candidate])
        board = db.run("wide").leaderboard()
        for row in board:
            assert (row["parent"], row["coverage"]) == ("parent@1", 1.0)
            assert 0.5 < row["similarity"] < 1
            assert row["target"] == target
            assert row["cold_steps"] == min(reached["cold"])
            assert row["steps_to_target"] == firsts.get(row["candidate_id"])
            own = row["steps_to_target"]
            assert row["steps_saved"] == (None if own is None else row["cold_steps"] - own)
        cold = db.run("cold").leaderboard()
        assert all(row["parent"] is row["target"] is row["cold_steps"] is None for row in cold)
        nothing = [row["target"] for row in db.run("deep").leaderboard()]
        assert nothing == [None]  # no cold candidate has its architecture


def test_steps_of_a_group_and_of_an_average_are_counted_once(
    trained: dict[str, Database],
) -> None:
    for db in trained.values():
        one = db.sql(
            "SELECT sum(CAST(h.steps AS double precision) / coalesce(h.group_size, 1)) AS steps"
            " FROM mmdb.hop_timeline AS h WHERE h.run = 'group' AND h.role = 'train'"
        )
        rows = db.sql("SELECT steps_to_target FROM mmdb.warm_start_overview WHERE run = 'group'")
        assert rows[0]["steps_to_target"] is None or rows[0]["steps_to_target"] <= one[0]["steps"]


def test_lineage_has_the_edge(trained: dict[str, Database]) -> None:
    for db in trained.values():
        assert {row["warm_parent"] for row in db.lineage("wide")} == {"parent@1"}
        assert {row["warm_parent"] for row in db.lineage("parent")} == {None}
        (row, *_) = db.lineage("growing")
        assert row["warm_parent"] is None or row["warm_parent"].startswith("candidate ")
        assert {row["coverage"] for row in db.lineage("wide")} == {1.0}


def test_taking_a_parent_is_a_hit(trained: dict[str, Database]) -> None:
    for db in trained.values():
        (row,) = db.sql("SELECT hits FROM mmdb.zoo WHERE model = 'parent'")
        transfers = db.sql("SELECT count(*) AS n FROM mmdb.transfer WHERE parent_id IS NOT NULL")
        assert row["hits"] >= len(RUNS) and row["hits"] <= transfers[0]["n"]


# -- resumed and replayed --------------------------------------------------------------------


@pytest.mark.parametrize("run", list(RUNS))
def test_weights_come_back_out_of_the_hops_alone(trained: dict[str, Database], run: str) -> None:
    for db in trained.values():
        best = db.run(run).leaderboard()[0]
        candidate_id, epoch = best["candidate_id"], best["best_epoch"]
        expected = {}
        for checkpoint in states.checkpoints(db.connection, candidate_id):
            if checkpoint["epoch"] == epoch:
                name = _hex(checkpoint["state_hash"])
                place = (db.connection, checkpoint["part_id"], candidate_id, name)
                expected = weights(states.read_checkpoint(*place) or b"")
        name = f"{run}-again"
        db.save_candidate(candidate_id, name, approach="provenance")
        db.sql(f"DELETE FROM mmdb.checkpoint WHERE candidate_id = {candidate_id} AND epoch >= 0")
        found = db.recover(name).state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[path], tensor) for path, tensor in expected.items())


def test_a_recipe_goes_to_another_database_with_the_state_that_it_begins_with(
    trained: dict[str, Database], tmp_path: Path
) -> None:
    db = trained["postgres"]
    candidate_id = db.run("slower").leaderboard()[1]["candidate_id"]
    db.save_candidate(candidate_id, "sent", approach="provenance")
    url = f"duckdb:///{tmp_path / 'there.duckdb'}"
    db.push("sent", to=url, data=True)
    expected = db.recover("sent").state_dict()
    with mmdb.connect(url) as there:
        assert find_model(there.connection, "sent").manifest_id is None
        found = there.recover("sent").state_dict()
        (row,) = there.sql("SELECT * FROM mmdb.warm_start_overview")
    assert all(torch.equal(found[path], tensor) for path, tensor in expected.items())
    assert row["parent"] is None and "came from" in row["reason"] and row["lr_scale"] < 1


def test_a_run_that_was_broken_off_goes_on_with_the_same_bits(db: Database) -> None:
    for name in ("calm", "broken"):
        db.create_run(name, dataset="d", warm_start="parent", seed=3, **RUNS["slower"])
    db.run("calm").train(workers=2)
    run = db.run("broken")

    def cancel() -> None:
        thread = threading.Thread(target=run_cancel, daemon=True)
        thread.start()
        thread.join()
        sleep(2 * ATTEND_S)  # the driver looks at requests that often

    def run_cancel() -> None:
        with db.session() as second:
            second.run("broken").cancel()

    with pytest.raises(errors.Cancelled):
        run.train(workers=1, watch=at(3, cancel))
    assert 0 < len(chain(db, "broken")) < len(chain(db, "calm"))
    before = warm(db, "broken")
    if db.connection.engine == "postgres":
        run.resume()
    run.train(workers=2)
    assert chain(db, "broken") == chain(db, "calm")
    after = {row["candidate_id"]: row["decided_at"] for row in warm(db, "broken")}
    assert all(after[row["candidate_id"]] == row["decided_at"] for row in before)


def test_a_killed_worker_process_costs_no_hop_and_changes_no_bit(
    duckdb_copy: str,
) -> None:
    with mmdb.connect(duckdb_copy) as db:
        for name in ("calm", "killed"):
            db.create_run(name, dataset="d", warm_start="parent", seed=3, **RUNS["slower"])
        db.run("calm").train(workers=2)
        killed = []

        def kill() -> None:
            for pid in worker_processes():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        assert db.run("killed").train(workers=2, watch=at(1, kill)).failed == 0
        assert killed and chain(db, "killed") == chain(db, "calm")
        assert len(warm(db, "killed")) == 2


def test_a_killed_backend_costs_no_hop_and_changes_no_bit(postgres_copy: str) -> None:
    with mmdb.connect(postgres_copy) as db:
        for name in ("calm", "killed"):
            db.create_run(name, dataset="d", warm_start="parent", seed=3, **RUNS["slower"])
        db.run("calm").train(workers=2)

        def kill() -> None:
            with psycopg.connect(postgres_copy, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name LIKE 'mmdb worker%'"
                )

        assert db.run("killed").train(workers=2, watch=at(1, kill)).failed == 0
        assert chain(db, "killed") == chain(db, "calm")
        assert len(warm(db, "killed")) == 2


def test_a_clone_has_the_parent_of_the_candidate_that_it_was_cloned_from(db: Database) -> None:
    run = db.create_run("r", dataset="d", warm_start="parent", **RUNS["deep"])
    run.train(workers=1)
    clone = db.clone_candidate(run.leaderboard()[0]["candidate_id"], {"lr": 0.002})
    run.train(workers=1)
    rows = {row["candidate_id"]: row for row in run.leaderboard()}
    assert rows[clone]["parent"] == "parent@1"
    (row,) = [row for row in warm(db, "r") if row["candidate_id"] == clone]
    assert "cloned" in row["reason"] and row["state_hash"] is None


# -- parents that cannot be ------------------------------------------------------------------


def test_without_a_zoo_candidates_begin_fresh_and_the_reason_is_kept(
    database_url: str,
) -> None:
    with mmdb.connect(database_url) as db:
        fill(db)
        for name, how in (("cold", "off"), ("warm", "auto")):
            run = db.create_run(
                name, dataset="d", architecture=WIDE, search=ONE, epochs=1, warm_start=how
            )
            db.run(name).train(workers=1)
            if name == "cold":  # it is in the zoo now
                db.drop_model("cold")
        assert chain(db, "cold") == chain(db, "warm")
        (row,) = warm(db, "warm")
        assert row["parent"] is row["state_hash"] is None
        assert "No model" in row["reason"]
        assert run.leaderboard()[0]["similarity"] is None


def test_what_is_below_the_threshold_is_refused_and_said(db: Database) -> None:
    how = {"warm_start": {"threshold": 0.99}}
    db.create_run(
        "r", dataset="d", architecture=WIDE, search=ONE, warm_start="auto", options=how
    ).train(workers=1)
    (row,) = warm(db, "r")
    assert row["parent"] is None and "parent@1" in row["reason"] and "0.99" in row["reason"]


def test_a_run_without_a_warm_start_asks_the_database_nothing_more(
    duckdb_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("rows", "run"):
        ask = getattr(DuckConnection, name)

        def listen(self: Any, query: Query, /, *, ask: Any = ask, **parameters: object) -> Any:
            asked.append(query.meaning)
            return ask(self, query, **parameters)

        monkeypatch.setattr(DuckConnection, name, listen)
    meanings = {query.meaning for query in load("warm")}
    found = {}
    with mmdb.connect(duckdb_copy) as db:
        for how in ("off", "parent"):
            run = db.create_run(f"from-{how}", dataset="d", warm_start=how, **RUNS["task"])
            asked.clear()
            run.train(workers=1)
            found[how] = meanings & set(asked), asked.count(load("hops").find_candidate.meaning)
    assert found["parent"][0] and not found["off"][0]
    assert found["off"][1] <= 4  # once for each candidate, and to save the best one


def test_a_parent_with_numbers_that_are_none_is_refused(db: Database) -> None:
    module = db.recover("parent")
    with torch.no_grad():
        next(module.parameters())[0, 0] = float("nan")
    db.save("bad", module, architecture=PARENT, dataset="d", metrics={"accuracy": 1.0})
    db.create_run("auto", dataset="d", warm_start="auto", **RUNS["deep"]).train(workers=1)
    assert [row["parent"] for row in warm(db, "auto")] == ["parent@1"]
    db.create_run("named", dataset="d", warm_start="bad", **RUNS["deep"]).train(workers=1)
    (row,) = warm(db, "named")
    assert row["parent"] is None and "finite" in row["reason"]


def test_a_parent_that_was_named_must_exist_when_the_run_is_created(db: Database) -> None:
    for name in ("nothing", "parent@9", "parent@prod", ""):
        with pytest.raises(errors.ModelNotFound):
            db.create_run("r", dataset="d", architecture=WIDE, warm_start=name)
    with pytest.raises(errors.InvalidOption, match="treshold"):
        options = {"warm_start": {"treshold": 1}}
        db.create_run("r", dataset="d", architecture=WIDE, warm_start="auto", options=options)
    with pytest.raises(errors.InvalidOption, match="'off'"):
        options = {"warm_start": {}}
        db.create_run("r", dataset="d", architecture=WIDE, options=options)
    assert db.sql("SELECT count(*) AS n FROM mmdb.run WHERE name = 'r'")[0]["n"] == 0


def test_an_alias_means_the_version_that_it_is_at_now(db: Database) -> None:
    db.set_alias("parent", "prod", version=1)
    db.create_run("r", dataset="d", warm_start="parent@prod", **RUNS["deep"])
    (row,) = db.sql("SELECT warm_start FROM mmdb.run WHERE name = 'r'")
    assert row["warm_start"] == "parent@1"


def test_a_named_parent_that_is_dropped_before_the_first_hop_leaves_a_fresh_start(
    db: Database,
) -> None:
    db.create_run("r", dataset="d", warm_start="parent", **RUNS["deep"])
    db.drop_model("parent")
    assert db.run("r").train(workers=1).failed == 0
    (row,) = warm(db, "r")
    assert row["parent"] is None and "parent@1 has been dropped" in row["reason"]


def test_a_parent_that_is_dropped_while_it_is_chosen_gives_way_to_the_next_best(
    duckdb_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mmdb.connect(duckdb_copy) as db:
        db.save("twin", db.recover("parent"), architecture=PARENT, dataset="d")
        taken: list[str] = []

        def drop(connection: Any, chosen: Candidate) -> None:
            taken.append(chosen.model)
            if len(taken) == 1:
                raise errors.ModelNotFound(f"Model {chosen.model!r} has been dropped.")
            parents.take_parent(connection, chosen)

        monkeypatch.setattr(begin, "take_parent", drop)
        run = db.create_run("r", dataset="d", warm_start="auto", **RUNS["deep"])
        run.train(workers=1)
        (row,) = warm(db, "r")
        assert sorted(taken) == ["parent@1", "twin@1"]
        assert row["parent"] == taken[1] and f"{taken[0]!r} has been dropped" in row["reason"]


def test_a_parent_whose_factory_is_gone_still_gives_its_tensors_to_its_like(
    db: Database,
) -> None:
    db.register_factory("old", "mmdb.graph.factories:mlp")
    hidden = "(hidden=[16, 8], batch_norm=True)"
    db.create_run(
        "odd", dataset="d", architecture=f"old{hidden}", search=ONE, epochs=2, seed=1
    ).train(workers=1)
    db.sql("DELETE FROM mmdb.factory WHERE name = 'old'")
    for name, architecture in (("like", PARENT), ("unlike", WIDE)):
        db.create_run(
            name, dataset="d", architecture=architecture, search=ONE, warm_start="odd"
        ).train(workers=1)
    (like,), (unlike,) = warm(db, "like"), warm(db, "unlike")
    assert (like["parent"], like["coverage"]) == ("odd@1", 1.0)
    assert unlike["parent"] is None and "'old'" in unlike["reason"]
    own = first_weights(db, like)
    (checkpoint, *_) = db.sql(
        "SELECT candidate_id, best_epoch FROM mmdb.leaderboard WHERE run = 'odd'"
    )
    for row in states.checkpoints(db.connection, checkpoint["candidate_id"]):
        if row["epoch"] == checkpoint["best_epoch"]:
            place = (row["part_id"], checkpoint["candidate_id"], _hex(row["state_hash"]))
            its = weights(states.read_checkpoint(db.connection, *place) or b"")
            assert all(torch.equal(own[path], tensor) for path, tensor in its.items())


def test_a_parent_that_is_kept_as_a_recipe_is_made_again(db: Database) -> None:
    candidate_id = db.run("parent").leaderboard()[0]["candidate_id"]
    db.save_candidate(candidate_id, "recipe", approach="provenance")
    db.sql(f"DELETE FROM mmdb.checkpoint WHERE candidate_id = {candidate_id}")
    db.create_run("r", dataset="d", warm_start="recipe", **RUNS["deep"]).train(workers=1)
    db.create_run("same", dataset="d", warm_start="parent", **RUNS["deep"]).train(workers=1)
    (row,) = warm(db, "r")
    assert row["parent"] == "recipe@1"
    assert chain(db, "r") == chain(db, "same")


# -- by hand ---------------------------------------------------------------------------------


def test_what_a_candidate_begins_with_can_be_settled_before_it_is_trained(db: Database) -> None:
    run = db.create_run("r", dataset="d", warm_start="parent", **RUNS["deep"])
    (candidate,) = run.leaderboard()
    call = f"SELECT * FROM mmdb.begin_candidate({candidate['candidate_id']})"
    (first,), (again,) = db.sql(call), db.sql(call)
    assert dict(first) == dict(again)
    assert (first["parent"], first["coverage"] > 0.2) == ("parent@1", True)
    (row,) = warm(db, "r")
    assert first["state"] == _hex(row["state_hash"])
    run.train(workers=1)
    assert chain(db, "r")[0][3] == first["state"]
    assert len(db.sql("SELECT transfer_id FROM mmdb.transfer")) == 1


def test_a_candidate_of_a_run_without_a_warm_start_has_nothing_to_settle(db: Database) -> None:
    (candidate,) = db.run("parent").leaderboard()
    (row,) = db.sql(f"SELECT * FROM mmdb.begin_candidate({candidate['candidate_id']})")
    assert row["parent"] is row["state"] is None and "no warm start" in row["reason"]
    with pytest.raises(errors.CandidateNotFound):
        db.sql("SELECT * FROM mmdb.begin_candidate(12345)")


def test_a_beginning_that_is_rolled_back_is_settled_anew(db: Database) -> None:
    run = db.create_run("r", dataset="d", warm_start="parent", **RUNS["deep"])
    candidate_id = run.leaderboard()[0]["candidate_id"]
    if db.connection.engine == "postgres":  # DuckDB's functions have a session of their own
        with pytest.raises(ZeroDivisionError), db.connection.transaction():
            db.sql(f"SELECT * FROM mmdb.begin_candidate({candidate_id})")
            raise ZeroDivisionError
        assert warm(db, "r") == []
    parts = db.sql("SELECT part_id FROM mmdb.partition WHERE role = 'train' ORDER BY ordinal")
    done = 0
    for part in parts * len(parts):
        try:
            db.sql(f"SELECT * FROM mmdb.train_hop({part['part_id']}, {candidate_id}, 0)")
            done += 1
        except errors.OutOfTurn:
            continue
    assert done and len(warm(db, "r")) == 1
    assert chain(db, "r")[0][3] == _hex(warm(db, "r")[0]["state_hash"])


# -- in Python -------------------------------------------------------------------------------


def child(hidden: tuple[int, ...] = (24, 8)) -> nn.Module:
    torch.manual_seed(5)
    return mlp((WIDTH,), CLASSES, hidden=list(hidden), batch_norm=True)


def test_a_module_gets_the_tensors_of_the_best_parent_in_place(db: Database) -> None:
    module, parent = child(), db.recover("parent")
    places = {path: tensor.data_ptr() for path, tensor in module.state_dict().items()}
    found = db.warm_start(module, dataset="d", metric="accuracy")
    assert found.parent == "parent@1" and found.exact and found.coverage == 1
    assert [one.path for one in found.tensors] == list(module.state_dict())
    assert {path: t.data_ptr() for path, t in module.state_dict().items()} == places
    assert module.training
    x, _ = held_out(db)
    assert torch.allclose(module.eval()(x), parent(x), atol=1e-5)


def test_a_module_that_is_saved_has_its_parent_in_its_lineage(db: Database) -> None:
    module = child()
    found = db.warm_start(module, "parent")
    saved = db.save("own", module, architecture=WIDE, dataset="d", warm=found)
    assert {row["warm_parent"] for row in db.lineage("own")} == {"parent@1"}
    (row,) = db.sql(f"SELECT * FROM mmdb.transfer WHERE model_id = {saved.model_id}")
    assert row["candidate_id"] is None and row["coverage"] == found.coverage
    options = row["options"] if isinstance(row["options"], dict) else json.loads(row["options"])
    assert options["version"] == 1 and options["seed"] == 0
    tensors = db.sql(
        f"SELECT count(*) AS n FROM mmdb.transfer_tensor WHERE transfer_id = {row['transfer_id']}"
    )
    assert tensors[0]["n"] == len(found.tensors)
    db.drop_model("parent")
    assert {row["warm_parent"] for row in db.lineage("own")} == {"parent@1"}


def test_the_same_seed_gives_a_module_the_same_tensors(db: Database) -> None:
    found = []
    for seed in (1, 1, 2):
        module = child((40, 8))
        db.warm_start(module, "parent", seed=seed)
        found.append(module.state_dict())
    assert all(torch.equal(found[0][path], found[1][path]) for path in found[0])
    assert not all(torch.equal(found[0][path], found[2][path]) for path in found[0])


class Stubborn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("this forward is for nobody")


def test_where_nothing_fits_a_module_stays_as_it_is_and_it_is_said(db: Database) -> None:
    module = child()
    before = {path: tensor.clone() for path, tensor in module.state_dict().items()}
    found = db.warm_start(module, threshold=0.999)
    assert found.parent is None and "parent@1" in found.reason
    with pytest.raises(errors.ModelNotFound):
        db.warm_start(module, "nothing")
    with pytest.raises(errors.InvalidOption, match="shrink"):
        db.warm_start(module, shrink=2.0)
    with pytest.raises(errors.DatasetNotFound):
        db.warm_start(module, dataset="nothing")
    assert all(torch.equal(t, before[path]) for path, t in module.state_dict().items())
    db.save("cold", module, architecture=WIDE, dataset="d", warm=found)
    assert {row["warm_parent"] for row in db.lineage("cold")} == {None}
    assert db.sql("SELECT count(*) AS n FROM mmdb.transfer")[0]["n"] == 0


def test_a_module_that_cannot_be_followed_is_an_error(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(errors.ArchitectureError, match="this forward is for nobody"):
        db.warm_start(Stubborn(), "parent")
    with pytest.raises(errors.ModelNotFound):
        monkeypatch.setattr(outside, "MOST_TRIES", 0)
        db.warm_start(child(), "nothing")
