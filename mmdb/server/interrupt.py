"""Long computations inside a PostgreSQL session that still obey cancel and statement_timeout."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

from mmdb.errors import WorkerLost
from mmdb.train.threads import start_without_signals

T = TypeVar("T")

#: Seconds between two looks at PostgreSQL's interrupt flags.
POLL_S = 0.05
#: Seconds that interrupted work has to end, before its caller is answered all the same.
GRACE_S = 0.5
#: Seconds that the next work of a session waits for what was left behind: it may never return.
LEFT_S = 5.0
#: Of PostgreSQL's `enum TimeoutId`.
_STATEMENT_TIMEOUT = 3


class _Flags:
    """What signals have told PostgreSQL, which itself looks only when its own code runs."""

    def __init__(self) -> None:
        """Find it in the process.

        Raises:
            AttributeError, ValueError: this is no PostgreSQL.
        """
        self._library = ctypes.PyDLL(None)
        names = ("InterruptPending", "QueryCancelPending", "ProcDiePending")
        self._pending, self._cancelled, self._dies, self._looks = (
            ctypes.c_int.in_dll(self._library, name)
            for name in (*names, "CheckClientConnectionPending")
        )
        self._check_client = self._library.pq_check_connection
        self._timed_out = self._library.get_timeout_indicator
        self._check_client.restype = self._timed_out.restype = ctypes.c_bool

    @property
    def any(self) -> bool:
        """Whether PostgreSQL has anything to do."""
        return bool(self._pending.value)

    def end(self) -> tuple[str, str] | None:
        """Return why the statement is to end, as SQLSTATE and message; None if it is not."""
        if self._dies.value:
            return "57P01", "terminating connection due to administrator command"
        if self._cancelled.value:
            timed_out = self._timed_out(_STATEMENT_TIMEOUT, False)
            why = "statement timeout" if timed_out else "user request"
            return "57014", f"canceling statement due to {why}"
        if self._looks.value and not self._check_client():
            return "08006", "connection to client lost"
        return None


@cache
def _flags() -> _Flags | None:
    try:
        return _Flags()
    except (AttributeError, ValueError):
        return None


def heed(plpy: Any) -> None:
    """Let PostgreSQL interrupt the session; what ends the statement is raised.

    It goes through all of Python, as an error of `plpy`. PostgreSQL itself would jump over Python's
    frames where it waits for nodes of a cluster, or end the process in their midst.
    """
    flags = _flags()
    end = flags.end() if flags is not None and flags.any else None
    if end is not None:
        plpy.error(end[1], sqlstate=end[0])
    if flags is None or flags.any:  # others may wait for this session to heed them
        plpy.execute("SELECT 1")


class _Work(threading.Thread, Generic[T]):
    """Work in a thread that no signal reaches."""

    def __init__(self, work: Callable[[Callable[[], bool]], T]) -> None:
        super().__init__(name="mmdb-hop", daemon=True)
        self._work = work
        self.stop, self.done = threading.Event(), threading.Event()
        self.result: list[T] = []
        self.raised: BaseException | None = None

    def run(self) -> None:
        try:
            self.result.append(self._work(self.stop.is_set))
        except BaseException as error:
            self.raised = error
        finally:
            self.done.set()


_left_behind: list[_Work[Any]] = []


def interruptible(plpy: Any, work: Callable[[Callable[[], bool]], T]) -> T:
    """Run `work(stopped)` in a thread while this one looks for what is to interrupt the statement.

    `work` must ask `stopped()` between steps and touch no `plpy`. No query is run meanwhile: it
    would be a subtransaction, of which Citus tells all nodes that the transaction has used.

    Raises:
        WorkerLost: earlier work in this session was interrupted and has not ended yet.
    """
    _await_left_behind(plpy)
    thread = _Work(work)
    start_without_signals(thread)
    try:
        while not thread.done.wait(POLL_S):
            heed(plpy)
    finally:
        thread.stop.set()
        if not thread.done.wait(GRACE_S):
            _left_behind.append(thread)
    if thread.raised is not None:
        raise thread.raised
    return thread.result[0]


def _await_left_behind(plpy: Any) -> None:
    """Wait for what was left behind; it could not go on before for want of Python's lock."""
    for _ in range(round(LEFT_S / POLL_S)):
        _left_behind[:] = [left for left in _left_behind if not left.done.wait(POLL_S)]
        if not _left_behind:
            return
        heed(plpy)
    raise WorkerLost("An interrupted hop of this session does not end.", hint="Open another one.")
