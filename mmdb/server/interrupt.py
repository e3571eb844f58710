"""Long computations inside a PostgreSQL session that still obey cancel and statement_timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from mmdb.errors import WorkerLost
from mmdb.train.threads import start_without_signals

T = TypeVar("T")

#: Name of the threads that compute.
COMPUTING = "mmdb-hop"

_left_behind: list[threading.Thread] = []

#: Seconds between two looks at PostgreSQL's interrupt flags.
POLL_S = 0.05
#: Seconds that interrupted work has to end; code that never returns is then left behind.
GRACE_S = 3.0


def interruptible(plpy: Any, work: Callable[[Callable[[], bool]], T], poll_s: float = POLL_S) -> T:
    """Run `work(stopped)` in a thread while this one lets PostgreSQL interrupt it.

    PostgreSQL looks at its interrupt flags only when its own code runs, so the main thread runs a
    trivial query every `poll_s` seconds. `work` must ask `stopped()` between steps and touch no
    `plpy`.

    Raises:
        WorkerLost: earlier work in this session was interrupted and has not ended yet.
    """
    if any(left.is_alive() for left in _left_behind):
        raise WorkerLost(
            "An interrupted hop of this session does not end.", hint="Open another session."
        )
    stop, done = threading.Event(), threading.Event()
    result: list[T] = []
    raised: list[BaseException] = []

    def body() -> None:
        try:
            result.append(work(stop.is_set))
        except BaseException as error:
            raised.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=body, name=COMPUTING, daemon=True)
    start_without_signals(thread)
    try:
        while not done.wait(poll_s):
            plpy.execute("SELECT 1")
    finally:
        stop.set()
        thread.join(GRACE_S)
        if thread.is_alive():
            _left_behind.append(thread)
    if raised:
        raise raised[0]
    return result[0]
