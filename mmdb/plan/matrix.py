"""The simulation of a run from a matrix of seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mmdb.arguments import unfit
from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.plan.cost import EXECUTED, Estimate, Knobs, StrategyName
from mmdb.plan.equations import Floats, band, deviation_of
from mmdb.plan.simulation import HopSeconds, mean_of, run
from mmdb.train.schedule import POLICIES, Placement, Policy, Workload
from mmdb.train.schedule.simulate import lower_bound

Column = float | Sequence[float] | npt.NDArray[np.float64]


def simulate(
    costs: Sequence[Sequence[float]] | npt.NDArray[np.float64],
    policy: Policy | None = None,
    *,
    workers: int | Mapping[str, int] = 1,
    placement: Placement | None = None,
    strategy: StrategyName = "mop",
    group: int = 1,
    epochs: int = 1,
    free: bool = False,
    validation_s: Column | None = None,
    hop_s: Column = 0.0,
    move_s: Column = 0.0,
    merge_s: Column = 0.0,
    exchange_s: Column = 0.0,
    read_s: Column = 0.0,
    slowdown: Sequence[float] = (1.0,),
    noise: float = 0.0,
    uncertainty: float = 0.0,
    seeds: int = 3,
) -> Estimate:
    """Return what a run comes to when its hops are dealt out as real ones are.

    Args:
        costs: (M, P) seconds in which each candidate trains on each partition, on a worker alone.
        policy: who goes first; None for what a run follows by itself.
        workers: how many; of each node, if there are several.
        placement: partition -> names of its nodes; left out, every worker finds every one.
        group: workers of a candidate, for `data_parallel`.
        free: whether any partition may be next, or the one that the seed says.
        validation_s: of a validation hop; None for none.
        hop_s: of a hop besides training. move_s: of a hop whose state another worker left.
        merge_s: of a merge, for `model_average`. exchange_s: of a group's hop, for its gradients.
        read_s: (P,) of a partition's first visit on a node. The others are numbers or (M,).
        slowdown: factor of a hop's seconds at 1, 2, ... busy workers of a node.
        noise: relative standard deviation of a hop. uncertainty: of the costs themselves.
        seeds: simulations with other noise, over which the seconds are averaged.
    Raises:
        InvalidOption
    """
    matrix = _matrix(costs)
    nodes = {"": workers} if isinstance(workers, int) else dict(workers)
    _check(policy, nodes, placement or {}, strategy, group, epochs, slowdown, noise, seeds)
    candidates, partitions = matrix.shape
    hop, move = _column(hop_s, candidates, "hop_s"), _column(move_s, candidates, "move_s")
    validates = validation_s is not None
    validation = _column(
        validation_s if validation_s is not None else 0.0, candidates, "validation_s"
    )
    exchange = _column(exchange_s, candidates, "exchange_s")

    def round_s(c: int, parts: Sequence[int]) -> tuple[float, float]:
        return float(matrix[c, list(parts)].max()), float(exchange[c])

    zeros = np.zeros(candidates)
    seconds = HopSeconds(
        train=matrix,
        validation=validation + hop if validates else zeros,
        merge=_column(merge_s, candidates, "merge_s"),
        begin=zeros,
        take=move,
        leave=hop,
        publish=zeros,
        durable=zeros,
        read=_column(read_s, partitions, "read_s"),
        round=round_s,
        noise=noise,
    )
    slots = {name: (count, tuple(slowdown)) for name, count in nodes.items()}
    traces = []
    for seed in range(seeds if noise else 1):
        work = Workload(
            candidates=candidates,
            partitions=partitions,
            epochs=epochs,
            seed=seed,
            validates=validates,
            free=free,
            strategy=strategy,
            group=group if strategy == "data_parallel" else 1,
        )
        source = np.random.default_rng(seed)
        traces.append(run(seconds, work, slots, placement=placement, policy=policy, source=source))
    total, trace = sum(nodes.values()), mean_of(traces)
    makespan = trace.makespan_s
    low, middle, high = band(makespan, deviation_of(noise, trace.hops, total, 0.0, uncertainty))
    used = (trace.compute_s, trace.read_s, trace.hop_s, trace.communication_s, trace.validation_s)
    return Estimate(
        knobs=Knobs(
            strategy=strategy,
            workers=total,
            per_node=max(nodes.values()),
            partitions=partitions,
            group=work.group,
            policy=policy,
        ),
        compute_s=trace.compute_s,
        read_s=trace.read_s,
        hop_s=trace.hop_s,
        communication_s=trace.communication_s,
        validation_s=trace.validation_s,
        idle_s=max(total * makespan - sum(used), 0.0),
        p10_s=low,
        p50_s=middle,
        p90_s=high,
        lower_bound_s=_bound_s(matrix, seconds, work, nodes, placement or {}, slowdown),
        bytes_moved=0.0,
        hops=trace.hops,
    )


def _bound_s(
    matrix: Floats,
    seconds: HopSeconds,
    work: Workload,
    nodes: Mapping[str, int],
    placement: Placement,
    slowdown: Sequence[float],
) -> float:
    """Return what no schedule goes below; workers are never worth more than they are alone."""
    train = matrix + seconds.leave[:, None]
    rest = seconds.validation[:, None] + (seconds.merge[:, None] if work.merges else 0.0)
    whole = np.column_stack([train, rest]) * work.epochs
    chain_s = None
    if work.merges:
        chain_s = float((train.max(axis=1) + rest[:, 0]).max()) * work.epochs
    elif work.group > 1:
        chain_s = float((train.sum(axis=1) / work.group + rest[:, 0]).max()) * work.epochs
    return lower_bound(whole, nodes, placement, chain_s=chain_s) * min(slowdown)


def _matrix(costs: object) -> Floats:
    try:
        found = np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all() or (found < 0).any():
        raise InvalidOption(
            "costs is not a matrix of seconds.",
            hint="Pass a list of candidates, each the list of its seconds on every partition.",
        )
    return found


def _column(value: Column, count: int, name: str) -> Floats:
    found = np.asarray(value, dtype=np.float64)
    if found.shape not in ((), (count,)) or not np.isfinite(found).all() or (found < 0).any():
        raise unfit(name, value, f"It is a number from 0, or a list of {count}.")
    return np.asarray(np.broadcast_to(found, (count,)))


def _check(
    policy: str | None,
    nodes: Mapping[str, int],
    placement: Placement,
    strategy: str,
    group: int,
    epochs: int,
    slowdown: Sequence[float],
    noise: float,
    seeds: int,
) -> None:
    if policy is not None and policy not in POLICIES:
        raise InvalidOption(
            f"There is no policy {show(policy)}.", hint=f"Known: {', '.join(POLICIES)}."
        )
    if strategy not in EXECUTED:
        raise InvalidOption(
            f"{show(strategy)} is not simulated.", hint=f"Known: {', '.join(EXECUTED)}."
        )
    total = sum(nodes.values())
    for name, value in (("workers", total), ("group", group), ("epochs", epochs), ("seeds", seeds)):
        if value < 1:
            raise unfit(name, value, "From 1 on.")
    if strategy == "data_parallel" and not 2 <= group <= total:
        raise InvalidOption(f"group is {group}.", hint=f"There are {total} workers; from 2 on.")
    if not slowdown or min(slowdown) <= 0 or noise < 0:
        raise InvalidOption("slowdown and noise are factors above 0, and from 0.")
    for part, held in placement.items():
        if not any(nodes.get(name) for name in held):
            raise InvalidOption(f"Partition {part} lies on no node that has a worker.")
