"""`calibrate` and `measure`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from mmdb.db.queries import load
from mmdb.plan.profile import machine_profile
from mmdb.plan.profile.machine_profile import profile_of
from mmdb.plan.profile.measurements import KINDS, Measurement, check_budget, drifted, stamp_here
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, PlpyBackend, exposed
from mmdb.train.values.runtime import uncollected

#: Kinds that workers measure, in processes of their own; all but the last several at the same time.
_BY_WORKERS = ("all_reduce_", "busy_", "meet", "process")


@exposed
def calibrate(backend: Backend, budget_s: float) -> list[dict[str, Any]]:
    """Measure, keep the rows and return them; then a row for each thing to be said of them."""
    check_budget(budget_s)
    with uncollected():
        from mmdb.plan.calibration import GROUPS
        from mmdb.plan.calibration import calibrate as measured  # loads torch
    connection = backend.connection
    stamp = stamp_here(connection.engine, datetime.now(UTC))
    earlier, _ = machine_profile.find_profile(connection, stamp)
    gone = [] if earlier else machine_profile.profile_changes(connection, stamp)
    readable = connection.rows(load("plan").find_readable)
    part_id = int(readable[0]["part_id"]) if readable else None
    with backend.measuring(min(stamp.machine.cores, max(GROUPS))) as scene:
        rows = list(
            measured(
                scene.places,
                budget_s,
                database=scene.database,
                part_id=part_id,
                on_wait=scene.on_wait,
            )
        )
        workers, lacking = len(scene.places), scene.lacking
    machine_profile.keep_profile(connection, stamp, rows)
    said: list[tuple[str | None, str]] = list(_unmeasured(rows, workers, lacking))
    said += [(None, f"Since the last calibration {text}.") for text in drifted(earlier, rows)]
    said += [(None, f"What was measured before no longer counts: {why}.") for why in gone]
    return [*_shown(rows), *(_note(kind, text) for kind, text in said)]


@exposed
def measure(backend: Backend, detail: str) -> list[dict[str, Any]]:
    """Measure one thing in this session."""
    with uncollected():
        from mmdb.plan.profile.measurers import DATABASE, order_of, perform  # load torch
    raw = json_object(detail, "detail")
    if raw.get("what") == "steps" and isinstance(backend, PlpyBackend):
        from mmdb.plan.step_probe import in_session

        return in_session(backend.connection, raw, backend.compute)
    order = order_of(raw)
    if order.what in DATABASE:  # the session is this thread's; its queries serve interrupts
        rows = perform(order, backend.connection)
    else:
        rows = backend.compute(lambda stopped: perform(order, None, stopped))
    return [asdict(row) for row in rows]


def _shown(rows: Iterable[Measurement]) -> list[dict[str, Any]]:
    """Return measured rows as the function does, alike ones together."""
    places = {kind: place for place, kind in enumerate(KINDS)}
    return [
        {
            "kind": row.kind,
            "size": row.size,
            "size_unit": KINDS[row.kind].size_unit,
            "value": row.value,
            "unit": row.unit,
            "deviation": row.deviation,
            "samples": row.samples,
            "note": None,
        }
        for row in sorted(rows, key=lambda row: (places[row.kind], row.size))
    ]


def _note(kind: str | None, text: str) -> dict[str, Any]:
    names = ("size", "size_unit", "value", "unit", "deviation", "samples")
    return {"kind": kind, **dict.fromkeys(names), "note": text}


def _unmeasured(
    rows: Iterable[Measurement], workers: int, lacking: str
) -> Iterator[tuple[str | None, str]]:
    """Yield each kind that was not measured, with the reason."""
    assumed = profile_of(rows).assumed
    for kind in KINDS:
        if kind not in assumed:
            continue
        why = "the budget was too small"
        if kind.startswith(_BY_WORKERS):
            why = lacking or f"it takes more workers than the {workers} that fit on this machine"
        yield kind, f"Not measured, and assumed to be high: {why}."
