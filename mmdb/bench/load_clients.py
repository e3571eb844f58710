"""Sessions whose requests begin at times drawn beforehand, whatever became of earlier ones."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection as Pipe
from typing import TYPE_CHECKING, Any

from mmdb.api import Database, connect
from mmdb.db.queries import load
from mmdb.errors import MmdbError

if TYPE_CHECKING:
    from torch import nn


#: Features of the model that is asked for predictions.
WIDTH, CLASSES = 64, 10
#: Requests of each session that are not counted: it loads torch, and the server plans statements.
WARM_REQUESTS = 10
#: Sessions that make their first request at once.
FIRST_AT_ONCE = 2
#: Error messages that a report shows.
SHOWN_ERRORS = 3

Ask = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Sessions of one kind."""

    kind: str  # of ASKS
    clients: int
    rate: float  # requests a second, of all of them
    seed: int = 0


@dataclass(slots=True, kw_only=True)
class Answers:
    """What became of requests; times in ms from when a request was to begin."""

    latencies_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)  # until it was sent
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedCrowd:
    """The sessions of many clients, connected and warm."""

    pids: list[int]  # of the server's processes
    first_ms: list[float]  # the first request of each session


def arrivals(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Yield the times, in s from the beginning, of a Poisson process: ascending, below `seconds`.

    Args:
        rate: times a second; 0 for none.
    """
    draw, at = random.Random(seed), 0.0
    while rate > 0 and (at := at + draw.expovariate(rate)) < seconds:
        yield at


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` of the values do not exceed; NaN of none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def request(ask: Ask, starts: Iterator[float], answers: Answers) -> None:
    """Ask once for each start, in s of `time.perf_counter`, and no sooner."""
    for start in starts:
        pause = start - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        sent = time.perf_counter()
        try:
            ask()
        except MmdbError as error:
            answers.errors.append(f"{type(error).__name__}: {error.message}")
            continue
        answers.latencies_ms.append((time.perf_counter() - start) * 1e3)
        answers.late_ms.append((sent - start) * 1e3)


def network() -> nn.Sequential:
    """Return a small network from WIDTH features to CLASSES classes."""
    from torch import nn

    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))


def predicts(db: Database, prefix: str, number: int) -> Ask:
    """Return what asks the served model for a row."""
    draw = random.Random(number)
    return lambda: db.predict(f"{prefix}-served", [draw.random() for _ in range(WIDTH)])


def reads(db: Database, prefix: str, number: int) -> Ask:
    """Return what asks for a view after the other, as a dashboard does."""
    hops, views = load("bench_hops"), load("bench_load")
    turn = count(number)
    mine: list[tuple[Any, dict[str, str]]] = [
        (hops.read_progress, {"prefix": f"{prefix}%"}),
        (hops.read_leaderboard, {"prefix": f"{prefix}%"}),
        (hops.read_timeline, {"prefix": f"{prefix}%"}),
        (hops.read_workers, {"prefix": f"{prefix}%"}),
        (views.read_models, {}),
        (views.read_datasets, {}),
    ]

    def ask() -> object:
        query, parameters = mine[next(turn) % len(mine)]
        return db.connection.rows(query, **parameters)

    return ask


def saves(db: Database, prefix: str, number: int) -> Ask:
    """Return what saves a network whose last layer has changed as a model's next version."""
    import torch  # not in the processes of those who ask otherwise

    torch.set_num_threads(1)
    module = network()
    name, parents = f"{prefix}-saved-{number}", list[str]()

    def ask() -> object:
        with torch.no_grad():
            list(module.parameters())[-1].add_(1.0)
        saved = db.save(name, module, parent=parents[-1] if parents else None)
        parents[:] = [f"{saved.name}@{saved.version}"]
        return saved

    return ask


ASKS: dict[str, Callable[[Database, str, int], Ask]] = {
    "predict": predicts,
    "read": reads,
    "save": saves,
}


def run_crowd(pipe: Pipe, url: str, prefix: str, crowd: Crowd) -> None:
    """Be a process of sessions: send `Ready`, receive seconds, send `Answers`; an error as text."""
    try:
        with ExitStack() as stack:
            dbs = [stack.enter_context(connect(url)) for _ in range(crowd.clients)]
            asks = [ASKS[crowd.kind](db, prefix, k) for k, db in enumerate(dbs)]
            pids = [db.connection.rows(load("bench_load").own_pid)[0]["pid"] for db in dbs]
            with ThreadPoolExecutor(FIRST_AT_ONCE) as pool:
                first_ms = list(pool.map(_warm, asks))
            pipe.send(ConnectedCrowd(pids=pids, first_ms=first_ms))
            pipe.send(_answers(asks, crowd, pipe.recv()))
    except MmdbError as error:
        pipe.send(f"{type(error).__name__}: {error.message}")


def _warm(ask: Ask) -> float:
    """Make a session's first requests; return how long the very first took, in ms."""
    started = time.perf_counter()
    ask()
    first_ms = (time.perf_counter() - started) * 1e3
    for _ in range(WARM_REQUESTS - 1):
        ask()
    return first_ms


def _answers(asks: Sequence[Ask], crowd: Crowd, seconds: float) -> Answers:
    """Let each session ask at its share of the rate; the threads sleep but for moments."""
    answers, begin = Answers(), time.perf_counter()
    threads = []
    for number, ask in enumerate(asks):
        seed = crowd.seed * 1_000_003 + number
        times = arrivals(crowd.rate / crowd.clients, seconds, seed)
        starts = (begin + at for at in times)
        thread = threading.Thread(target=request, args=(ask, starts, answers), daemon=True)
        threads.append(thread)
        thread.start()
    for thread in threads:
        thread.join()
    return answers
