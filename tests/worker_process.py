"""`mmdb worker`, started as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

#: Seconds after which a process that should have done something has not.
PATIENCE_S = 180.0


class WorkerCommand:
    """Use it in `with`; the process is killed at the end."""

    def __init__(self, url: str, *options: str) -> None:
        command = [sys.executable, "-m", "mmdb.cli", "worker", url, *options]
        self.said: list[str] = []
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def says(self, text: str) -> Self:
        """Wait until the process has said something."""
        until(lambda: any(text in line for line in self.said), lambda: f"{text}: {self.said}")
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def ends(self) -> int:
        """Wait for the end and return the exit code."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            self.said.append(line.rstrip())


def until(
    happened: Callable[[], object], what: Callable[[], str] = lambda: "nothing happened"
) -> None:
    """Wait until something has happened."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)
