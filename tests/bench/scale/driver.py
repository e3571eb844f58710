"""The real driver over workers that only wait: what a hop costs it, and how long they idle."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time, thread_time

from mmdb.api import Database
from mmdb.bench.figures import one_thread
from mmdb.bench.workload import bench_names
from mmdb.db.connection import Row
from mmdb.db.url import AnyConnection
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.job import RunJob
from mmdb.train.drive.run_state import RunState
from mmdb.train.hops.orders import Order
from mmdb.train.watch import Watch

#: Sigma of the lognormal factor of a hop's seconds.
NOISE = 0.05
#: A run in which nobody comes to its end: the window is over before.
EPOCHS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Nodes of one worker and one partition each, and how long they are watched."""

    candidates: int
    nodes: int
    hop_s: float
    window_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """What driving came to; processor time but for the gaps, and per hop where it says ms."""

    hops_per_s: float
    driver_ms: float  # of the driver's thread, its statements included
    process_ms: float  # of all threads
    busy: float  # mean share of the workers' time in hops, 0 to 1
    gap_ms: float  # real time from a hop's end to the same worker's next one
    longest_gap_ms: float
    snapshot_ms: float
    create_s: float
    take_up_s: float
    run_mb: float
    threads_mb: float


class _WindowOver(Exception):
    """The driver has been watched for long enough."""


class WaitingWorker:
    """A worker of a node that waits for as long as a hop takes, and says that it is done."""

    def __init__(self, number: int, hop_s: float) -> None:
        self.name, self.node, self.device = f"worker {number}", f"n{number}", "cpu"
        self._hop_s, self._source = hop_s, random.Random(number)
        self._closed = threading.Event()
        self._ended: float | None = None
        self.idle_s = self.longest_s = 0.0  # between two hops

    def open(self) -> None:
        """There is no session to open."""

    def do(self, order: Order) -> Sequence[Row]:
        """Wait; the row says what the driver reads of a hop's."""
        if self._ended is not None:
            idle_s = perf_counter() - self._ended
            self.idle_s += idle_s
            self.longest_s = max(self.longest_s, idle_s)
        if self._hop_s:
            self._closed.wait(self._hop_s * self._source.lognormvariate(0.0, NOISE))
        self._ended = perf_counter()
        return [{"objective": None, "state_bytes": 0}]

    def cancel(self) -> None:
        """End the wait."""
        self._closed.set()

    def close(self) -> None:
        """End the wait."""
        self._closed.set()


@dataclass(frozen=True, slots=True)
class _Meter:
    """What has been used until now."""

    at: float
    driver_s: float
    process_s: float
    hops: int
    idle_s: float


class _Scene:
    """One run, its workers, and the window in which the driver is watched."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.workers = [WaitingWorker(number, load.hop_s) for number in range(load.nodes)]
        self.hops: Callable[[], int] = lambda: 0
        self.begin: _Meter | None = None
        self.end: _Meter | None = None

    def on_wait(self) -> None:
        """Begin the window when every worker has had a hop, and end it in time."""
        if self.begin is None:
            if self.hops() >= self.load.nodes:
                self.begin = self._read()
                for worker in self.workers:
                    worker.longest_s = 0.0
        elif perf_counter() - self.begin.at > self.load.window_s:
            self.end = self._read()
            raise _WindowOver

    def _read(self) -> _Meter:
        idle_s = sum(worker.idle_s for worker in self.workers)
        return _Meter(perf_counter(), thread_time(), process_time(), self.hops(), idle_s)


class _PlacedDriver(Driver):
    """A driver that takes it that each partition lies on a node of its own.

    Attributes:
        take_up_s: seconds in which the run was read from the database.
    """

    take_up_s = 0.0

    def job_of(self, run: str) -> RunJob:
        """Return the run in the driver's hands."""
        return self._runs[run].job

    def add_run(self, name: str, workers: int | None = None) -> RunState:
        """Take a run up, and begin its schedule again with a placement."""
        began = perf_counter()
        super().add_run(name, workers)
        self.take_up_s = perf_counter() - began
        standing = self._runs[name]
        nodes = range(standing.job.run.workload.partitions)
        run = replace(standing.job.run, placement={k: frozenset({f"n{k}"}) for k in nodes})
        standing.job = RunJob(self._control, self._watch, run)
        return run


def measure_driver(db: Database, load: Load) -> Driven:
    """Drive a run of `load` on a database for its window."""
    with bench_names(db) as prefix, one_thread():
        began = perf_counter()
        _make_run(db, prefix, load)
        create_s = perf_counter() - began
        return _drive(db.connection, prefix, load, create_s)


def _drive(connection: AnyConnection, run: str, load: Load, create_s: float) -> Driven:
    scene, watch = _Scene(load), Watch()
    empty_mb = _resident_mb()
    driver = _PlacedDriver(connection, watch=watch, on_wait=scene.on_wait)
    driver.add_run(run, load.nodes)
    run_mb = _resident_mb()
    job = driver.job_of(run)
    scene.hops = lambda: job.hops
    for worker in scene.workers:
        driver.add_worker(worker)
    threads_mb = _resident_mb()
    try:
        driver.drive()
    except _WindowOver:
        pass
    begin, end = scene.begin, scene.end
    assert begin is not None and end is not None
    began = perf_counter()
    watch.snapshot(0.0)
    snapshot_s = perf_counter() - began
    hops, span_s = end.hops - begin.hops, end.at - begin.at
    idle_s = end.idle_s - begin.idle_s
    return Driven(
        hops_per_s=hops / span_s,
        driver_ms=(end.driver_s - begin.driver_s) / hops * 1e3,
        process_ms=(end.process_s - begin.process_s) / hops * 1e3,
        busy=1 - idle_s / span_s / load.nodes,
        gap_ms=idle_s / hops * 1e3,
        longest_gap_ms=max(worker.longest_s for worker in scene.workers) * 1e3,
        snapshot_ms=snapshot_s * 1e3,
        create_s=create_s,
        take_up_s=driver.take_up_s,
        run_mb=run_mb - empty_mb,
        threads_mb=threads_mb - run_mb,
    )


def _make_run(db: Database, name: str, load: Load) -> None:
    """Create a run of so many candidates over so many partitions of two rows."""
    rows = f"generate_series(1, {2 * load.nodes})"
    if db.connection.engine == "duckdb":
        rows = f"range({2 * load.nodes})"
    db.sql(f"CREATE TABLE {name} AS SELECT random()::real AS a, 1::real AS y FROM {rows}")
    db.create_dataset(name, f"SELECT * FROM {name}", partitions=load.nodes, validation=0)
    rates = [1 / (k + 2) for k in range(load.candidates)]
    search = {"space": {"lr": rates}}
    architecture = "mlp(hidden=[1])"
    db.create_run(
        name,
        dataset=name,
        architecture=architecture,
        search=search,
        epochs=EPOCHS,
        strategy="mop",
    )


def _resident_mb() -> float:
    """Return this process's memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
