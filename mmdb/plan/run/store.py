"""Plans in the database, and as the rows that explain_train returns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.plan.cost import PHASES, Estimate

_Q = load("explain")
#: Columns of a row for which a note has nothing.
COLUMNS = (
    "rank", "strategy", "workers", "group_size", "t_p10", "t_p50", "t_p90", "lower_bound",
    *(f"{phase}_s" for phase in PHASES), "bytes_moved", "peak_memory", "feasible", "why_not",
    "chosen", "executed", "simulated", "assumed", "knobs",
)  # fmt: skip
#: What a bigint holds.
MOST_BYTES = 2**63 - 1
#: What a run took in the end; of the row that says how it was trained.
ACTUAL = ("actual_s", "actual_compute_s", "actual_read_s", "actual_hop_s", "actual_validation_s",
          "actual_idle_s")  # fmt: skip


def row_of(estimate: Estimate, rank: int, *, chosen: bool) -> dict[str, Any]:
    """Return an estimate as a row of the table."""
    knobs = estimate.knobs
    others = {
        "policy": knobs.policy,
        "per_node": knobs.per_node,
        "servers": knobs.servers,
        "micro_batches": knobs.micro_batches,
        "exact": estimate.exact,
    }
    return {
        "rank": rank,
        "strategy": knobs.strategy,
        "workers": knobs.workers,
        "group_size": knobs.group,
        "partitions": knobs.partitions,
        "batch_size": knobs.batch_size,
        "knobs": json.dumps(others),
        "chosen": chosen,
        "t_p10": estimate.p10_s,
        "t_p50": estimate.p50_s,
        "t_p90": estimate.p90_s,
        "lower_bound": estimate.lower_bound_s,
        **{f"{phase}_s": getattr(estimate, f"{phase}_s") for phase in PHASES},
        "bytes_moved": min(round(estimate.bytes_moved), MOST_BYTES),
        "peak_memory": min(round(estimate.memory_bytes), MOST_BYTES),
        "hops": estimate.hops,
        "feasible": estimate.feasible,
        "why_not": estimate.why_not or None,
        "executed": estimate.executed,
    }


def put(
    connection: Connection,
    run_id: int,
    rows: Sequence[Mapping[str, Any]],
    *,
    candidates: int,
    measured: int,
    options: Mapping[str, Any],
    notes: Sequence[str],
    simulated: bool,
    assumed: bool,
) -> int:
    """Keep a plan, whole or not at all; return its plan_id."""
    with connection.transaction():
        (added,) = connection.rows(
            _Q.add_plan,
            run_id=run_id,
            candidates=candidates,
            measured=measured,
            options=json.dumps(options),
            notes=json.dumps(list(notes)),
            simulated=simulated,
            assumed=assumed,
        )
        plan_id = int(added["plan_id"])
        connection.run_many(_Q.add_estimate, [{**row, "plan_id": plan_id} for row in rows])
    return plan_id


def shown(
    connection: Connection,
    plan_id: int,
    outcome: Row | None = None,
    others: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return a plan's rows, the best first, and then a row for each of its notes.

    Args:
        outcome: what the run took, shown in the row that says how it was trained.
        others: notes that were not kept.
    """
    found = connection.rows(_Q.find_estimates, plan_id=plan_id)
    nothing = dict.fromkeys(ACTUAL)
    rows = []
    for row in found:
        is_it = outcome is not None and (outcome["plan_id"], outcome["rank"]) == (
            plan_id,
            row["rank"],
        )
        took = {name: outcome[name] for name in ACTUAL} if outcome and is_it else nothing
        rows.append({**{name: row[name] for name in COLUMNS}, "note": None, **took})
    (kept,) = connection.rows(_Q.find_notes, plan_id=plan_id)
    notes = [*others, *json.loads(kept["notes"])]
    rows += [{**dict.fromkeys(COLUMNS), "note": note, **nothing} for note in notes]
    return rows
