"""`mmdb bench load`: predictors, readers and savers beside a run that is trained, for minutes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Self, TypeVar

from mmdb.api import Database, Run, connect
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.load_clients import (
    CLASSES,
    SHOWN_ERRORS,
    WIDTH,
    Answers,
    ConnectedCrowd,
    Crowd,
    network,
    percentile,
    run_crowd,
)
from mmdb.bench.workload import BenchShare, bench_names, make_points, servers_of
from mmdb.db.queries import load
from mmdb.errors import EngineError

#: Seconds in which every session is looked at once: one after the other, for a look at what a
#: process has mapped takes a millisecond or two, in which the process may have to wait.
ROUND_S = 10.0


def session_bytes(pid: int) -> int | None:
    """Return what a process holds, the server's shared memory apart; None where it cannot be read.

    It is the proportional set size: what processes share, such as torch's code, counts for each in
    part.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return 1024 * (int(kilobytes["Pss_Anon"]) + int(kilobytes["Pss_File"]))


class Memory:
    """Looks at processes of this machine, in turn, until the block ends.

    Attributes:
        first, last: bytes of each process at the first and at the last look.
    """

    def __init__(self, pids: Collection[int]) -> None:
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self._pids = list(pids)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        for pid in self._pids:
            self._look(pid)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def growth(self, pids: Collection[int]) -> float | None:
        """Return by which share the processes' bytes have grown; None where they were not seen."""
        first = sum(self.first.get(pid, 0) for pid in pids)
        return sum(self.last.get(pid, 0) for pid in pids) / first - 1 if first else None

    def megabytes(self, pids: Collection[int]) -> float:
        """Return what the processes held at the last look, in MB (10^6)."""
        return sum(self.last.get(pid, 0) for pid in pids) / 1e6

    def _watch(self) -> None:
        pause = ROUND_S / max(1, len(self._pids))
        while True:
            for pid in self._pids:
                if self._ended.wait(pause):
                    return
                self._look(pid)

    def _look(self, pid: int) -> None:
        found = session_bytes(pid)
        if found is not None:
            self.first.setdefault(pid, found)
            self.last[pid] = found


_Q = load("bench_load")
_T = TypeVar("_T")

ROWS = 20_000  # of a partition: hops of about 0.2 s
CONNECTS, TAIL_BAR, GROWTH_BAR = 1_000, 3.0, 0.05
START_S, POLL_S = 300.0, 0.2
LEAST_ROWS, LEAST_S = 4_000, 5.0  # so that the run lasts, and every kind of client asks


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(BenchShare):
    """A load of clients and workers on a database."""

    minutes: float = 5.0
    clients: int = 32  # that predict
    rate: float = 50.0  # predictions a second, of all of them
    readers: int = 4  # each asks for a view once a second
    savers: int = 2  # each saves a model every four seconds
    workers: int | None = None  # None: one for each processor; 0: nothing is trained
    connects: int = CONNECTS
    rows: int = ROWS  # of a partition
    through: str | None = None  # where clients connect, a pooler's URL; None: as all others

    @property
    def crowds(self) -> list[Crowd]:
        """The clients of each kind that there are any of."""
        of = {
            "predict": (self.clients, self.rate),
            "read": (self.readers, float(self.readers)),
            "save": (self.savers, self.savers / 4),
        }
        return [
            Crowd(kind=kind, clients=self.of(clients), rate=rate, seed=seed)
            for seed, (kind, (clients, rate)) in enumerate(of.items())
            if clients
        ]

    @property
    def requests_s(self) -> float:
        """Seconds in which requests are made."""
        return self.time(60 * self.minutes, LEAST_S)


def bench_load(databases: list[Database], share: Load) -> Iterator[Figure]:
    """Measure every PostgreSQL in one run; a DuckDB file belongs to one process."""
    for db in servers_of(databases):
        yield from measure(db, share)


def measure(db: Database, share: Load) -> Iterator[Figure]:
    """Yield what connects left behind, then the figures of each kind of client, and of training."""
    yield from connects(db, share.of(share.connects, 0))
    workers = share.of(os.cpu_count() or 1) if share.workers is None else share.workers
    with bench_names(db) as prefix, ExitStack() as stack:
        partitions = max(4, workers)
        make_points(db, prefix, share.of(share.rows, LEAST_ROWS) * partitions, WIDTH, CLASSES)
        db.create_dataset(prefix, f"SELECT * FROM {prefix}", partitions=partitions)
        db.save(f"{prefix}-served", network(), dataset=prefix)
        url = share.through or db.connection.url
        crowds = {c.kind: stack.enter_context(started(url, prefix, c)) for c in share.crowds}
        if workers:
            run = stack.enter_context(training(db, prefix, workers, share.requests_s))
        sessions = {row["pid"]: str(row["name"]) for row in db.connection.rows(_Q.sessions)}
        before, began = _hops(db, f"{prefix}-trained"), time.monotonic()
        with Memory(sessions) as memory:
            for pipe, _ in crowds.values():
                pipe.send(share.requests_s)
            answers = {kind: _received(pipe, Answers) for kind, (pipe, _) in crowds.items()}
        seconds = time.monotonic() - began
        if workers and run.poll() is not None:
            raise EngineError("The run that was to be trained meanwhile has ended.")
        done = _hops(db, f"{prefix}-trained") - before
    for kind, (_, ready) in crowds.items():
        yield from _figures(kind, answers[kind], ready, share.requests_s)
    pids = crowds["predict"][1].pids if "predict" in crowds else []
    training_pids = [pid for pid, name in sessions.items() if name.startswith("mmdb worker")]
    yield from _memory_figures(memory, pids, training_pids)
    if workers:
        yield Figure(f"train: hops of {workers} workers", done / seconds, "1/s")


