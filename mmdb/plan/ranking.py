"""Estimates of every way of training a workload: formulas for all, simulations of some.

A formula says what a way takes at least and about. The most promising ways that mmdb executes are
simulated, of each strategy some, but for those whose bound is above what another one of their
strategy was simulated at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mmdb.arguments import check_known, unfit
from mmdb.errors import InvalidOption
from mmdb.messages import bytes_text
from mmdb.plan.cost import (
    EXECUTED,
    PHASES,
    Cluster,
    CostedWorkload,
    Estimate,
    Knobs,
    StrategyName,
    check_cluster,
    check_workload,
)
from mmdb.plan.cost_columns import allocations_of, columns
from mmdb.plan.equations import band, deviation_of
from mmdb.plan.search_space import (
    StrategyBlock,
    blocks,
    sample_of,
    scheduled,
    simulate_sample,
    why_not,
)
from mmdb.plan.simulation import SimulationResult, mean_of
from mmdb.plan.strategies import CostInputs

Objective = Literal["time", "worker_hours"]
#: Ways that are simulated, at most; and of the best of those, how many once more, and how closely:
#: with this part of all hops each.
SIMULATED, CLOSELY, CLOSELY_SHARE = 20, 3, 1 / 3
#: Hops of the first simulations together, also where an epoch has more than LARGE.
HOPS, HOPS_OF_LARGE, LARGE = 6_000, 20_000, 20_000
#: Simulations of one way, over which its seconds are averaged.
SEEDS = 3
KINDS: tuple[StrategyName, ...] = (
    *EXECUTED,
    "data_parallel_tree",
    "data_parallel_overlap",
    "parameter_server",
    "parameter_server_async",
    "partitioned",
    "pipeline",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    block: StrategyBlock
    number: int  # of the allocation
    policy: str | None
    seconds: float  # about, by the formula
    bound_s: float
    workers: int
    why_not: str

    def price(self, seconds: float, objective: Objective) -> float:
        return seconds * self.workers if objective == "worker_hours" else seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Simulated:
    seconds: float
    trace: SimulationResult | None  # of the whole; None where a part stood for it


def explain(
    load: CostedWorkload,
    cluster: Cluster,
    *,
    objective: Objective = "time",
    kinds: Sequence[StrategyName] = KINDS,
    workers: int | None = None,
    group: int | None = None,
    batches: Sequence[int | None] = (None,),
    partitions: Sequence[int] = (),
    bytes_limit: float | None = None,
    live_bytes: float = float(1 << 30),
    deviations: Mapping[str, float] | None = None,
    hops: int | None = None,
) -> list[Estimate]:
    """Return an estimate of every way of training a workload, the best first.

    What mmdb executes comes before the what-ifs, and last is what cannot be.

    Args:
        objective: what is least in the first: seconds, or workers times seconds.
        workers, group: to be obeyed; left out, all are tried.
        batches: rows of a batch that are tried; None for each candidate's own.
        partitions: numbers of partitions that are tried; as in the workload if left out.
        bytes_limit: of states and gradients that move, at most. Memory is limited by the nodes'.
        live_bytes: of states that a worker keeps between its hops (MMDB_STATE_BYTES).
        deviations: relative, of what runs took from what was said of them, by strategy; where it
            is left out, that of the costs and of single hops says how wide a band is.
        hops: of the first simulations together; some are simulated more closely after that.
    Raises:
        EmptySearch, TooFewRows, InvalidOption
    """
    check_workload(load)
    check_cluster(cluster, load)
    _check_options(cluster, objective, kinds, workers, group, batches, partitions)
    if partitions and max(partitions) > sum(load.rows):
        raise InvalidOption(
            f"partitions is {max(partitions)}.", hint=f"There are {sum(load.rows)} rows."
        )
    found = [
        choice
        for block in blocks(
            load,
            cluster,
            kinds=kinds,
            live=live_bytes,
            workers=workers,
            group=group,
            batches=batches,
            partitions=partitions,
        )
        for choice in _variants(block, cluster, bytes_limit)
    ]
    found.sort(key=lambda c: (bool(c.why_not), c.price(c.seconds, objective), c.workers))
    large = len(load.candidates) * len(load.rows) > LARGE
    budget = hops or (HOPS_OF_LARGE if large else HOPS)
    simulated = _simulate(found, cluster, live_bytes, budget, objective)
    known = deviations or {}
    estimates = [
        _estimate(c, cluster, simulated.get(k), known.get(c.block.strategy))
        for k, c in enumerate(found)
    ]
    return ranked(estimates, objective)


def ranked(estimates: Sequence[Estimate], objective: Objective = "time") -> list[Estimate]:
    """Return estimates in the order of `explain`."""

    def order(one: Estimate) -> tuple[bool, bool, float, int]:
        workers = one.knobs.workers
        price = one.p50_s * workers if objective == "worker_hours" else one.p50_s
        return not one.feasible, not one.executed, price, workers

    return sorted(estimates, key=order)


def _variants(block: StrategyBlock, cluster: Cluster, bytes_limit: float | None) -> list[_Variant]:
    terms, found = block.terms, []
    for number, reason in enumerate(why_not(block, cluster)):
        moved = float(terms.bytes_moved[number])
        if not reason and bytes_limit is not None and moved > bytes_limit:
            reason = f"{bytes_text(moved)} move, and the limit is {bytes_text(bytes_limit)}"
        found += [
            _Variant(
                block=block,
                number=number,
                policy=policy,
                seconds=float(terms.seconds[number]),
                bound_s=float(terms.bound_s[number]),
                workers=int(block.allocations.workers[number]),
                why_not=reason,
            )
            for policy in block.policies
        ]
    return found


def _knobs(choice: _Variant) -> Knobs:
    block = choice.block
    return Knobs(
        strategy=block.strategy,
        workers=choice.workers,
        per_node=int(block.allocations.per_node[choice.number]),
        partitions=block.table.partitions,
        group=block.terms.group,
        batch_size=block.batch_size,
        policy=choice.policy,
        servers=block.terms.servers,
        micro_batches=block.terms.micro_batches,
    )


def _simulate(
    found: list[_Variant], cluster: Cluster, live: float, budget: int, objective: Objective
) -> dict[int, _Simulated]:
    """Return by index what the most promising choices are simulated at."""
    simulated: dict[int, _Simulated] = {}
    each = max(budget // SIMULATED, 1)
    kinds = {c.block.strategy for c in found if not c.why_not} & set(EXECUTED)
    left_of = dict.fromkeys(kinds, SIMULATED // max(len(kinds), 1))
    best_of = dict.fromkeys(kinds, float("inf"))
    for k, choice in enumerate(tuple(found)):
        kind = choice.block.strategy
        if choice.why_not or not left_of.get(kind):
            continue
        if choice.price(choice.bound_s, objective) < best_of[kind]:
            left_of[kind] -= 1
            try:
                simulated[k] = one = _simulate_sample(choice, cluster, live, each)
            except ValueError as error:  # workers that its hops need at once are not there
                found[k] = replace(choice, why_not=str(error))
                continue
            best_of[kind] = min(best_of[kind], choice.price(one.seconds, objective))
    order = sorted(simulated, key=lambda k: found[k].price(simulated[k].seconds, objective))
    for k in order[:CLOSELY]:
        if simulated[k].trace is None:
            simulated[k] = _simulate_sample(found[k], cluster, live, int(budget * CLOSELY_SHARE))
    return simulated


def _hops(choice: _Variant) -> int:
    table = choice.block.table
    visits = table.visits + (choice.block.strategy == "model_average")
    return table.candidates * visits * table.epochs


def _simulate_sample(choice: _Variant, cluster: Cluster, live: float, hops: int) -> _Simulated:
    """Simulate a choice in so many hops; what is left out takes as much more by the formula."""
    block = choice.block
    part = sample_of(block, cluster, choice.number, hops)
    knobs = _knobs(choice)
    seeds = min(SEEDS, max(1, hops // max(_hops(choice), 1)))
    trace = mean_of([simulate_sample(part, knobs, live, seed) for seed in range(seeds)])
    if part.whole:
        return _Simulated(seconds=max(trace.makespan_s, choice.bound_s), trace=trace)
    table = columns(part.load, part.cluster, knobs.batch_size)
    allocations = allocations_of(part.cluster, np.array([part.counts]))
    costs = CostInputs(table, allocations, part.cluster, part.load, live)
    terms = scheduled(block.strategy, costs, knobs.group)
    ratio = trace.makespan_s / float(terms.seconds[0])
    return _Simulated(seconds=max(choice.seconds * ratio, choice.bound_s), trace=None)


def _estimate(
    choice: _Variant, cluster: Cluster, one: _Simulated | None, seen: float | None
) -> Estimate:
    block, n = choice.block, choice.number
    terms, table = block.terms, block.table
    seconds = one.seconds if one else choice.seconds
    if not (one and one.trace):  # workers that begin late share what they have missed
        seconds += cluster.late_s * (int(block.allocations.per_node[n]) - 1) / 2
    total = float(seconds + cluster.open_s)
    deviation = seen or deviation_of(
        table.deviation, _hops(choice), choice.workers, cluster.deviation, table.uncertainty
    )
    low, middle, high = band(total, deviation)
    source = one.trace if one and one.trace else None
    phases = {
        f"{name}_s": float(
            getattr(source, f"{name}_s") if source else getattr(terms, f"{name}_s")[n]
        )
        for name in PHASES[:-1]
    }
    room = choice.workers * seconds
    used = sum(phases.values())
    if used > room:  # by the formula alone: what is dilated less than it assumes
        phases = {name: value * room / used for name, value in phases.items()}
    return Estimate(
        knobs=_knobs(choice),
        **phases,
        idle_s=max(choice.workers * total - sum(phases.values()), 0.0),
        p10_s=low,
        p50_s=middle,
        p90_s=high,
        lower_bound_s=choice.bound_s,
        bytes_moved=source.bytes_moved if source else float(terms.bytes_moved[n]),
        memory_bytes=float(block.allocations.per_node[n]) * terms.memory_bytes,
        hops=_hops(choice),
        why_not=choice.why_not,
        executed=block.strategy in EXECUTED,
        simulated=cluster.simulated,
        exact=source is not None,
    )


def _check_options(
    cluster: Cluster,
    objective: str,
    kinds: Sequence[str],
    workers: int | None,
    group: int | None,
    batches: Sequence[int | None],
    partitions: Sequence[int],
) -> None:
    slots = sum(node.slots for node in cluster.nodes)
    if workers is not None and not 1 <= workers <= slots:
        raise unfit("workers", workers, f"The cluster has room for 1 to {slots}.")
    for name, values in (("group", [group]), ("batches", batches), ("partitions", partitions)):
        for value in values:
            if value is not None and value < 1:
                raise unfit(name, value, "From 1 on.")
    if objective not in ("time", "worker_hours"):
        raise unfit("objective", objective, "Known: time, worker_hours.")
    check_known(kinds, KINDS, "There is no strategy")
