"""`explain_train`."""

from __future__ import annotations

from typing import Any

from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, exposed
from mmdb.train.startup import uncollected


@exposed
def explain_train(backend: Backend, run: str, options: str) -> list[dict[str, Any]]:
    """Return what every way of training a run would take; see `mmdb.plan.run.plan`."""
    wishes = json_object(options, "options")
    with uncollected():
        from mmdb.plan.run.plan import explain_run  # loads torch
    return explain_run(backend.connection, run, wishes)
