"""Forty drawn runs on simulated devices, processes killed on the way: the bits of the CPU.

What the CPU draws or rounds otherwise, dropout and mixed precision, is compared with the same run
on devices that lost nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from mmdb.api import Database
from mmdb.train.drive.child_worker import ClientWorker, DuckWorker
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.worker import PoolWorker, workers_of
from mmdb.train.watch import Watch
from tests.accelerator.test_hops_on_devices import DEVICES, FROZEN, SIMULATED
from tests.integration.test_same_bits import fill, final_states

pytestmark = pytest.mark.skipif(not SIMULATED, reason="torch sees no simulated accelerator")

#: Where hops compute, by a run's number; sessions of a server are no processes of ours to kill.
PLACES = ["duckdb"] * 32 + ["client"] * 5 + ["server"] * 3
STRATEGIES = ("mop", "mop", "task", "model_average", "data_parallel")
#: What no strategy excludes.
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"clip_norm": 0.5},
    {"accumulate": 2},
    {"class_weights": "balanced"},
    {"schedule": {"name": "step", "step_size": 1}},
    {"amp": "float16"},
    {"amp": "bfloat16"},
)
OPTIMIZERS = ("adam", "adamw", {"name": "sgd", "momentum": 0.9})


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A run; whether its bits are those of the CPU; and the hop in which its process dies."""

    asked: dict[str, Any]
    is_as_on_cpu: bool
    dies_at: int | None


@cache
def drawn(number: int) -> Drawn:
    """Return the run of a number."""
    draw = random.Random(number)
    strategy, config = draw.choice(STRATEGIES), draw.choice(CONFIGS)
    space = config | {"optimizer": draw.choice(OPTIMIZERS), "batch_size": draw.choice((32, 64))}
    search: dict[str, Any] = {"space": space | {"lr": [0.05, 0.01]}}
    if draw.random() < 0.5:
        lr = {"low": 0.001, "high": 0.1, "log": True}
        search = {"method": "random", "trials": 2, "space": space | {"lr": lr}}
    options: dict[str, Any] = {"checkpoint": draw.choice(("epoch", "hop"))}
    if strategy == "mop":
        choice = draw.choice(("stored", "recomputed"))
        features = FROZEN | {"features": {"choice": choice}}
        options |= draw.choice(({}, {"stack": 2}, features))
    drops = 0.2 if draw.random() < 0.25 else 0.0
    asked = {
        "architecture": f"mlp(hidden=[16, 8], dropout={drops})",
        "search": search,
        "epochs": draw.choice((1, 2)),
        "seed": number,
        "strategy": strategy,
        "options": options,
    }
    dies = draw.randrange(1, 5) if draw.random() < 0.6 and PLACES[number] != "server" else None
    is_as_on_cpu = not drops and "amp" not in config
    return Drawn(asked=asked, is_as_on_cpu=is_as_on_cpu, dies_at=dies)


@pytest.fixture(scope="module")
def db(empty: Database, place: str) -> tuple[Database, str]:
    """Return a database with a dataset, and where hops compute."""
    fill(empty)
    return empty, place


class Killing(Watch):
    """Kills the process that begins a run's drawn hop."""

    def __init__(self, workers: Sequence[PoolWorker], dies_at: Mapping[str, int]) -> None:
        super().__init__()
        self._workers, self._dies_at = {worker.name: worker for worker in workers}, dies_at
        self._begun: Counter[str] = Counter()
        self.killed: set[str] = set()  # runs

    def hop_started(
        self, run: str, worker: str, candidate: int, epoch: int, part: int, at: float
    ) -> None:
        super().hop_started(run, worker, candidate, epoch, part, at)
        self._begun[run] += 1
        if self._begun[run] == self._dies_at.get(run):
            found = self._workers[worker]
            assert isinstance(found, DuckWorker | ClientWorker)
            found._kill()
            self.killed.add(run)


def train(
    db: tuple[Database, str],
    runs: Iterable[str],
    devices: Sequence[str],
    dies_at: Mapping[str, int],
) -> None:
    """Train runs to their end by two workers, of which some are killed on the way."""
    database, place = db
    asked: dict[str, Any] = {} if place == "duckdb" else {"mode": place}
    workers = workers_of(database.connection, 2, devices=tuple(devices), **asked)
    watch = Killing(workers, dies_at)
    driver = Driver(database.connection, watch=watch)
    for worker in workers:
        driver.add_worker(worker)
    for run in runs:
        driver.add_run(run)
    driver.drive()
    assert not [found for found in driver.outcomes.values() if isinstance(found, Exception)]
    assert set(driver.outcomes) == set(runs)
    assert watch.killed == set(dies_at)


@pytest.mark.parametrize("place", dict.fromkeys(PLACES), indirect=True)
def test_drawn_runs_come_to_the_same_bits_whatever_dies(db: tuple[Database, str]) -> None:
    database, place = db
    numbers = [number for number, where in enumerate(PLACES) if where == place]
    for number in numbers:
        found = drawn(number)
        database.create_run(f"device_{number}", dataset="d", **found.asked)
        found.asked["options"].pop("stack", None)  # no device stacks: each trains alone
        database.create_run(f"calm_{number}", dataset="d", **found.asked)
    for is_as_on_cpu, devices in ((True, ("cpu",)), (False, DEVICES)):
        calm = [f"calm_{n}" for n in numbers if drawn(n).is_as_on_cpu is is_as_on_cpu]
        train(db, calm, devices, {})
    dies_at = {f"device_{n}": at for n in numbers if (at := drawn(n).dies_at) is not None}
    train(db, [f"device_{n}" for n in numbers], DEVICES, dies_at)
    for number in numbers:
        expected = final_states(database, f"calm_{number}")
        assert len(expected) == 2
        assert final_states(database, f"device_{number}") == expected, drawn(number)
