"""`submit`, `cancel_run`, `resume_run` and `node`."""

from __future__ import annotations

import platform
from typing import Any

from mmdb.server.backend import Backend, exposed
from mmdb.train.drive import run_requests


@exposed
def submit(backend: Backend, run: str, priority: int | None) -> list[dict[str, Any]]:
    """Hand a run to the worker processes; see `mmdb.train.drive.run_requests.submit`."""
    return [run_requests.submit(backend.connection, run, priority)]


@exposed
def cancel_run(backend: Backend, run: str) -> list[dict[str, Any]]:
    """Let whoever trains a run stop."""
    return [run_requests.cancel_run(backend.connection, run)]


@exposed
def resume_run(backend: Backend, run: str) -> list[dict[str, Any]]:
    """Hand a run to the worker processes again."""
    return [run_requests.resume_run(backend.connection, run)]


@exposed
def node(backend: Backend) -> str:
    """Return the machine that this session computes on."""
    return platform.node()
