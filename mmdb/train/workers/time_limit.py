"""Work that may take so long and no longer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mmdb.train.threads import start_without_signals

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
