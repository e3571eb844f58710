"""Experiment `plan`: what plans say of steps and runs before they begin, beside what they take.

A workload's search is trained for one epoch; then every run of it is planned, and only then are
they trained, each way several times in an order drawn by a seed. Where a way was seen before, the
plan counts that was made right before the run began.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.bench.workload import BenchShare
from mmdb.plan.profile.machine_profile import known_profile
from mmdb.plan.profile.measurements import stamp_here
from tests.bench.plan.campaign import Campaign
from tests.bench.plan.models import models
from tests.bench.plan.outcome import Outcome, Runs
from tests.bench.plan.report import (
    choice_figures,
    coverage_figures,
    iteration_figures,
    mop_figures,
)
from tests.bench.plan.speed import CASES, speed_figures
from tests.bench.plan.step_report import step_figures
from tests.bench.plan.steps import measure_steps
from tests.bench.plan.unmeasured import first_run_figures
from tests.bench.plan.workloads import (
    Workload,
    choice_workloads,
    iteration_workloads,
    mop_workloads,
)

REPEATS, SECONDS = 3, 12.0
#: Of calibrating, and of measuring steps, where runs take SECONDS.
CALIBRATE_S, STEPS_S = 60.0, 600.0
#: Of both at least.
LEAST_S = 1.0
#: What a workload takes on one worker, over what it takes on two.
_ALONE = 1.7
#: Parts that train.
WORKLOADS: dict[str, Callable[[], Iterator[Workload]]] = {
    "mop": mop_workloads,
    "iterations": iteration_workloads,
    "choice": choice_workloads,
}
PARTS = ("steps", "first", *WORKLOADS, "speed")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShare(BenchShare):
    """How much is measured.

    Attributes:
        only: of PARTS; all if empty.
        workloads: of each part, the first ones, or models of `steps`; all without it.
        repeats: runs of each way of training a workload.
        seconds: about what a run takes on two workers; calibrating and steps take less with less.
        folder: finished runs are kept there and not done again; without it, they are forgotten.
    """

    only: Sequence[str] = ()
    workloads: int | None = None
    repeats: int = REPEATS
    seconds: float = SECONDS
    folder: Path | None = None


def bench_plan(databases: list[Database], share: PlanShare) -> Iterator[Figure]:
    """Measure every database in one run; steps need none."""
    with ExitStack() as stack:
        kept = share.folder
        if kept is None:
            kept = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mmdb-bench-")))
        if "steps" in (share.only or PARTS):
            yield from _steps(share)
        if "first" in (share.only or PARTS):
            searches = share.first(list(mop_workloads())[: share.workloads])
            yield from first_run_figures(searches, _ALONE * share.time(share.seconds))
        for db in databases:
            yield from _measure(db, share, kept)


def _steps(share: PlanShare) -> Iterator[Figure]:
    budget_s = share.time(STEPS_S * share.seconds / SECONDS, LEAST_S)
    return step_figures(measure_steps(share.first(models()[: share.workloads]), budget_s))


def _measure(db: Database, share: PlanShare, folder: Path) -> Iterator[Figure]:
    parts = [part for part in share.only or PARTS if part not in ("steps", "first")]
    if parts:
        _calibrate(db, share.time(CALIBRATE_S * min(1.0, share.seconds / SECONDS), LEAST_S))
    outcomes: dict[str, Sequence[Outcome]] = {}
    for part in parts:
        if part in WORKLOADS:
            outcomes[part] = _train(db, share, folder, part)
            yield from _figures(part, outcomes[part], is_whole=share.workloads is None)
        else:
            for case in share.first(CASES):
                yield from speed_figures(db, case)
    yield from coverage_figures([one for some in outcomes.values() for one in some])


def _calibrate(db: Database, budget_s: float) -> None:
    """Measure the machine, unless the database knows it."""
    stamp = stamp_here(db.connection.engine, datetime.now(UTC))
    if known_profile(db.connection, stamp).profile.stamp is None:
        db.calibrate(budget_s=budget_s)


def _train(db: Database, share: PlanShare, folder: Path, part: str) -> list[Outcome]:
    seconds = share.time(share.seconds)
    journal = Runs(folder / f"{part}-{db.connection.engine}-{seconds:g}s.jsonl")
    campaign = Campaign(
        database=db,
        journal=journal,
        worker_s=_ALONE * seconds,
        repeats=share.of(share.repeats),
        chooses=part == "choice",
    )
    return campaign.run(share.first(list(WORKLOADS[part]())[: share.workloads]))


def _figures(part: str, outcomes: Sequence[Outcome], *, is_whole: bool) -> Iterator[Figure]:
    if part == "mop":
        return mop_figures(outcomes)
    if part == "iterations":
        return iteration_figures(outcomes)
    return choice_figures(outcomes, is_whole)
