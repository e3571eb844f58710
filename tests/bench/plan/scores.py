"""What outcomes say of plans: errors, how much runs vary, and choices. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

import numpy as np

from tests.bench.plan.outcome import Outcome

#: Name of the planner among those who choose.
PLANNER = "mmdb"
#: A choice is right within so much of the best, or within the deviation from run to run.
RIGHT = 0.02


def deviations(outcomes: Iterable[Outcome]) -> list[float]:
    """Return the relative standard deviation of each cell's repeats."""
    cells: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for one in outcomes:
        cells[one.cell].append(one.actual_s)
    return [stdev(runs) / fmean(runs) for runs in cells.values() if len(runs) > 1]


def errors(outcomes: Iterable[Outcome]) -> list[float]:
    """Return what was said over what each run took, less one."""
    return [one.error for one in outcomes]


def p90(values: Sequence[float]) -> float:
    """Return the 90th percentile, between two values where it is not one."""
    return float(np.quantile(values, 0.9))


def coverage(outcomes: Sequence[Outcome]) -> float:
    """Return the share of runs between the 10th and the 90th percentile that were said."""
    inside = sum(one.p10_s <= one.actual_s <= one.p90_s for one in outcomes)
    return inside / len(outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was chosen for a workload.

    Attributes:
        regret: what the chosen way takes over what the best takes, less one; medians of repeats.
        is_right: whether that is within RIGHT, or the deviation from run to run.
    """

    workload: str
    chosen: tuple[str, int]  # strategy, workers
    best: tuple[str, int]
    regret: float
    is_right: bool


def choices(outcomes: Iterable[Outcome]) -> dict[str, list[Choice]]:
    """Return by name what each chooser would have chosen for each workload."""
    workloads: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        workloads[one.workload].append(one)
    found: dict[str, list[Choice]] = defaultdict(list)
    for name, runs in workloads.items():
        ways: dict[tuple[str, int], list[Outcome]] = defaultdict(list)
        for one in sorted(runs, key=lambda run: run.repeat):
            ways[one.strategy, one.workers].append(one)
        for chooser in (PLANNER, *runs[0].ratings):
            found[chooser].append(_choice(name, ways, chooser))
    return dict(found)


def _choice(
    workload: str, ways: Mapping[tuple[str, int], Sequence[Outcome]], chooser: str
) -> Choice:
    took = {way: median(one.actual_s for one in runs) for way, runs in ways.items()}
    chosen = min(ways, key=lambda way: median(_rating(one, chooser) for one in ways[way]))
    best = min(took, key=lambda way: took[way])
    regret = took[chosen] / took[best] - 1
    varied = max(deviations([*ways[chosen], *ways[best]]), default=0.0)
    return Choice(
        workload=workload,
        chosen=chosen,
        best=best,
        regret=regret,
        is_right=regret <= max(RIGHT, varied),
    )


def _rating(outcome: Outcome, chooser: str) -> float:
    return outcome.p50_s if chooser == PLANNER else outcome.ratings[chooser]
