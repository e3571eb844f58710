"""Which of a plan's ways a run is trained in. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mmdb.plan.cost import EXECUTED, Estimate
from mmdb.plan.run.workload import PlannedRun

#: Standard deviations between the 10th and the 90th percentile.
BETWEEN = 2.563


def chosen(estimates: Sequence[Estimate], run: PlannedRun, slots: int) -> int | None:
    """Return the place of what `train` does, or None where no estimate says it.

    Args:
        estimates: the best first.
        slots: workers that there are.
    """
    if run.strategy == "auto":
        near = closest(estimates, run)
        # What is done anyway, whose behaviour is known; else as many workers as there are.
        return min(near, key=lambda k: _preference(estimates[k]), default=None)
    workers = min(slots, run.workers or slots, useful_workers(run))
    work = run.workload
    for place, one in enumerate(estimates):
        knobs = one.knobs
        if _is_as_it_is(one, run) and (knobs.strategy, knobs.group, knobs.workers) == (
            work.strategy, work.group, workers,
        ):  # fmt: skip
            return place
    return None


def closest(estimates: Sequence[Estimate], run: PlannedRun) -> list[int]:
    """Return the places of the ways that `auto` may take and a plan cannot tell from the best."""
    possible = [
        place
        for place, one in enumerate(estimates)
        if one.feasible
        and one.executed
        and one.strategy in run.options.strategies
        and _is_as_it_is(one, run)
        and (one.strategy != "data_parallel" or run.options.group in (None, one.knobs.group))
    ]
    if not possible:
        return []
    best = min((estimates[place] for place in possible), key=lambda one: one.p50_s)
    most = best.p50_s * (1 + deviation(best))
    return [place for place in possible if estimates[place].p50_s <= most]


def deviation(estimate: Estimate) -> float:
    """Return the relative standard deviation that is predicted for a run."""
    return (estimate.p90_s - estimate.p10_s) / BETWEEN / max(estimate.p50_s, 1e-9)


def useful_workers(run: PlannedRun) -> int:
    """Return how many workers a run whose strategy is known can use."""
    at_once = len(run.rows) if run.workload.strategy in ("model_average", "data_parallel") else 1
    return max(1, len(run.candidates) * at_once)


def _is_as_it_is(one: Estimate, run: PlannedRun) -> bool:
    return one.knobs.partitions == len(run.rows) and one.knobs.batch_size is None


def _preference(one: Estimate) -> tuple[int, int, int, float]:
    return EXECUTED.index(one.strategy), -one.knobs.workers, one.knobs.group, one.p50_s
