"""`explain_train`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mmdb.db.queries import load
from mmdb.errors import NoWorkerLogin
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, PlpyBackend, ending_with, exposed
from mmdb.train.values.runtime import uncollected

if TYPE_CHECKING:  # it loads torch
    from mmdb.plan.step_probe import StepProbe

_T = TypeVar("_T")


@exposed
def explain_train(backend: Backend, run: str, options: str) -> list[dict[str, Any]]:
    """Return what every way of training a run would take; see `mmdb.plan.explain_train`."""
    raw = json_object(options, "options")
    with uncollected():
        from mmdb.plan.explain_train import explain_run  # loads torch

    def compute(work: Callable[[], _T]) -> _T:
        return backend.compute(lambda stopped: work())

    return explain_run(
        backend.connection,
        run,
        raw,
        compute=compute,
        probing=partial(probing_of, backend),
        settle=lambda candidate_id: backend.runner.begin(candidate_id),
    )


@contextmanager
def probing_of(backend: Backend) -> Iterator[StepProbe]:
    """Yield where steps are timed: a process, or a session of the owner's worker login.

    Raises:
        NoWorkerLogin: it is in the server, and the owner has set none.
    """
    from mmdb.plan.step_probe import probing

    if not isinstance(backend, PlpyBackend):
        with probing(backend.connection) as probe:
            yield probe
        return
    rows = backend.connection.rows(load("catalog").find_setting, name="worker_dsn")
    if not rows:
        raise NoWorkerLogin(
            "The owner has set no login for worker sessions: no step can be timed.",
            hint="Leave probe_s out, or ask by `mmdb explain`, which times steps by itself.",
        )
    with probing(backend.connection, str(rows[0]["value"])) as probe:
        ending_with(probe.end)
        yield probe
