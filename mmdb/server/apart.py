"""A function's Python in a thread that is not PostgreSQL's, which does the queries for it.

Python that computes, imports torch or waits runs nothing of PostgreSQL, which then heeds no cancel.
So PostgreSQL's thread waits for what the function asks of `plpy`, and looks for interrupts
meanwhile: they are answered whatever the function does. One that does not end soon is left behind;
the session's next call breaks it off in its Python, and has a backend of its own: what is broken
off may have left the other one in the midst of a change.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, Queue, SimpleQueue
from time import monotonic
from typing import Any, Generic, TypeVar, cast

from mmdb.errors import WorkerLost, stops_the_caller
from mmdb.memory import is_bounded, lifted
from mmdb.server.session_control import end_before_libraries, heed
from mmdb.train.values.runtime import start_without_signals

T = TypeVar("T")

#: Seconds between two looks for interrupts.
POLL_S = 0.05
#: Seconds that an interrupted function has to end before its caller is answered all the same; and
#: one that has sessions of its own to end.
GRACE_S, DRIVER_GRACE_S = 0.25, 30.0
#: Seconds that a session's next call waits for what was left behind, which may be in native code.
LEFT_S = 20.0
#: Objects of PL/Python whose methods run queries.
_OWNED = {"PLyPlan", "PLyCursor", "PLySubtransaction"}

_Request = tuple[Future[Any], Callable[[], Any]]


class ServerCall(Generic[T]):
    """One call of a function.

    Attributes:
        has_ended: set once the function has ended.
        stop: set when the function is to end.
        grace_s: seconds that it then has.
        on_end: what PostgreSQL's thread calls then, to break off what the function waits for.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        """Be ready to `run`."""
        self._work = work
        self._thread: int | None = None
        # no SimpleQueue: a signal at the end of its timeout makes Python 3.11 wait without one
        self._requests: Queue[_Request | None] = Queue()
        self._lock = threading.Lock()
        self._open: list[Any] = []  # subtransactions
        self._ended: BaseException | None = None
        self._is_left = False
        self.has_ended = threading.Event()
        self.stop = threading.Event()
        self.grace_s = GRACE_S
        self.on_end: list[Callable[[], None]] = []
        self.result: list[T] = []
        self.raised: BaseException | None = None

    def run(self) -> None:
        """Do the work, in this thread; what it returns or raises is kept."""
        self._thread = threading.get_ident()
        try:
            self.result.append(self._work())
        except MemoryError as error:
            self.raised = error.with_traceback(None)  # what its frames hold is needed here
        except BaseException as error:
            self.raised = error
        finally:
            self.has_ended.set()
            self._requests.put(None)

    def ask(self, function: Callable[[], Any], *, closes: bool = False) -> Any:
        """Return what PostgreSQL's thread gets from `function`.

        Args:
            closes: what may still be asked when the call is to end.
        """
        answer: Future[Any] = Future()
        with self._lock:
            if self._ended is not None and (self._is_left or not closes):
                raise self._ended
            self._requests.put((answer, function))
        return answer.result()

    def serve(self, plpy: Any) -> T:
        """Answer until the function has ended; raise what is to end it."""
        try:
            while self._answer(POLL_S):
                heed(plpy)
        except BaseException as error:
            self._end(error)
            raise
        if self.raised is not None:
            try:
                raise self.raised
            finally:
                self.raised = None  # else its frames, with all that they held, would stay
        return self.result[0]

    def enter(self, subtransaction: Any) -> Any:
        """Begin a subtransaction, in PostgreSQL's thread."""
        self._open.append(subtransaction)
        return subtransaction.__enter__()

    def leave(self, subtransaction: Any, *error: Any) -> Any:
        """End a subtransaction, in PostgreSQL's thread."""
        self._open.remove(subtransaction)
        return subtransaction.__exit__(*error)

    def break_off(self) -> bool:
        """Raise in the thread's Python; return False while it loads a module."""
        frame = sys._current_frames().get(self._thread or 0)
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return False
            frame = frame.f_back
        raised = ctypes.py_object(_BrokenOff)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread or 0), raised)
        return True

    def _answer(self, timeout_s: float) -> bool:
        """Answer requests for so long; return False once the function has ended."""
        end = monotonic() + timeout_s
        while (left_s := end - monotonic()) > 0:
            try:
                request = self._requests.get(timeout=left_s)
            except Empty:
                break
            if request is None:
                return False
            answer, function = request
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)
                if stops_the_caller(error) and self._ended is None:
                    raise
        return True

    def _end(self, error: BaseException) -> None:
        """Have the function end; leave it behind if it does not."""
        self._ended = error
        self.stop.set()
        for action in self.on_end:
            action()
        if not self._answer(self.grace_s):
            return
        with self._lock:
            self._is_left = True
            while not self._requests.empty():
                if (request := self._requests.get()) is not None:
                    request[0].set_exception(error)
        _left_behind.append(self)
        end_before_libraries()
        for subtransaction in reversed(self._open):
            subtransaction.__exit__(type(error), error, None)


