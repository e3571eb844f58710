"""Where things are measured: this process, processes of its own, or sessions of a server.

A process is told an order as a line of JSON and answers with one; nothing is pickled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from mmdb.db.connection import Connection
from mmdb.errors import Cancelled, MmdbError, WorkerLost, from_sqlstate
from mmdb.plan.profile.measures.orders import Order, order_of, perform
from mmdb.plan.profile.row import Row, row_of
from mmdb.train.hops.device_worker import warm_up
from mmdb.train.values.runtime import end, keep_freed_memory


class Place(Protocol):
    """A session that measures one thing at a time. `cancel` may be called from any thread."""

    @property
    def may_wait(self) -> bool:
        """Whether `measure` may be called in a thread of its own, while the caller's waits."""

    @property
    def is_fresh(self) -> bool:
        """Whether its process has done nothing but load what a worker's loads."""

    def measure(self, order: Order) -> list[Row]:
        """Measure.

        Raises:
            Cancelled, WorkerLost, MmdbError
        """

    def cancel(self) -> None:
        """Break off what is measured, if anything; the place may be of no use afterwards."""

    def close(self) -> None:
        """End the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where a calibration measures."""

    places: Sequence[Place]  # that compute as workers would
    database: Place  # that measures what needs the database
    on_wait: Callable[[], None]
    lacking: str = ""  # why there are not several places, where there could be


class Here:
    """This process, with its database."""

    is_fresh = False

    def __init__(self, connection: Connection | None = None) -> None:
        """Load what measuring needs."""
        warm_up()
        self._connection = connection
        #: Inside PostgreSQL the session is the main thread's, whose queries serve interrupts.
        self.may_wait = connection is None
        self._is_cancelled = False

    def measure(self, order: Order) -> list[Row]:
        """Measure in the thread that calls."""
        return perform(order, self._connection, lambda: self._is_cancelled)

    def cancel(self) -> None:
        """Let the measuring end after the measurement under way."""
        self._is_cancelled = True

    def close(self) -> None:
        """Nothing is kept."""


class Process:
    """A process that computes as a worker's does, and opens no database."""

    may_wait = is_fresh = True

    def __init__(self) -> None:
        """Start it; torch is loaded when it is first asked."""
        paths = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mmdb.plan.profile.places"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # a Ctrl-C is for the owner, which then ends it
        )
        self._is_cancelled = False

    def wait(self) -> None:
        """Wait until torch is loaded.

        Raises:
            WorkerLost
        """
        self._line()

    def measure(self, order: Order) -> list[Row]:
        """Let the process measure."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(order.to_json()) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._lost() from error
        answer = self._line()
        if isinstance(answer, dict):
            known = from_sqlstate(answer["sqlstate"], answer["message"], answer["hint"])
            assert known is not None
            raise known
        return [row_of(row) for row in answer]

    def cancel(self) -> None:
        """End the process."""
        self._is_cancelled = True
        self._process.kill()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        end(self._process)

    def _line(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise self._lost()
        return json.loads(line)

    def _lost(self) -> MmdbError:
        if self._is_cancelled:
            return Cancelled("The calibration was cancelled.")
        return WorkerLost(f"Process {self._process.pid} ended while it measured.")


@contextmanager
def processes(count: int) -> Iterator[list[Process]]:
    """Yield processes that have loaded torch; they end with the block.

    Raises:
        WorkerLost
    """
    with ExitStack() as stack:
        found = [stack.enter_context(closing(Process())) for _ in range(count)]
        for process in found:
            process.wait()
        yield found


def main() -> None:
    """Serve orders until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    keep_freed_memory()  # as workers do
    warm_up()  # else the first thing measured pays for it
    print("[]", file=out, flush=True)
    for line in sys.stdin:
        try:
            answer: Any = [row.to_json() for row in perform(order_of(json.loads(line)))]
        except MmdbError as error:
            answer = {"sqlstate": error.sqlstate, "message": error.message, "hint": error.hint}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
