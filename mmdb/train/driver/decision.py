"""Runs that are trained for the first time: someone above plans them, and decides on `auto`."""

from __future__ import annotations

from collections.abc import Callable

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.train.dispatch.decision import BY_HAND, UNDECIDED, Decision, record

#: Called with a run that is to be trained for the first time, and with the number of workers, None
#: where that is open. It may plan any run; what it returns counts for `auto`, and None is `mop`.
Decide = Callable[[Connection, str, int | None], Decision | None]


def settle(connection: Connection, name: str, decide: Decide | None, workers: int | None) -> None:
    """Let a run that nobody has trained be planned, and record how `auto` is trained.

    The caller holds the run's lock.
    """
    (run,) = connection.rows(load("runs").find_standing, name=name)
    is_open = run["strategy"] == "auto" and run["taken"] is None
    if run["was_started"] or _has_hops(connection, run["run_id"]):
        if is_open:
            record(connection, run["run_id"], BY_HAND)
        return
    decision = decide(connection, name, workers) if decide else None
    if is_open:
        record(connection, run["run_id"], decision or UNDECIDED)


def _has_hops(connection: Connection, run_id: int) -> bool:
    """Return whether hops were done by hand."""
    return bool(connection.rows(load("runs").count_run_hops, run_id=run_id)[0]["hops"])
