"""Runs that begin with a parent: alike on both engines, shown, broken off and replayed."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from time import sleep

import pytest
import torch
from torch import Tensor, nn

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.graph.factories import mlp
from mmdb.store import states
from mmdb.store.models.model_rows import find_model
from mmdb.train.compute.live import weights
from mmdb.train.drive.driver import ATTEND_S
from mmdb.train.warm.warm_options import lr_scale
from tests.cluster import Cluster
from tests.integration.test_lost_sessions import worker_processes
from tests.integration.test_same_bits import CLASSES, WIDTH
from tests.integration.test_strategies import train_all
from tests.points import at
from tests.warm_runs import GROWING, RUNS, chain, create, first_weights, held_out, hexed, warm
from tests.worker_process import WorkerCommand


@pytest.fixture(scope="module")
def trained(
    cluster: Cluster,
    duckdb_parent: Path,
    postgres_parent: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Database]]:
    """Yield a database on each engine with RUNS, one more like "deep", and two without a model."""
    folder = tmp_path_factory.mktemp("warm")
    shutil.copy(duckdb_parent, folder / "mmdb.duckdb")
    urls = {
        "duckdb": f"duckdb:///{folder / 'mmdb.duckdb'}",
        "postgres": cluster.create_database("mmdb_warm", postgres_parent),
    }
    found = {}
    for engine, url in urls.items():
        db = found[engine] = mmdb.connect(url)
        for name in RUNS:
            create(db, name, like=name)
        create(db, "cloned", like="deep")
        db.create_run("cold", dataset="d", seed=4, **RUNS["wide"])
        outcomes = train_all(db, [*RUNS, "cloned", "cold"])
        assert [type(one).__name__ for one in outcomes.values()] == ["Summary"] * 9
        db.save_candidate(db.run("wide").leaderboard()[0]["candidate_id"], "wide")
        db.create_run("growing", dataset="d", warm_start="auto", **GROWING).train(workers=1)
    yield found
    for db in found.values():
        db.close()
    cluster.drop_database("mmdb_warm")


def accuracy(module: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((module.eval()(x).argmax(1) == y).float().mean())


# -- bits ------------------------------------------------------------------------------


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
            assert hexed(row["state_hash"]) in starts[row["candidate"]]
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
            create(db, name, like=name)
            db.run(name).submit()
        with WorkerCommand(postgres_copy, "--slots", "2", "--once", "--mode", mode) as process:
            assert all(db.run(name).wait(timeout_s=300) for name in names), process.said
            assert process.ends() == 0, process.said
        assert db.sql("SELECT message FROM mmdb.assignment WHERE sqlstate IS NOT NULL") == []
        for name in names:
            assert chain(db, name) == chain(trained["postgres"], name)
            assert [row["parent"] for row in warm(db, name)] == ["parent@1"] * (
                1 + (name == "slower")
            )


# -- parents in the same run -----------------------------------------------------------


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
            assert hexed(row["parent_state"]) in left


# -- what is shown ---------------------------------------------------------------------


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


@pytest.mark.parametrize("run", ["group", "average"])
def test_steps_of_a_group_and_of_an_average_are_counted_once(
    trained: dict[str, Database], run: str
) -> None:
    for db in trained.values():
        epochs = db.sql(
            "SELECT p.objective, p.steps,"
            " sum(CAST(h.steps AS double precision) / coalesce(h.group_size, 1)) AS once"
            " FROM mmdb.candidate_progress AS p JOIN mmdb.hop_timeline AS h"
            " ON h.candidate_id = p.candidate_id AND h.epoch = p.epoch AND h.role = 'train'"
            f" WHERE p.run = '{run}' GROUP BY p.epoch, p.objective, p.steps ORDER BY p.epoch"
        )
        assert all((row["once"] < row["steps"]) == (run == "group") for row in epochs)
        (found,) = db.run(run).leaderboard()
        taken = accumulate(row["once"] for row in epochs)
        reached = [
            steps
            for steps, row in zip(taken, epochs, strict=True)
            if row["objective"] >= found["target"]
        ]
        assert reached and found["steps_to_target"] == reached[0]


def test_lineage_has_the_edge(trained: dict[str, Database]) -> None:
    for db in trained.values():
        parents = {
            model: {row["parent"] for row in db.lineage(model) if row["via"] == "warm start"}
            for model in ("wide", "parent", "growing")
        }
        assert parents["wide"] == {"model:parent@1"} and parents["parent"] == set()
        assert {parent.partition(":")[0] for parent in parents["growing"]} <= {"checkpoint"}
        below = [
            row["kind"]
            for row in db.lineage("parent", "down")
            if row["parent"].startswith("model:")
        ]
        assert below and set(below) == {"candidate"}
        rows = db.sql("SELECT warm_parent, coverage FROM mmdb.model_lineage WHERE model = 'wide'")
        assert {tuple(row.values()) for row in rows} == {("parent@1", 1.0)}


def test_taking_a_parent_is_a_hit(trained: dict[str, Database]) -> None:
    for db in trained.values():
        (row,) = db.sql("SELECT hits FROM mmdb.zoo WHERE model = 'parent'")
        transfers = db.sql("SELECT count(*) AS n FROM mmdb.transfer WHERE parent_id IS NOT NULL")
        assert row["hits"] >= len(RUNS) and row["hits"] <= transfers[0]["n"]


# -- broken off and replayed -----------------------------------------------------------


@pytest.mark.parametrize("run", list(RUNS))
def test_weights_come_back_out_of_the_hops_alone(trained: dict[str, Database], run: str) -> None:
    for db in trained.values():
        best = db.run(run).leaderboard()[0]
        candidate_id, epoch = best["candidate_id"], best["best_epoch"]
        expected = {}
        for checkpoint in states.checkpoints(db.connection, candidate_id):
            if checkpoint["epoch"] == epoch:
                name = hexed(checkpoint["state_hash"])
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


def test_a_run_that_was_broken_off_goes_on_with_the_same_bits(
    trained: dict[str, Database],
) -> None:
    for db in trained.values():
        create(db, "broken", like="slower")
        run = db.run("broken")
        with pytest.raises(errors.Cancelled):
            run.train(workers=1, watch=at(3, partial(cancel, db, "broken")))
        assert 0 < len(chain(db, "broken")) < len(chain(db, "slower"))
        before = warm(db, "broken")
        if db.connection.engine == "postgres":
            run.resume()
        run.train(workers=2)
        assert chain(db, "broken") == chain(db, "slower")
        after = {row["candidate_id"]: row["decided_at"] for row in warm(db, "broken")}
        assert all(after[row["candidate_id"]] == row["decided_at"] for row in before)


def cancel(db: Database, run: str) -> None:
    """Cancel a run in another session, and let its driver see it."""

    def work() -> None:
        with db.session() as second:
            second.run(run).cancel()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    sleep(2 * ATTEND_S)  # the driver looks at requests that often


def test_a_killed_worker_process_costs_no_hop_and_changes_no_bit(
    trained: dict[str, Database],
) -> None:
    db = trained["duckdb"]
    create(db, "killed", like="slower")
    killed = []

    def kill() -> None:
        for pid in worker_processes():
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    assert db.run("killed").train(workers=2, watch=at(1, kill)).failed == 0
    assert killed and chain(db, "killed") == chain(db, "slower")
    assert len(warm(db, "killed")) == 2


def test_a_killed_backend_costs_no_hop_and_changes_no_bit(trained: dict[str, Database]) -> None:
    db = trained["postgres"]
    create(db, "killed", like="slower")
    killed = []

    def kill() -> None:
        with db.session() as other:
            killed.extend(
                other.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name LIKE 'mmdb worker%'"
                )
            )

    assert db.run("killed").train(workers=2, watch=at(1, kill)).failed == 0
    assert killed and chain(db, "killed") == chain(db, "slower")
    assert len(warm(db, "killed")) == 2


def test_a_clone_has_the_parent_of_the_candidate_that_it_was_cloned_from(
    trained: dict[str, Database],
) -> None:
    for db in trained.values():
        run = db.run("cloned")
        clone = db.clone_candidate(run.leaderboard()[0]["candidate_id"], {"lr": 0.002})
        run.train(workers=1)
        rows = {row["candidate_id"]: row for row in run.leaderboard()}
        assert rows[clone]["parent"] == "parent@1"
        (row,) = [row for row in warm(db, "cloned") if row["candidate_id"] == clone]
        assert "cloned" in row["reason"] and row["state_hash"] is None
