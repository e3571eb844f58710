"""A workload and worker allocations as columns, so that a formula is computed for all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mmdb.plan import equations
from mmdb.plan.cost import Cluster, ClusterNode, CostedWorkload
from mmdb.plan.equations import Floats, capacity, slowdown_at
from mmdb.plan.step import CandidateCost, LayerCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Costs of M candidates on P partitions, on a cluster; seconds of a worker that is alone.

    (M,) where nothing else is said; times are of one hop unless they say epoch.
    """

    rows: npt.NDArray[np.int64]  # (P,)
    epochs: int
    validates: bool
    step_s: Floats
    row_s: Floats
    batch_size: Floats
    train: Floats  # (M, U) of a partition of each size
    size_of: npt.NDArray[np.int64]  # (P,) index of its size
    train_epoch_s: Floats
    validate_s: Floats  # of a validation hop, its overhead included; 0 where nothing is validated
    begin_s: Floats  # of making the initial state
    take_s: Floats  # of taking up a state that another worker left
    leave_s: Floats  # at the end of each train hop
    publish_s: Floats  # of leaving a state for other workers
    durable_s: Floats  # of writing a state at an epoch's end, for good and for other workers
    merge_s: Floats
    read_s: Floats  # (P,) of reading a partition, once a node
    read_validation_s: float
    hop_s: Floats  # of a hop, the gap before the next one included
    gap_s: float
    state_bytes: Floats
    gradient_bytes: Floats
    memory_bytes: Floats  # with its batch
    layers: tuple[tuple[LayerCost, ...], ...]
    exchanges: Mapping[int, Floats]  # measured, of a step by number of workers; NaN where not
    deviation: float  # of a hop
    uncertainty: float  # of the costs

    @property
    def candidates(self) -> int:
        """M."""
        return len(self.step_s)

    @property
    def partitions(self) -> int:
        """P."""
        return len(self.rows)

    @property
    def visits(self) -> int:
        """Hops of a candidate in an epoch; a merge is none."""
        return self.partitions + self.validates

    def hops(self) -> Floats:
        """Return the seconds of every train hop, (M, P)."""
        return np.asarray(self.train[:, self.size_of])

    def by_partition(self) -> Floats:
        """Return the seconds of all candidates' train hops on each partition, (P,)."""
        return np.asarray(self.train.sum(axis=0)[self.size_of])


def columns(load: CostedWorkload, cluster: Cluster, batch_size: int | None = None) -> Columns:
    """Return a workload's columns.

    Args:
        batch_size: of all candidates, instead of their own.
    """
    some = load.candidates

    def of(name: str) -> Floats:
        return np.array([getattr(c, name) for c in some], dtype=np.float64)

    batch = np.full(len(some), float(batch_size)) if batch_size else of("batch_size")
    rows = np.array(load.rows, dtype=np.int64)
    sizes, size_of, counts = np.unique(rows, return_inverse=True, return_counts=True)
    step_s, row_s, state = of("step_s"), of("row_s"), of("state_bytes")
    hop_s = of("hop_s") + cluster.gap_s
    train = equations.train_s(sizes[None, :], batch[:, None], step_s[:, None], row_s[:, None])
    validation_s = load.validation_rows * of("validation_row_s")
    publish_s = state * cluster.publish_byte_s
    durable_s = of("durable_s") + publish_s + state * cluster.checkpoint_byte_s
    read_row_s = float(of("read_row_s").mean())
    encode, load_byte_s = cluster.encode_byte_s, cluster.load_byte_s
    weight = train @ counts
    return Columns(
        rows=rows,
        epochs=load.epochs,
        validates=bool(load.validation_rows),
        step_s=step_s,
        row_s=row_s,
        batch_size=batch,
        train=train,
        size_of=size_of.astype(np.int64),
        train_epoch_s=weight,
        validate_s=validation_s + hop_s if load.validation_rows else np.zeros(len(some)),
        begin_s=of("build_s") + state * encode,
        take_s=equations.take_s(state, of("build_s"), load_byte_s),
        leave_s=equations.leave_s(state, hop_s, encode),
        publish_s=publish_s,
        durable_s=durable_s,
        merge_s=equations.merge_s(len(rows), state, hop_s, load_byte_s, cluster.merge_byte_s)
        + durable_s,
        read_s=np.asarray(rows * read_row_s, dtype=np.float64),
        read_validation_s=load.validation_rows * read_row_s,
        hop_s=hop_s,
        gap_s=cluster.gap_s,
        state_bytes=state,
        gradient_bytes=of("gradient_bytes"),
        memory_bytes=of("memory_bytes") + batch * of("memory_row_bytes"),
        layers=tuple(c.layers for c in some),
        exchanges=_exchanges(some),
        deviation=_mean(of("deviation"), weight),
        uncertainty=_mean(of("uncertainty"), weight),
    )


def _exchanges(candidates: Sequence[CandidateCost]) -> dict[int, Floats]:
    found: dict[int, Floats] = {}
    for place, one in enumerate(candidates):
        for members, seconds in one.exchanges:
            found.setdefault(members, np.full(len(candidates), np.nan))[place] = seconds
    return found


def _mean(values: Floats, weights: Floats) -> float:
    total = float(weights.sum())
    return float(values @ weights) / total if total else float(values.mean())


