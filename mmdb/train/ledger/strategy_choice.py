"""The strategy that is chosen for a run with the strategy `auto`, before its first hop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load

_QUERIES = load("runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyChoice:
    """How a run is trained."""

    strategy: str
    group: int = 1  # workers that train one candidate together
    workers: int | None = None  # how many of them; None where they are given
    plan_id: int | None = None
    reason: str


#: What stands where nobody decides.
UNDECIDED = StrategyChoice(strategy="mop", reason="No plan was made.")
BY_HAND = StrategyChoice(strategy="mop", reason="Its first hop was done before any plan.")


def record_choice(connection: Connection, run_id: int, decision: StrategyChoice) -> Row:
    """Record a decision where there is none yet; return the one that holds."""
    connection.run(
        _QUERIES.add_run_strategy,
        run_id=run_id,
        strategy=decision.strategy,
        group_size=decision.group,
        workers=decision.workers,
        plan_id=decision.plan_id,
        reason=decision.reason,
    )
    (row,) = connection.rows(_QUERIES.find_run_strategy, run_id=run_id)
    return row


#: Called with a run that is to be trained for the first time, and with the number of workers, None
#: where that is open. It may plan any run; what it returns counts for `auto`, and None is `mop`.
Decide = Callable[[Connection, str, int | None], StrategyChoice | None]


def fix_strategy(
    connection: Connection, name: str, decide: Decide | None, workers: int | None
) -> None:
    """Let a run that nobody has trained be planned, and record how `auto` is trained.

    The caller holds the run's lock.
    """
    (run,) = connection.rows(load("runs").find_standing, name=name)
    is_open = run["strategy"] == "auto" and run["taken"] is None
    if run["was_started"] or _has_hops(connection, run["run_id"]):
        if is_open:
            record_choice(connection, run["run_id"], BY_HAND)
        return
    decision = decide(connection, name, workers) if decide else None
    if is_open:
        record_choice(connection, run["run_id"], decision or UNDECIDED)


def _has_hops(connection: Connection, run_id: int) -> bool:
    """Return whether hops were done by hand."""
    return bool(connection.rows(load("runs").count_run_hops, run_id=run_id)[0]["hops"])
