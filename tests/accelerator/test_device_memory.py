"""What does not fit into a device's memory: its candidate is told so, and the run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import mmdb
from mmdb.errors import DeviceFull
from mmdb.train.compute.device import CPU, DevicePartitions, device_of
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.worker import workers_of
from tests.accelerator.test_hops_on_devices import DEVICES
from tests.cluster import Cluster
from tests.integration.test_same_bits import fill

pytestmark = pytest.mark.skipif(not DEVICES, reason="torch sees no accelerator")

FROZEN = {"freeze_up_to": "0", "head": "linear"}
#: Of the two candidates one finds memory for 64 rows at once, and has batches of 128.
SEARCH = {"space": {"architecture.rows": [64, 4096], "batch_size": 128, "lr": 0.05}}
RUNS: dict[str, dict[str, Any]] = {
    "mop": {},
    "task": {"strategy": "task"},
    "model_average": {"strategy": "model_average"},
    "data_parallel": {"strategy": "data_parallel"},
    "stacked": {"options": {"stack": 2}},
    "stored": {"options": {**FROZEN, "features": {"choice": "stored"}}},
    "recomputed": {"options": {**FROZEN, "features": {"choice": "recomputed"}}},
}


@pytest.mark.parametrize("place", ["duckdb", "server"])
def test_a_candidate_that_does_not_fit_is_told_so_and_the_run_goes_on(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"duckdb:///{tmp_path}/mmdb.duckdb"
    if place != "duckdb":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_full", request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        fill(database)
        database.register_factory("crowded", "tests.broken:crowded")
        driver = Driver(database.connection)
        for worker in workers_of(database.connection, 2, devices=DEVICES):
            driver.add_worker(worker)
        for run, asked in RUNS.items():
            database.create_run(
                run, dataset="d", architecture="crowded", search=SEARCH, seed=3, **asked
            )
            driver.add_run(run)
        driver.drive()
        for run in RUNS:
            assert type(driver.outcomes[run]).__name__ == "Summary"
            rows = database.sql(
                "SELECT config, status, error FROM mmdb.leaderboard "
                f"WHERE run = '{run}' ORDER BY candidate_id"
            )
            assert [row["status"] for row in rows] == ["failed", "trained"]
            assert rows[0]["error"].startswith(f"{DeviceFull.__doc__} CUDA out of memory.")
    if place != "duckdb":
        cluster.drop_database("mmdb_full")


def test_rows_stay_on_the_cpu_where_candidates_have_taken_the_devices_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = device_of(DEVICES[0])
    kept = DevicePartitions(device)
    rows = torch.ones(8, 2), torch.ones(8)
    (x, _) = kept.place("first", rows)
    assert isinstance(x, torch.Tensor)
    assert x.device == device

    def full(*_: object, **__: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", full)
        (x, _) = kept.place("second", rows)
    assert isinstance(x, torch.Tensor)
    assert x.device == CPU
    (x, _) = kept.place("second", rows)
    assert isinstance(x, torch.Tensor)
    assert x.device == device