def repartitioned(load: CostedWorkload, partitions: int) -> CostedWorkload:
    """Return a workload with its rows dealt out evenly among so many partitions."""
    if partitions == len(load.rows):
        return load
    total = sum(load.rows)
    cuts = [k * total // partitions for k in range(partitions + 1)]
    rows = tuple(high - low for low, high in pairwise(cuts))
    return replace(load, rows=rows, placement={})


def in_turn(partitions: int, nodes: Sequence[str]) -> dict[int, frozenset[str]]:
    """Return the placement of partitions on nodes in turn, each on one."""
    return {p: frozenset({nodes[p % len(nodes)]}) for p in range(partitions)}


#: Up to so many workers every number is tried, above it each is about 1.25 times the last.
EVERY = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAllocations:
    """K allocations on a cluster; (K,) where nothing else is said."""

    counts: npt.NDArray[np.int64]  # (K, N) workers of each node
    workers: npt.NDArray[np.int64]
    per_node: npt.NDArray[np.int64]  # of the fullest node
    nodes: npt.NDArray[np.int64]  # that have workers
    capacity: Floats  # what the workers are worth, in workers that are alone
    node_capacity: Floats  # (K, N)

    def __len__(self) -> int:
        return len(self.workers)

    def only(self, chosen: npt.NDArray[np.bool_]) -> WorkerAllocations:
        """Return the allocations for which `chosen`, (K,), is true."""
        return WorkerAllocations(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})


def worker_allocations(
    cluster: Cluster, load: CostedWorkload, workers: int | None = None, most: int | None = None
) -> WorkerAllocations:
    """Return the allocations of a cluster: every number of workers, thin, packed, and between.

    Where partitions lie on nodes, allocations are spread evenly over them.

    Args:
        workers: None for any number; at most as many as there are slots.
        most: workers at most.
    """
    slots = np.array([node.slots for node in cluster.nodes], dtype=np.int64)
    needed = exclusive(cluster, load)
    spread = bool(load.placement)
    found: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
    for cap in _numbers(int(slots.max())):
        room = np.minimum(slots, cap)
        total = int(room.sum())
        limit = min(total, most or total)
        for wanted in [workers] if workers else _numbers(limit):
            if wanted > limit:
                continue
            counts = _level(room, wanted, needed) if spread else _fill(room, wanted)
            found.setdefault((wanted, int(counts.max())), counts)
    return allocations_of(cluster, np.array([found[key] for key in sorted(found)]))


def allocations_of(cluster: Cluster, counts: npt.NDArray[np.int64]) -> WorkerAllocations:
    """Return allocations by the workers that they have on each node, (K, N)."""
    node_capacity = _capacities(cluster.nodes, counts)
    return WorkerAllocations(
        counts=counts,
        workers=counts.sum(axis=1),
        per_node=counts.max(axis=1),
        nodes=(counts > 0).sum(axis=1),
        capacity=node_capacity.sum(axis=1),
        node_capacity=node_capacity,
    )


def exclusive(cluster: Cluster, load: CostedWorkload) -> npt.NDArray[np.int64]:
    """Return the nodes, as indices, that alone hold some partition."""
    index = {node.name: k for k, node in enumerate(cluster.nodes)}
    held = {next(iter(nodes)) for nodes in load.placement.values() if len(nodes) == 1}
    return np.array(sorted(index[name] for name in held if name in index), dtype=np.int64)


def slow(cluster: Cluster, counts: npt.NDArray[np.int64], busy: int) -> float:
    """Return the slowdown where `busy` workers are busy, spread as the allocation is."""
    workers = int(counts.sum())
    fullest = int(counts.argmax())
    there = -(-int(counts[fullest]) * min(busy, workers) // max(workers, 1))
    return slowdown_at(cluster.nodes[fullest].slowdown, there)


def _numbers(most: int) -> list[int]:
    """Return the numbers of workers to look at, up to `most`, which is one of them."""
    found = list(range(1, min(most, EVERY) + 1))
    while found[-1] < most:
        found.append(min(most, found[-1] + found[-1] // 4))
    return found


def _fill(room: npt.NDArray[np.int64], workers: int) -> npt.NDArray[np.int64]:
    """Return workers of each node, one node filled after another."""
    before = np.concatenate([[0], np.cumsum(room)[:-1]])
    return np.asarray(np.clip(workers - before, 0, room))


def _level(
    room: npt.NDArray[np.int64], workers: int, first: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return workers of each node, as even as can be; the nodes `first` come first."""
    level = 0
    while np.minimum(room, level + 1).sum() <= workers and level < room.max():
        level += 1
    counts = np.minimum(room, level)
    others = np.setdiff1d(np.arange(len(room)), first)
    order = np.concatenate([first, others])
    open_ = order[room[order] > counts[order]]
    counts[open_[: workers - int(counts.sum())]] += 1
    return np.asarray(counts)


def _capacities(nodes: tuple[ClusterNode, ...], counts: npt.NDArray[np.int64]) -> Floats:
    kinds: dict[tuple[float, ...], list[int]] = {}
    for k, node in enumerate(nodes):
        kinds.setdefault(node.slowdown, []).append(k)
    found = np.zeros(counts.shape)
    for slowdown, members in kinds.items():
        here = counts[:, members]
        worth = [0.0] + [capacity(slowdown, n + 1) for n in range(int(here.max()))]
        found[:, members] = np.array(worth)[here]
    return found
