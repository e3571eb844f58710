"""SQL's functions for plans: `explain_train`, `calibrate` and `measure`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mmdb.db.queries import load
from mmdb.errors import NoWorkerLogin
from mmdb.plan.profile import machine_profile
from mmdb.plan.profile.machine_profile import profile_of
from mmdb.plan.profile.measurements import KINDS, Measurement, check_budget, drifted, stamp_here
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, PlpyBackend, ending_with, exposed
from mmdb.train.values.runtime import uncollected

if TYPE_CHECKING:
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
    # One more than cores shows what it costs to share them.
    with backend.measuring(min(stamp.machine.cores, max(GROUPS)) + 1) as scene:
        about: dict[str, Any] = {
            "database": scene.database,
            "part_id": part_id,
            "on_wait": scene.on_wait,
        }
        rows = list(measured(scene.places, budget_s, **about))
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
        asdict(row) | {"size_unit": KINDS[row.kind].size_unit, "note": None}
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
            why = lacking or f"it takes more workers than the {workers} that measure here"
        yield kind, f"Not measured, and assumed to be high: {why}."
