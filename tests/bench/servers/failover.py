"""Part `failover`: servers that die in the middle of a run, and followers that take their place."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from statistics import median
from time import monotonic, sleep
from typing import Any

import psycopg

from mmdb.api import Database, Run, connect
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.workload import BenchShare
from mmdb.errors import ConnectionLost
from tests.network.servers import Pair

WAYS = (
    signal.SIGKILL,
    signal.SIGQUIT,
    signal.SIGINT,
)  # a power cut, a stop at once, an orderly one
_HOPS = """
SELECT c.ordinal, h.epoch, h.part_id, h.loss, h.state_in, h.state_out, h.total_s
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
WHERE r.name = %s
ORDER BY c.ordinal, h.ordinal
"""
_Hops = list[tuple[Any, ...]]
#: Of a run that takes some seconds, so that a server dies in its middle.
_EPOCHS = 40


class Death(threading.Thread):
    """Ends the server of a pair in the middle of a run.

    Attributes:
        seen: the run's hops that it has shown before, which its follower had confirmed.
        promoted_at: when the follower took its place, in monotonic seconds.
    """

    def __init__(
        self,
        pair: Pair,
        run: str,
        after: int,
        *,
        lag_s: float = 0.0,
        how: signal.Signals = signal.SIGKILL,
    ) -> None:
        """Begin.

        Args:
            after: hops of the run.
            lag_s: seconds after that.
        """
        super().__init__(daemon=True)
        self._pair, self._run, self._after = pair, run, after
        self._lag_s, self._how = lag_s, how
        self.seen: _Hops = []
        self.promoted_at = 0.0
        self.start()

    def run(self) -> None:
        with psycopg.connect(self._pair.primary.url("shop"), autocommit=True) as session:
            while len(self.seen) < self._after:
                self.seen = session.execute(_HOPS, [self._run]).fetchall()
                sleep(0.01)
            sleep(self._lag_s)
            self.seen = session.execute(_HOPS, [self._run]).fetchall()
        self._pair.fail_over(self._how)
        self.promoted_at = monotonic()


def fill(db: Database) -> None:
    """Make a dataset for `create_run`."""
    db.sql(
        "CREATE TABLE points AS SELECT (i * 7 % 100)::real AS a, (i * 3 % 11)::real AS b,"
        " i % 3 AS y FROM generate_series(1, 2000) AS g (i)"
    )
    db.create_dataset("points", "SELECT * FROM points", partitions=2)


def create_run(db: Database, name: str, epochs: int = 4) -> Run:
    """Return a run, always the same but for its name and length."""
    search = {"space": {"lr": [0.1, 0.05]}}
    return db.create_run(
        name, dataset="points", architecture="mlp(hidden=[8])", search=search, epochs=epochs
    )


def hops(url: str, run: str) -> _Hops:
    """Return the hops of a run, with the seconds that each took as its last value."""
    with psycopg.connect(url, autocommit=True) as session:
        return session.execute(_HOPS, [run]).fetchall()


def bits(rows: _Hops) -> _Hops:
    """Return what two runs that are the same share."""
    return [row[:-1] for row in rows]


def bench_failover(share: BenchShare) -> Iterator[Figure]:
    """Promote a follower at random moments of runs, and compare them with an undisturbed one."""
    source, count = random.Random(0), share.of(10)
    others = lost = unfinished = repeated = 0
    late: list[float] = []
    with Pair() as pair:
        with connect(pair.url()) as db:
            fill(db)
            create_run(db, "undisturbed", _EPOCHS).train(workers=2)
        expected = bits(hops(pair.url(), "undisturbed"))
        for number in range(count):
            name, after = f"r{number}", source.randrange(len(expected) // 2)
            with connect(pair.url()) as db:
                run, how = create_run(db, name, _EPOCHS), WAYS[number % len(WAYS)]
                death = Death(pair, name, after, lag_s=source.random() * 0.2, how=how)
                try:
                    unfinished += run.train(workers=2).failed
                except ConnectionLost:  # the driver had not begun, or had ended
                    repeated += 1
                    death.join()
                    with connect(pair.url()) as again:
                        unfinished += again.run(name).train(workers=2).failed
                ended_at = monotonic()
                death.join()
            found = hops(pair.url(), name)
            others += bits(found) != expected
            lost += len(set(death.seen) - set(found))
            if len(death.seen) < len(expected):
                late.append(ended_at - death.promoted_at)
            pair.renew()
    yield Figure(f"runs of {count} in whose middle a follower was promoted", len(late), "")
    yield Figure("from a promotion to the end of the run", median(late), "s", runs=late)
    yield at_most("runs with other bits than the undisturbed one", [others], "", 0)
    yield at_most("hops that were confirmed, and lost", [lost], "", 0)
    yield at_most("candidates that were given up", [unfinished], "", 0)
    yield at_most("calls that had to be repeated", [repeated], "", 0)
