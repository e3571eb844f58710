"""How a run with the strategy `auto` is trained, once that is decided: from its first hop on."""

from __future__ import annotations

from dataclasses import dataclass

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load

_Q = load("runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How a run is trained."""

    strategy: str
    group: int = 1  # workers that train one candidate together
    workers: int | None = None  # how many of them; None where they are given
    plan_id: int | None = None
    reason: str


#: What stands where nobody decides.
UNDECIDED = Decision(strategy="mop", reason="No plan was made.")
BY_HAND = Decision(strategy="mop", reason="Its first hop was done before any plan.")


def record(connection: Connection, run_id: int, decision: Decision) -> Row:
    """Record a decision where there is none yet; return the one that holds."""
    connection.run(
        _Q.add_run_strategy,
        run_id=run_id,
        strategy=decision.strategy,
        group_size=decision.group,
        workers=decision.workers,
        plan_id=decision.plan_id,
        reason=decision.reason,
    )
    (row,) = connection.rows(_Q.find_run_strategy, run_id=run_id)
    return row
