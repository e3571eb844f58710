"""The driver of a run as a process of its own, which is started again as often as it dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tests.bench.train.memory import tree

ROOT = Path(__file__).parents[3]
PAUSE_S = 0.3  # before it is started again
LOOK_S = 0.02


class Stuck(Exception):
    """A run did not end."""


class Driver:
    """`mmdb train RUN`; use it in `with`.

    Attributes:
        starts: processes so far.
        complaints: what those said that ended by themselves and in error.
    """

    def __init__(self, url: str, run: str, workers: int = 2) -> None:
        command = [sys.executable, "-m", "mmdb.cli", "train", run, "--json"]
        self._command = [*command, "--workers", str(workers), "--database", url]
        self._process: subprocess.Popen[str] | None = None
        self.starts = 0
        self.complaints: list[str] = []
        self.summary: dict[str, Any] | None = None  # of the process that finished the run

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    @property
    def done(self) -> bool:
        """Whether the run has ended; a process that failed is started again."""
        if self.summary is not None or self._process is None:
            return self.summary is not None
        if self._process.poll() is None:
            return False
        self._output.seek(0)
        said = self._output.read()
        if self._process.returncode == 0:
            self.summary = json.loads(said.strip().splitlines()[-1])
            return True
        self.complaints.append(said.strip()[-3000:])
        time.sleep(PAUSE_S)
        self._start()
        return False

    def children(self) -> list[int]:
        """Return the processes that compute for it."""
        if self._process is None:
            return []
        return sorted(pid for pid in tree([self._process.pid]) if _computes(pid))

    def kill(self) -> None:
        """End the process without a warning, and start the next."""
        self._end()
        self._start()

    def interrupt(self) -> None:
        """Press Ctrl-C, and start the next process when this one has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
        self._start()

    def wait(self, timeout_s: float) -> None:
        """Wait until the run has ended.

        Raises:
            Stuck
        """
        deadline = time.monotonic() + timeout_s
        while not self.done:
            if time.monotonic() > deadline:
                self.complaints.append(self._traces())
                raise Stuck(f"not ended after {timeout_s:g} s")
            time.sleep(LOOK_S)

    def _traces(self) -> str:
        """End the process in a way that has it say where its threads were."""
        if self._process is None:
            return ""
        self._process.send_signal(signal.SIGABRT)
        self._process.wait()
        self._output.seek(0)
        return self._output.read()

    def _start(self) -> None:
        self._end()
        self.starts += 1
        self._output = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._command,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
        )

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._output.close()
            self._process = None


def _computes(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"mmdb.train.drive.child" in command