def connects(db: Database, number: int) -> Iterator[Figure]:
    """Connect, ask and close, one after the other; yield what it takes, and the sessions left."""
    if not number:
        return
    before = {row["pid"] for row in db.connection.rows(_Q.sessions)}
    taken = []
    for _ in range(number):
        started = time.perf_counter()
        with connect(db.connection.url) as other:
            other.connection.rows(_Q.own_pid)
        taken.append((time.perf_counter() - started) * 1e3)
    deadline = time.monotonic() + 1  # the last one's process takes a moment to end
    while left := sum(row["pid"] not in before for row in db.connection.rows(_Q.sessions)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    name = f"{number:,} connects, one by one"
    yield Figure(f"{name}: p50", percentile(taken, 0.5), "ms")
    yield Figure(f"{name}: p99", percentile(taken, 0.99), "ms")
    yield at_most(f"{name}: sessions left", [left], "sessions", 0)


@contextmanager
def started(url: str, prefix: str, crowd: Crowd) -> Iterator[tuple[Pipe, ConnectedCrowd]]:
    """Yield a crowd's pipe when its sessions are warm; the process ends with the block."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run_crowd, args=(theirs, url, prefix, crowd), daemon=True)
    process.start()
    theirs.close()  # so that the pipe ends with the process
    try:
        yield ours, _received(ours, ConnectedCrowd)
    finally:
        process.join(5)
        if process.is_alive():
            process.terminate()
            process.join()


def _received(pipe: Pipe, expected: type[_T]) -> _T:
    """Return what a crowd sends.

    Raises:
        EngineError: its process ended, or sent an error.
    """
    try:
        found = pipe.recv()
    except EOFError as error:
        raise EngineError("A process of clients ended before it was done.") from error
    if not isinstance(found, expected):
        raise EngineError(f"A process of clients failed: {found}")
    return found


@contextmanager
def training(
    db: Database, prefix: str, workers: int, seconds: float
) -> Iterator[subprocess.Popen[str]]:
    """Train a run in a process of its own from the block's beginning to its end.

    The block begins when the workers have every candidate's first epoch behind them.
    """
    partitions = max(4, workers)
    candidates = 2 * workers
    run = db.create_run(
        f"{prefix}-trained",
        dataset=prefix,
        architecture="mlp(hidden=[1024])",
        search={"space": {"lr": [0.01 / (k + 1) for k in range(candidates)], "batch_size": 64}},
        epochs=100 + math.ceil(2 * seconds),  # an epoch of these hops takes longer than a second
        strategy="mop",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "mmdb.cli", "train", run.name, "--workers", str(workers), "--json"],
        env=os.environ | {"MMDB_URL": db.connection.url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_for_hops(db, run, process, candidates * (partitions + 1))
        yield process
    finally:
        if process.poll() is None:
            run.cancel()
        try:
            process.communicate(timeout=START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _wait_for_hops(db: Database, run: Run, process: subprocess.Popen[str], hops: int) -> None:
    deadline = time.monotonic() + START_S
    while _hops(db, run.name) < hops:
        if process.poll() is not None:
            said = process.stderr.read() if process.stderr else ""
            raise EngineError(f"The run that was to be trained meanwhile has ended. {said}")
        if time.monotonic() > deadline:
            raise EngineError(f"A run has not done {hops} hops within {START_S:g} s.")
        time.sleep(POLL_S)


def _hops(db: Database, run: str) -> int:
    return int(db.connection.rows(_Q.hops_done, run=run)[0]["hops"])


def _figures(
    kind: str, answers: Answers, ready: ConnectedCrowd, seconds: float
) -> Iterator[Figure]:
    """Yield what a kind of client got."""
    values = answers.latencies_ms
    who = f"{kind}, {len(ready.pids)} clients"
    yield Figure(f"{who}: requests", len(values) / seconds, "1/s")
    p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
    shown = {"p50": p50, "p95": percentile(values, 0.95), "p99": p99, "max": max(values, default=0)}
    for name, value in shown.items():
        yield Figure(f"{who}: {name}", value, "ms")
    late = percentile(answers.late_ms, 0.99)
    yield Figure(f"{who}: sent late, p99", late, "ms")
    for name, value in (("median", percentile(ready.first_ms, 0.5)), ("max", max(ready.first_ms))):
        yield Figure(f"{who}: a session's first request, {name}", value, "ms")
    said = f" ({'; '.join(sorted(set(answers.errors))[:SHOWN_ERRORS])})" if answers.errors else ""
    yield at_most(f"{who}: errors{said}", [len(answers.errors)], "requests", 0)
    if kind == "predict":
        yield at_most(f"{who}: p99 / p50", [p99 / p50], "", TAIL_BAR)


def _memory_figures(
    memory: Memory, predicting: Sequence[int], workers: Sequence[int]
) -> Iterator[Figure]:
    kinds = {
        "sessions that predict": predicting,
        "all sessions": list(memory.last),
        "workers": workers,
    }
    for name, pids in kinds.items():
        growth = memory.growth(pids)
        if growth is None:
            missing = f"memory of {name}: not measured, they are none of this machine or another's"
            yield Figure(missing, math.nan, "")
            continue
        yield Figure(f"memory of {name}", memory.megabytes(pids), "MB")
        if name == "workers":
            yield Figure(f"growth of the memory of {name}", growth, "")
        else:
            yield at_most(f"growth of the memory of {name}", [growth], "", GROWTH_BAR)