class _BrokenOff(BaseException):
    """Ends the Python of a call that was left behind."""


class CallThread(threading.Thread):
    """A thread that does calls, one after the other, until one of them is left behind.

    One for each call would set up torch's own threads anew each time, which takes a millisecond,
    and would leave 250 bytes.

    Attributes:
        call: that it does at present.
    """

    def __init__(self) -> None:
        """Be ready to `start`."""
        super().__init__(name="mmdb-call", daemon=True)
        self.call: ServerCall[Any] | None = None
        self._given: SimpleQueue[ServerCall[Any] | None] = SimpleQueue()

    def begin(self, call: ServerCall[Any]) -> None:
        """Do a call; the one before has ended."""
        self._given.put(call)

    def end(self) -> None:
        """End once the call has ended."""
        self._given.put(None)

    def run(self) -> None:
        """Do what is given."""
        with suppress(_BrokenOff):
            while (call := self._given.get()) is not None:
                self.call = call
                call.run()
                self.call = call = None  # with all that it returned


#: Threads without a call; several where a function's query called another function.
_idle: list[CallThread] = []
_left_behind: list[ServerCall[Any]] = []


def is_any_left() -> bool:
    """Return whether a call of this session was left behind that no other has waited for."""
    return bool(_left_behind)


def this_call() -> ServerCall[Any] | None:
    """Return the call that the present thread is."""
    thread = threading.current_thread()
    return thread.call if isinstance(thread, CallThread) else None


def apart(plpy: Any, work: Callable[[], T]) -> T:
    """Run `work` in a thread; PostgreSQL's, which calls this, interrupts it.

    Raises:
        WorkerLost: an earlier call of this session was interrupted and has not ended yet.
    """
    end, whole = monotonic() + LEFT_S, set(_left_behind)
    while not all(left.has_ended.is_set() for left in _left_behind):
        whole -= {left for left in whole if left.break_off()}
        for left in _left_behind:
            left.has_ended.wait(POLL_S)  # without Python's lock it could not go on
        heed(plpy)
        if monotonic() > end:
            text = "An interrupted call of this session does not end."
            raise WorkerLost(text, hint="Open another session.")
    _left_behind.clear()
    call = ServerCall(work)
    thread = _idle.pop() if _idle else CallThread()
    if thread.ident is None:
        start_without_signals(thread)
    thread.begin(call)
    try:
        return call.serve(plpy)
    finally:
        if call.stop.is_set():
            thread.end()
        else:
            _idle.append(thread)


def interruptible(plpy: Any, work: Callable[[Callable[[], bool]], T]) -> T:
    """Run `work(stopped)`, which touches no `plpy` and asks `stopped()` between steps."""
    call = this_call()
    if call is not None:
        return work(call.stop.is_set)

    def told() -> T:
        return work(cast("ServerCall[Any]", this_call()).stop.is_set)

    return apart(plpy, told)


class Lent:
    """`plpy`, or an object of it, for a thread that is not PostgreSQL's own."""

    def __init__(self, owned: Any) -> None:
        """Lend an object."""
        self._owned = owned

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._owned, name)
        if isinstance(found, type) or not callable(found):
            return found
        return partial(_asked, found)

    def __enter__(self) -> Lent:
        call = this_call()
        if call is None:
            self._owned.__enter__()
        else:
            call.ask(partial(call.enter, self._owned))
        return self

    def __exit__(self, *error: Any) -> Any:
        call = this_call()
        if call is None:
            return self._owned.__exit__(*error)
        return call.ask(partial(call.leave, self._owned, *error), closes=True)


def _lifted(function: Callable[[], Any]) -> Any:
    if not is_bounded():
        return function()
    with lifted():
        return function()


def _asked(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    call = this_call()
    own = [one._owned if isinstance(one, Lent) else one for one in given]
    asked = partial(_lifted, partial(function, *own, **named))
    found = asked() if call is None else call.ask(asked)
    return Lent(found) if type(found).__name__ in _OWNED else found
