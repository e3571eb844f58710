"""Hops on accelerators, on both engines: the bits of the CPU on a simulated one, else nearly them.

torch's own simulated accelerator, `openreg`, computes on the CPU behind a memory of its own, on two
devices with streams: what forgets to copy, to wait or to say where fails here as on a GPU.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch

from mmdb.api import Database
from mmdb.train.compute.device import accelerators
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.idle_children import IDLE
from mmdb.train.drive.worker import workers_of
from tests.integration.test_lost_sessions import worker_processes
from tests.integration.test_same_bits import fill, final_states
from tests.points import at

DEVICES = tuple(str(device) for device in accelerators()[:2])
SIMULATED = bool(DEVICES) and DEVICES[0].startswith("openreg")
pytestmark = [
    pytest.mark.skipif(not DEVICES, reason="torch sees no accelerator"),
    pytest.mark.parametrize("place", ["duckdb", "server", "client"], indirect=True, scope="module"),
]

#: Without batch normalisation: the simulated device does not write its running statistics.
ARCHITECTURE = "mlp(hidden=[16, 8])"
GRID = {"space": {"lr": [0.05, 0.01], "optimizer": "adam", "batch_size": 64}}
SGD = {"space": {"lr": [0.1, 0.03], "optimizer": [{"name": "sgd", "momentum": 0.9}]}}
SPACE = {"lr": {"low": 0.001, "high": 0.3, "log": True}, "batch_size": 64}
FROZEN = {"freeze_up_to": "2", "head": "linear"}
RUNS: dict[str, dict[str, Any]] = {
    "mop": {"search": GRID, "epochs": 2},
    "sgd": {"search": SGD, "epochs": 2},
    "clipped": {"search": {"space": {"lr": [0.05], "clip_norm": 0.5, "batch_size": 32}}},
    "weighed": {"search": {"space": {"lr": [0.05], "class_weights": "balanced"}}},
    "scheduled": {
        "search": {"space": {"lr": [0.05], "schedule": {"name": "step", "step_size": 1}}},
        "epochs": 2,
    },
    "summed": {"search": {"space": {"lr": [0.05], "accumulate": 2, "batch_size": 32}}},
    "task": {"search": GRID, "epochs": 2, "strategy": "task"},
    "model_average": {"search": GRID, "epochs": 2, "strategy": "model_average"},
    "stacked": {"search": GRID, "epochs": 2, "options": {"stack": 2}},
    "random": {"search": {"method": "random", "trials": 3, "space": SPACE}, "epochs": 2},
    "by_hop": {"search": GRID, "epochs": 2, "options": {"checkpoint": "hop"}},
    "data_parallel": {"search": SGD, "epochs": 2, "strategy": "data_parallel"},
    "asha": {"search": {"method": "asha", "trials": 4, "space": SPACE}, "epochs": 3},
    "pbt": {"search": {"method": "pbt", "population": 4, "space": SPACE}, "epochs": 2},
    "stored": {"search": GRID, "options": {**FROZEN, "features": {"choice": "stored"}}},
    "recomputed": {"search": GRID, "options": {**FROZEN, "features": {"choice": "recomputed"}}},
}


#: Searches in which what a candidate does depends on which one is done first.
BY_TURN = ("asha", "pbt")


@pytest.fixture(scope="module")
def db(empty: Database, place: str) -> tuple[Database, str]:
    """Return a database with the runs, for the CPU and for the devices; and where hops compute."""
    fill(empty)
    for device in ("cpu", "device"):
        for run, asked in RUNS.items():
            given: dict[str, Any] = {"epochs": 1, "seed": 3} | asked
            empty.create_run(f"{run}_{device}", dataset="d", architecture=ARCHITECTURE, **given)
    return empty, place


@pytest.fixture(scope="module")
def trained(db: tuple[Database, str]) -> Database:
    """Train all runs, those of the devices by a worker on each."""
    database, mode = db
    asked: dict[str, Any] = {} if mode == "duckdb" else {"mode": mode}
    for place, devices in (("cpu", ("cpu",)), ("device", DEVICES)):
        driver = Driver(database.connection)
        for worker in workers_of(database.connection, 2, devices=devices, **asked):
            driver.add_worker(worker)
        for run in RUNS:
            driver.add_run(f"{run}_{place}")
        driver.drive()
        assert not [found for found in driver.outcomes.values() if isinstance(found, Exception)]
        assert set(driver.outcomes) == {f"{run}_{place}" for run in RUNS}
    return database


@pytest.mark.parametrize("run", RUNS)
def test_a_run_comes_to_what_it_comes_to_on_the_cpu(trained: Database, run: str) -> None:
    like = "mop" if run == "stacked" else run  # nothing stacks on a device: each trains alone
    expected = final_states(trained, f"{like}_cpu")
    found = final_states(trained, f"{run}_device")
    assert len(expected) >= 1 and len(found) >= 1
    if SIMULATED and run not in BY_TURN:
        assert found == expected
    (row,) = trained.sql(
        "SELECT count(DISTINCT h.device) AS devices, count(*) AS hops FROM mmdb.hop AS h "
        "INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id "
        f"INNER JOIN mmdb.run AS r ON c.run_id = r.run_id WHERE r.name = '{run}_device' "
        "AND h.device <> 'cpu'"
    )
    assert row["hops"] > 0


def test_each_device_has_its_share_of_a_run(trained: Database) -> None:
    (row,) = trained.sql(
        "SELECT count(DISTINCT worker) AS workers FROM mmdb.hop_timeline WHERE run = 'mop_device'"
    )
    assert row["workers"] == 2


def test_a_lost_process_costs_its_hop_alone(db: tuple[Database, str], trained: Database) -> None:
    database, mode = db
    database.create_run("lost", dataset="d", architecture=ARCHITECTURE, seed=3, **RUNS["mop"])
    IDLE.close()  # so that what is killed is at work
    killed = []

    def kill() -> None:
        for pid in worker_processes():
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    driver = Driver(database.connection, watch=at(4, kill))
    asked: dict[str, Any] = {} if mode == "duckdb" else {"mode": mode}
    for worker in workers_of(database.connection, 2, devices=DEVICES, **asked):
        driver.add_worker(worker)
    driver.add_run("lost")
    driver.drive()
    assert type(driver.outcomes["lost"]).__name__ == "Summary"
    assert bool(killed) == (mode != "server")  # where sessions of the server compute
    if SIMULATED:
        assert final_states(database, "lost") == final_states(database, "mop_cpu")


def test_what_devices_trained_is_saved_and_predicts(trained: Database) -> None:
    (best,) = trained.run("mop_device").leaderboard()[:1]
    trained.save_candidate(best["candidate_id"], "from_devices")
    query = "SELECT row_number() OVER () AS id, * FROM points LIMIT 20"
    rows = trained.predict_query("from_devices", query, key="id")
    assert len(rows) == 20
    on_device = trained.recover("from_devices", device=DEVICES[0]).eval()
    x = torch.randn(20, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = on_device(x.to(DEVICES[0])).cpu()
        expected = trained.recover("from_devices").eval()(x)
    if SIMULATED:
        assert torch.equal(found, expected)
        on_cpu = trained.run("mop_cpu").leaderboard()[0]["candidate_id"]
        trained.save_candidate(on_cpu, "from_cpu")
        assert trained.predict_query("from_cpu", query, key="id") == rows
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
