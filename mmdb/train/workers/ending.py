"""The end of a process that one has started and spoken with through pipes."""

from __future__ import annotations

from subprocess import Popen
from typing import Any


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
