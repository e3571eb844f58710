"""Hops done again where another device did them, or one like theirs: the same bits, or why not.

Mixed precision and running statistics come out otherwise on the simulated device than on the CPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.store import states
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.worker import workers_of
from tests.accelerator.test_hops_on_devices import DEVICES, FROZEN, GRID, SIMULATED
from tests.integration.test_same_bits import fill, final_states
from tests.points import at

pytestmark = pytest.mark.skipif(not SIMULATED, reason="torch sees no simulated accelerator")

PLAIN, OTHERWISE = "mlp(hidden=[16, 8])", "mlp(hidden=[16, 8], batch_norm=True)"
HALF = {"space": {"lr": [0.05], "amp": "bfloat16", "batch_size": 64}}
HEAD = {"freeze_up_to": "2", "head": "linear"}
LORA = {"name": "lora", "rank": 2}
RUNS: dict[str, dict[str, Any]] = {
    "half": {"search": HALF},
    "scaled": {"search": {"space": HALF["space"] | {"amp": "float16"}}},
    "dropped": {"architecture": "mlp(hidden=[16, 8], dropout=0.3)"},
    "normed": {"architecture": OTHERWISE},
    "stored": {"options": FROZEN | {"features": {"choice": "stored"}}},
    "recomputed": {"search": HALF, "options": FROZEN | {"features": {"choice": "recomputed"}}},
    "streamed": {"search": HALF, "options": HEAD | {"features": {"choice": "streamed"}}},
    "adapted": {"search": HALF, "options": {"freeze_up_to": "2", "adapter": LORA}},
    "data_parallel": {"search": HALF, "strategy": "data_parallel"},
    "model_average": {"search": HALF, "strategy": "model_average"},
}
KINDS = ("saved", "recipe")
QUERY = "SELECT row_number() OVER () AS id, * FROM points LIMIT 20"


def create(db: Database, name: str, **asked: Any) -> None:
    given: dict[str, Any] = {"architecture": PLAIN, "search": GRID, "epochs": 2, "seed": 3}
    db.create_run(name, dataset="d", **given | asked)


def train(db: Database, devices: tuple[str, ...], *runs: str, **how: Any) -> list[Any]:
    """Return what becomes of runs that a worker on each device trains."""
    driver = Driver(db.connection, **how)
    for worker in workers_of(db.connection, len(devices), devices=devices):
        driver.add_worker(worker)
    for run in runs:
        driver.add_run(run)
    driver.drive()
    return [driver.outcomes[run] for run in runs]


def keep(db: Database, run: str) -> None:
    """Save a run's best candidate as `{run}_saved` and as a recipe, `{run}_recipe`."""
    best = db.run(run).leaderboard()[0]["candidate_id"]
    db.save_candidate(best, f"{run}_saved", approach="snapshot")
    db.save_candidate(best, f"{run}_recipe", approach="provenance")
    states.prune_checkpoints(db.connection, best, set())


@pytest.mark.parametrize("place", ["duckdb", "server"], indirect=True, scope="module")
@pytest.mark.parametrize("devices", [DEVICES, ("cpu", "cpu")], ids=["device", "cpu"])
def test_a_recipe_is_followed_on_the_kind_of_device_that_made_it(
    empty: Database, devices: tuple[str, ...]
) -> None:
    if not empty.sql("SELECT 1 AS found FROM mmdb.dataset"):
        fill(empty)
    runs = {f"{name}_{devices[0][:3]}": asked for name, asked in RUNS.items()}
    for run, asked in runs.items():
        create(empty, run, **asked)
    assert not any(isinstance(found, Exception) for found in train(empty, devices, *runs))
    for run in runs:
        keep(empty, run)
        saved, made = (empty.recover(f"{run}_{kind}").state_dict() for kind in KINDS)
        assert saved.keys() == made.keys()
        for path, tensor in saved.items():
            assert torch.equal(made[path], tensor), (run, path)  # and on the CPU, as it is
        answers = [empty.predict_query(f"{run}_{kind}", QUERY, key="id") for kind in KINDS]
        assert answers[0] == answers[1], run


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a file with recipes that a device made, which nobody has open."""
    url = f"duckdb:///{tmp_path_factory.mktemp('replays')}/zoo.duckdb"
    with mmdb.connect(url) as db:
        fill(db)
        create(db, "same")
        create(db, "half", search=HALF)
        train(db, DEVICES, "same", "half")
        keep(db, "same")
        keep(db, "half")
    return url


FOLLOW = """
import sys, mmdb, torch
with mmdb.connect(sys.argv[1]) as db:
    made, saved = (db.recover(f"{sys.argv[2]}_{kind}").state_dict() for kind in ("recipe", "saved"))
    assert all(torch.equal(made[path], tensor) for path, tensor in saved.items())
"""


@pytest.mark.parametrize(("run", "is_same"), [("same", True), ("half", False)])
def test_a_recipe_is_followed_and_compared_where_no_such_device_is(
    zoo: str, run: str, is_same: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW, zoo, run],
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) is is_same, done.stderr
    assert "EnvironmentDiffers" in done.stderr
    if not is_same:
        (said,) = [line for line in done.stderr.splitlines() if "ReplayMismatch" in line]
        assert "did it on openreg:" in said and "; here it was done on cpu, torch" in said
        assert "HINT: The hop ran with another device" in done.stderr


class Stop(Exception):
    """Ends a driver in the middle of a run."""


def stop() -> None:
    raise Stop


@pytest.mark.parametrize("first", ["cpu", DEVICES[0] if DEVICES else ""])
def test_a_run_that_any_device_may_go_on_with_repeats_the_hops_of_another(
    first: str, tmp_path: Path
) -> None:
    then = DEVICES[0] if first == "cpu" else "cpu"
    one = {"lr": [0.05], "batch_size": 64}
    spaces = {"same": one, "half": one | {"amp": "bfloat16"}}
    url = f"duckdb:///{tmp_path}/runs.duckdb"
    with mmdb.connect(url) as db:
        fill(db)
        for name, space in spaces.items():
            for how in ("exact", "any"):
                create(db, f"{name}_{how}", search={"space": space}, options={"environment": how})
        any_hop = {"environment": "any", "checkpoint": "hop"}
        create(db, "half_hop", search={"space": spaces["half"]}, options=any_hop)
        create(db, "undisturbed", search={"space": one})
        train(db, (first,), "undisturbed")
    for run in ("same_any", "half_any", "half_hop", "same_exact"):
        with mmdb.connect(url) as db, pytest.raises(Stop):
            train(db, (first,), run, watch=at(2, stop))
        with mmdb.connect(url) as db:  # the states between two epochs' ends are gone
            (found,) = train(db, (then,), run)
            if run == "same_any":
                assert final_states(db, run) == final_states(db, "undisturbed")
            elif run == "half_any":
                assert isinstance(found, errors.ReplayMismatch)
                assert f"It ran on {first}, torch" in found.message
                assert f"; now on {then}, torch" in found.message
            elif run == "same_exact":
                assert isinstance(found, errors.EnvironmentChanged)
            if isinstance(found, errors.MmdbError):
                (found,) = train(db, (first,), run)  # where it was begun, it goes on
            assert found.failed == 0
