"""`submit`, `cancel_run`, `resume_run` and `node`."""

from __future__ import annotations

import platform
from typing import Any

from mmdb.server.backend import Backend, exposed
from mmdb.train.service import requests


@exposed
def submit(backend: Backend, run: str, priority: int | None) -> list[dict[str, Any]]:
    """Hand a run to the worker processes; see `mmdb.train.service.requests.submit`."""
    return [requests.submit(backend.connection, run, priority)]


@exposed
def cancel_run(backend: Backend, run: str) -> list[dict[str, Any]]:
    """Let whoever trains a run stop."""
    return [requests.cancel_run(backend.connection, run)]


@exposed
def resume_run(backend: Backend, run: str) -> list[dict[str, Any]]:
    """Hand a run to the worker processes again."""
    return [requests.resume_run(backend.connection, run)]


@exposed
def node(backend: Backend) -> str:
    """Return the machine that this session computes on."""
    return platform.node()
