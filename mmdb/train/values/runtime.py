"""What every process of a training sets up alike: imports, memory, threads, time limits."""

from __future__ import annotations

import ctypes
import gc
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mmdb.errors import MmdbError

if TYPE_CHECKING:  # few of the processes start others
    from subprocess import Popen


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector still while imports make objects that all stay.

    A worker's session is ready after 2.2 s of computing instead of 2.6.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


#: Parameters of glibc's mallopt (malloc.h): bytes that stay free at the heap's end, and blocks
#: that are mapped by themselves; and the values with which memory stays.
_MALLOPT = ((-4, 0), (-1, 2**31 - 1))


def keep_freed_memory() -> bool:
    """Have this process keep what it frees until it ends; return whether its library can.

    For processes that do nothing but train: others would hold the most that they ever needed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, another system
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return all(mallopt(parameter, value) for parameter, value in _MALLOPT)


def start_without_signals(thread: threading.Thread) -> None:
    """Start a thread with every signal blocked in it, and in the threads that it starts.

    Inside PostgreSQL a signal that lands on another thread runs PostgreSQL's handler there.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


#: Seconds between two steps that end work which takes too long.
STEP_S = 5.0


class TimeLimit:
    """Ends the work of a `with` block that takes too long: by each of `steps` in turn.

    Attributes:
        passed: whether the time was up before the block ended.
    """

    def __init__(self, seconds: float | None, *steps: Callable[[], None]) -> None:
        self._seconds, self._steps = seconds, steps
        self.passed = False
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._seconds is not None:
            self._thread = threading.Thread(target=self._watch, name="mmdb limit", daemon=True)
            start_without_signals(self._thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()  # a step under way must not reach what comes after the block

    def _watch(self) -> None:
        if self._done.wait(self._seconds):
            return
        self.passed = True
        for step in self._steps:
            step()
            if self._done.wait(STEP_S):
                return


def end(process: Popen[Any]) -> None:
    """End a process, whatever it is doing."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            try:
                stream.close()
            except OSError:
                pass  # what was still buffered for a dead process


#: Characters of a traceback that are kept: its end, where the error is.
TRACE_LIMIT = 16_384


def trace_of(error: BaseException) -> str:
    """Return the traceback that an error carries, or its cause's, or its own; its last 16 KB.

    Of an error of mmdb that has neither, nothing: its message says it all.
    """
    kept = getattr(error, "trace", "")
    if kept:
        return str(kept)
    if isinstance(error, MmdbError):
        if error.__cause__ is None:
            return ""
        error = error.__cause__
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= TRACE_LIMIT else "...\n" + text[len(text) - TRACE_LIMIT + 4 :]
