"""Part `schedules` of experiment `living`: due statements, and workers and a server that die."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from signal import SIGKILL
from time import monotonic, sleep

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.workload import BenchShare
from mmdb.errors import MmdbError
from mmdb.train.drive.timetable import FIRST_PAUSE_S
from tests.bench.living.breaking import Breakable, breakable
from tests.worker_process import WorkerCommand

_WORKERS, _FAILING, _LONGEST_S = 2, 10, 600.0
#: Leave a row, some time before they end.
_STATEMENTS = {
    "postgres": "WITH a AS (INSERT INTO effect VALUES ({}) RETURNING 1)"
    " SELECT pg_sleep(0.3) FROM a",
    "duckdb": "INSERT INTO effect SELECT {} + 0 * max(sin(i)) FROM range(3000000) AS t (i)",
}
#: Is valid, and fails whenever it is run.
_FAILS = (
    "INSERT INTO effect SELECT CAST('no number' || CAST(count(*) AS text) AS integer) FROM effect"
)
_CHILD = """
import sys, mmdb
db = mmdb.connect(sys.argv[1])
print(1, flush=True)
while True:
    db.run_due()
"""


def bench_schedules(_: Database, share: BenchShare, prefix: str, engine: str) -> Iterator[Figure]:
    """Run each of 200 due statements once, whatever dies meanwhile."""
    count, kills, source = share.of(200, 6), share.of(5, 1), random.Random(0)
    with breakable(engine) as place:
        place.db.sql("CREATE TABLE effect (k bigint)")
        for k in range(_FAILING):
            place.db.schedule(f"fails-{k}", _FAILS, "1 day")
        for k in range(count):
            place.db.schedule(f"due-{k}", _STATEMENTS[engine].format(k), "1 day")
        at = sorted(source.sample(range(1, count), kills + 1))
        deaths = ["worker"] * kills
        deaths.insert(source.randrange(kills + 1), "server")
        started = monotonic()
        serve = _served if engine == "postgres" else _run_in_turn
        killed = serve(place, count, list(zip(at, deaths, strict=True)))
        took = monotonic() - started
        found = Counter(
            row["k"] for row in place.db.sql("SELECT CAST(k AS integer) AS k FROM effect")
        )
        wrong = sum(found[k] != 1 for k in range(count)) + sum(k >= count for k in found)
        hasty = _hasty(place.db, took, killed)
    yield Figure(f"{engine}: schedules, workers and servers killed", killed, "")
    yield Figure(f"{engine}: schedules, all of {count} statements", took, "s")
    yield at_most(f"{engine}: schedules, statements that ran not once", [wrong], "", 0)
    yield at_most(f"{engine}: schedules that fail, tried without pauses or never", [hasty], "", 0)


def _done(place: Breakable) -> int:
    done = "SELECT schedule FROM mmdb.schedule_history WHERE outcome = 'done'"
    return len(place.db.sql(done))


def _served(place: Breakable, count: int, deaths: list[tuple[int, str]]) -> int:
    """Let worker processes run all; return how often one, or the server, was killed."""
    until, left = monotonic() + _LONGEST_S, [*deaths]
    with ExitStack() as stack:
        workers: list[WorkerCommand] = []
        while monotonic() < until:
            workers = [one for one in workers if one.is_alive]
            while len(workers) < _WORKERS:  # as whatever supervises them does
                workers.append(stack.enter_context(WorkerCommand(place.url, "--slots", "1")))
            done = _done(place)
            if done == count and not left:
                break
            if left and done >= left[0][0]:
                _, what = left.pop(0)
                if what == "server":
                    place.restart()
                    place.reopen()
                else:
                    workers[0].signal(SIGKILL)
            sleep(0.05)
    return len(deaths) - len(left)


def _run_in_turn(place: Breakable, count: int, deaths: list[tuple[int, str]]) -> int:
    """Let processes run all, one after another, each until it is killed; return how many were."""
    killed, source = 0, random.Random(1)
    for _, what in deaths:
        if what == "worker":
            (child,) = place.start(_CHILD)
            sleep(0.2 + source.random() * 2)
            killed += place.interrupt(child, "process", source)
            place.reopen()
    until = monotonic() + _LONGEST_S
    while _done(place) < count and monotonic() < until:
        with suppress(MmdbError):
            place.db.run_due()
        sleep(0.05)
    return killed


def _hasty(db: Database, seconds: float, killed: int) -> int:
    """Return how many statements that fail were never tried, or more often than pauses allow."""
    rows = db.sql("SELECT tries FROM mmdb.schedule_history WHERE schedule LIKE 'fails-%'")
    most = 1 + int(math.log2(seconds / FIRST_PAUSE_S + 1)) + killed  # a death may cut a try off
    return _FAILING - len([row for row in rows if 1 <= row["tries"] <= most])
