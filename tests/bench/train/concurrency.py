"""Experiment `concurrency`: three submitted runs at once, while four readers poll the views.

And how long a cancelled run goes on, cancelled in its first hop and later.

A worker process with two slots serves the runs, as `mmdb worker` does. Overhead is what a hop
takes beside its compute, as the mean over the hops: a quarter of them begins with a state of
another session, another quarter stores its state, and each of these takes twice as long as the
others, so that a median would stand at the edge between the kinds. Rounds of one run alone and of
three runs with readers take turns.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from statistics import mean
from typing import Self

from mmdb.api import Database, connect
from mmdb.bench.figures import Figure
from mmdb.bench.workload import BenchShare, bench_names, make_points, servers_of
from mmdb.db.connection import Row
from mmdb.db.queries import Queries, load
from mmdb.errors import EngineError

_Q = Queries(Path(__file__).with_name("bench_concurrency.sql"))
WIDTH, CLASSES, PARTITIONS, EPOCHS = 64, 10, 4, 4
ROWS = 80_000  # hops of about 0.2 s
SEARCH = {"space": {"lr": [0.01, 0.005, 0.002, 0.001], "batch_size": 64}}
SLOTS, RUNS, READERS, ROUNDS = 2, 3, 4, 5
PERIOD_S = 0.1
GROWTH_BAR = 0.10
#: Seconds from a run's first hop to the cancel, and for how long the run may go on.
CANCEL_AFTER_S, CANCEL_BAR_S = (0.0, 0.1, 0.3, 0.7), 1.0
START_S, TRAIN_S = 60.0, 600.0
VIEWS = ("read_progress", "read_leaderboard", "read_timeline", "read_workers")


def bench_concurrency(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Measure every PostgreSQL in one run; a DuckDB file belongs to one process."""
    for db in servers_of(databases):
        yield from measure(db, share)


def measure(db: Database, share: BenchShare) -> Iterator[Figure]:
    """Yield the overhead of hops of one run alone, of three with readers, and its growth."""
    url = db.connection.url
    with bench_names(db) as prefix:
        make_points(db, prefix, share.of(ROWS, 8_000), WIDTH, CLASSES)
        db.create_dataset(prefix, f"SELECT * FROM {prefix}", partitions=PARTITIONS)
        alone, crowded, polls = list[float](), list[float](), list[float]()
        with worker_process(url, prefix):
            _overhead_ms(db, prefix, "warm", 1)  # sessions load torch and map the partitions
            for k in range(share.of(ROUNDS)):
                alone.append(_overhead_ms(db, prefix, f"alone-{k}", 1))
                with Readers(url, f"{prefix}-crowded-{k}") as readers:
                    crowded.append(_overhead_ms(db, prefix, f"crowded-{k}", RUNS))
                polls.append(readers.per_second)
            after = share.first(CANCEL_AFTER_S)
            cancels = [_cancel_s(db, f"{prefix}-cancelled-{s}", prefix, s) for s in after]
    yield Figure(name="one run: mean overhead of a hop", value=mean(alone), unit="ms", runs=alone)
    name = f"{RUNS} runs and {READERS} readers: mean overhead of a hop"
    yield Figure(name=name, value=mean(crowded), unit="ms", runs=crowded)
    yield Figure(name="polls of the readers", value=min(polls), unit="1/s", runs=polls)
    growth = mean(crowded) / mean(alone) - 1
    yield Figure(
        name="growth of the overhead",
        value=growth,
        unit="",
        bar=f"<= {GROWTH_BAR:g}",
        holds=growth <= GROWTH_BAR,
        runs=[c / a - 1 for a, c in zip(alone, crowded, strict=True)],
    )
    yield Figure(
        name="a cancelled run goes on for",
        value=max(cancels),
        unit="s",
        bar=f"<= {CANCEL_BAR_S:g}",
        holds=max(cancels) <= CANCEL_BAR_S,
        runs=cancels,
    )


def _cancel_s(db: Database, name: str, dataset: str, after_s: float) -> float:
    """Submit a run, cancel it so many seconds after it began, and return how long it went on."""
    run = db.create_run(
        name, dataset=dataset, architecture="mlp(hidden=[1024])", search=SEARCH, epochs=EPOCHS
    )
    request = run.submit()["request_id"]

    def standing() -> Row:
        (row,) = db.connection.rows(_Q.read_cancel, request_id=request, prefix=name)
        return row

    _until(lambda: standing()["open_orders"] > 0)
    time.sleep(after_s)
    asked = time.monotonic()
    run.cancel()
    _until(lambda: standing()["outcomes"] > 0 and standing()["open_orders"] == 0)
    return time.monotonic() - asked


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not holds():
        if time.monotonic() > deadline:
            raise EngineError(f"A run neither starts nor ends within {START_S:g} s.")
        time.sleep(0.01)


def _overhead_ms(db: Database, prefix: str, name: str, runs: int) -> float:
    """Train runs at once, each submitted by a session of its own; return their hops' overhead."""
    with ExitStack() as stack:
        users = [stack.enter_context(connect(db.connection.url)) for _ in range(runs)]
        submitted = []
        for k, user in enumerate(users):
            run = user.create_run(
                f"{prefix}-{name}-{k}",
                dataset=prefix,
                architecture="mlp(hidden=[1024])",
                search=SEARCH,
                epochs=EPOCHS,
                strategy="mop",
            )
            submitted.append(run)
        for run in submitted:
            run.submit()
        for run in submitted:
            if not run.wait(TRAIN_S):
                raise EngineError(f"Run {run.name!r} was not trained within {TRAIN_S:g} s.")
    hops = db.connection.rows(load("bench_hops").timeline, prefix=f"{prefix}-{name}-%")
    overhead: float = mean(hop["overhead_s"] for hop in hops if hop["role"] == "train")
    return 1e3 * overhead


@contextmanager
def worker_process(url: str, name: str) -> Iterator[None]:
    """Run `mmdb worker` with SLOTS slots until the block ends; it begins when all are ready.

    Raises:
        EngineError: it ended, or does not get ready.
    """
    command = [sys.executable, "-m", "mmdb.cli", "worker", url, "--slots", str(SLOTS)]
    process = subprocess.Popen(
        [*command, "--name", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with connect(url) as db:
            deadline = time.monotonic() + START_S
            while len(db.connection.rows(_Q.ready_slots, process=name)) < SLOTS:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise EngineError("The worker process did not get ready.")
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


class Readers:
    """READERS sessions that each poll a view every PERIOD_S, one view after the other.

    Attributes:
        per_second: polls of all readers together, once the block has ended.
    """

    def __init__(self, url: str, prefix: str) -> None:
        self.per_second = 0.0
        self._url, self._prefix = url, prefix
        self._ended = threading.Event()
        self._counts = [0] * READERS
        self._threads = [
            threading.Thread(target=self._poll, args=(k,), daemon=True) for k in range(READERS)
        ]
        self._started = 0.0

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self.per_second = sum(self._counts) / (time.monotonic() - self._started)

    def _poll(self, number: int) -> None:
        queries = [getattr(load("bench_hops"), name) for name in VIEWS]
        turns = cycle(queries[number:] + queries[:number])
        with connect(self._url) as db:
            due = time.monotonic()
            while not self._ended.wait(max(0.0, due - time.monotonic())):
                db.connection.rows(next(turns), prefix=f"{self._prefix}%")
                self._counts[number] += 1
                due = max(due + PERIOD_S, time.monotonic())
