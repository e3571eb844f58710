"""The estimates of a run, for its epochs or until it reaches a metric, and which one it takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log
from statistics import median

from mmdb.db.citus import is_spread
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import InvalidOption
from mmdb.plan.candidate_costs import RunCosts
from mmdb.plan.cost import EXECUTED, Cluster, CostedWorkload, Estimate, StrategyName
from mmdb.plan.equations import deviation_seen
from mmdb.plan.plan_options import PlanOptions
from mmdb.plan.planned_run import PlannedRun, place_of
from mmdb.plan.profile.measurements import Stamp
from mmdb.plan.ranking import explain, ranked
from mmdb.plan.step import CandidateCost
from mmdb.train.features.feature_planning import STRATEGIES
from mmdb.train.hops.device_worker import STATE_BYTES

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


_Q = load("explain")
#: Runs, the last ones, of which it is looked at how far they were from their plans.
LATELY = 60
#: Strategies by the executed one that trains as they do, epoch by epoch. What is left out here and
#: not executed trains in a way that nobody has seen.
TRAINS_AS: Mapping[StrategyName, StrategyName] = {
    "mop": "mop",
    "task": "mop",
    "partitioned": "mop",
    "pipeline": "mop",
    "model_average": "model_average",
    "data_parallel": "data_parallel",
    "data_parallel_tree": "data_parallel",
    "data_parallel_overlap": "data_parallel",
    "parameter_server": "data_parallel",
}


@dataclass(frozen=True, slots=True)
class EpochsToTarget:
    """Runs that were trained in one way: after how many epochs each had reached a metric."""

    epochs: tuple[int, ...]  # of those that had
    runs: int

    @property
    def usual(self) -> int | None:
        """The median; None if less than half of the runs got there."""
        if not self.epochs or 2 * len(self.epochs) < self.runs:
            return None
        return ceil(median(self.epochs))


def estimates_of(
    connection: Connection,
    run: PlannedRun,
    options: PlanOptions,
    cluster: Cluster,
    costs: RunCosts,
    here: Stamp,
) -> tuple[list[Estimate], list[str]]:
    """Return estimates, the best first, and what is to be said of them.

    Raises:
        InvalidOption: a metric is to be reached, and the run has none.
    """
    # What is computed, and what does not exist, misses by more than what was measured.
    is_measured = costs.measured == len(costs.candidates) and not cluster.simulated
    deviations = _deviations(connection, here) if is_measured else {}

    def some(kinds: Sequence[StrategyName], epochs: int) -> list[Estimate]:
        return explain(
            _load(run, costs.candidates, epochs),
            cluster,
            objective=options.objective,
            kinds=kinds,
            workers=options.workers,
            group=options.group,
            batches=options.batches,
            partitions=options.partitions,
            bytes_limit=options.bytes_limit,
            live_bytes=float(STATE_BYTES),
            deviations=deviations,
        )

    if options.target is None:
        found = some(options.strategies, run.workload.epochs)
        return _possible(connection, found, run, options), []
    if run.metric is None:
        raise InvalidOption(
            f"Run {run.name!r} holds nothing out, so that no target is ever reached.",
            hint="Create its dataset with validation => 0.1.",
        )
    reached = _reached(connection, run, options.target)
    by_epochs: dict[int, list[StrategyName]] = defaultdict(list)
    unknown: dict[StrategyName, str] = {}
    for kind in options.strategies:
        seen = reached.get(TRAINS_AS.get(kind, kind), EpochsToTarget((), 0))
        if seen.usual is None:
            unknown[kind] = _why(seen, run.metric, options.target)
        else:
            by_epochs[seen.usual].append(kind)
    found = [one for epochs, kinds in by_epochs.items() for one in some(kinds, epochs)]
    if unknown:
        found += [
            replace(one, why_not=one.why_not or unknown[one.strategy])
            for one in some(list(unknown), run.workload.epochs)
        ]
    notes = [*_notes(reached, run.metric, options.target)]
    return ranked(_possible(connection, found, run, options), options.objective), notes


def _possible(
    connection: Connection, found: list[Estimate], run: PlannedRun, options: PlanOptions
) -> list[Estimate]:
    """Return estimates, the best first; a way that cannot train the run says why."""
    rules: list[tuple[Sequence[str], str]] = []
    if any(one.frozen for one in run.candidates):
        rules.append(
            (STRATEGIES, f"frozen layers are shared with {' and '.join(STRATEGIES)} alone")
        )
    if options.cluster is None and run.strategy == "auto" and is_spread(connection):
        rules.append((("mop",), "on the nodes of this cluster auto is mop"))
    if not rules:
        return found
    for allowed, why in rules:
        found = [
            one if one.strategy in allowed else replace(one, why_not=one.why_not or why)
            for one in found
        ]
    return ranked(found, options.objective)


def _reached(connection: Connection, run: PlannedRun, target: float) -> dict[str, EpochsToTarget]:
    """Return by strategy after how many epochs runs of the same models had reached the target."""
    rows = connection.rows(
        _Q.find_reached,
        run_id=run.run_id,
        dataset_id=run.dataset.dataset_id,
        target=target,
    )
    by_strategy: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_strategy[TRAINS_AS.get(row["strategy"], row["strategy"])].append(row)
    return {
        strategy: EpochsToTarget(
            tuple(row["epochs"] for row in some if row["epochs"] is not None), len(some)
        )
        for strategy, some in by_strategy.items()
    }


def _why(seen: EpochsToTarget, metric: str, target: float) -> str:
    if not seen.runs:
        return (
            f"no run of these models was trained so, which could tell when {metric} is {target:g}"
        )
    return f"{metric} was {target:g} in {len(seen.epochs)} of {seen.runs} runs trained so"


def _notes(reached: Mapping[str, EpochsToTarget], metric: str, target: float) -> list[str]:
    ways = [
        f"{strategy} {one.usual} (of {one.runs} runs)"
        for strategy, one in sorted(reached.items())
        if one.usual is not None
    ]
    if not ways:
        return []
    return [f"Epochs until {metric} is {target:g}, by earlier runs: {', '.join(ways)}."]


def _deviations(connection: Connection, here: Stamp) -> dict[str, float]:
    """Return how far runs were from what was said of them, by strategy."""
    errors: dict[str, list[float]] = defaultdict(list)
    for row in connection.rows(_Q.find_errors, most=LATELY, **place_of(here)):
        errors[row["strategy"]].append(log(row["took_s"] / row["said_s"]))
    found = {strategy: deviation_seen(some) for strategy, some in errors.items()}
    return {strategy: one for strategy, one in found.items() if one is not None}


def _load(run: PlannedRun, candidates: tuple[CandidateCost, ...], epochs: int) -> CostedWorkload:
    return CostedWorkload(
        candidates=candidates,
        rows=run.rows,
        validation_rows=run.validation_rows,
        epochs=epochs,
        free=run.workload.free,
    )
