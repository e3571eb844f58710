"""Crews: how many workers stand on which node. Every crew that is worth a look, as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from mmdb.plan.cost import Cluster, Load, Node
from mmdb.plan.equations.hop import Floats
from mmdb.plan.equations.makespan import capacity, slowdown_at

#: Up to so many workers every number is tried, above it each is about 1.25 times the last.
EVERY = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Crews:
    """K crews on a cluster; (K,) where nothing else is said."""

    counts: npt.NDArray[np.int64]  # (K, N) workers of each node
    workers: npt.NDArray[np.int64]
    per_node: npt.NDArray[np.int64]  # of the fullest node
    nodes: npt.NDArray[np.int64]  # that have workers
    capacity: Floats  # what the workers are worth, in workers that are alone
    node_capacity: Floats  # (K, N)

    def __len__(self) -> int:
        return len(self.workers)

    def only(self, chosen: npt.NDArray[np.bool_]) -> Crews:
        """Return the crews for which `chosen`, (K,), is true."""
        return Crews(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})


def crews(
    cluster: Cluster, load: Load, workers: int | None = None, most: int | None = None
) -> Crews:
    """Return the crews of a cluster: every number of workers, spread thin, packed, and between.

    Where partitions lie on nodes, crews are spread evenly over them.

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
    return crews_of(cluster, np.array([found[key] for key in sorted(found)]))


def crews_of(cluster: Cluster, counts: npt.NDArray[np.int64]) -> Crews:
    """Return crews by the workers that they have on each node, (K, N)."""
    node_capacity = _capacities(cluster.nodes, counts)
    return Crews(
        counts=counts,
        workers=counts.sum(axis=1),
        per_node=counts.max(axis=1),
        nodes=(counts > 0).sum(axis=1),
        capacity=node_capacity.sum(axis=1),
        node_capacity=node_capacity,
    )


def exclusive(cluster: Cluster, load: Load) -> npt.NDArray[np.int64]:
    """Return the nodes, as indices, that alone hold some partition."""
    index = {node.name: k for k, node in enumerate(cluster.nodes)}
    held = {next(iter(nodes)) for nodes in load.placement.values() if len(nodes) == 1}
    return np.array(sorted(index[name] for name in held if name in index), dtype=np.int64)


def slow(cluster: Cluster, counts: npt.NDArray[np.int64], busy: int) -> float:
    """Return the slowdown where `busy` workers of a crew are busy, spread as its workers are."""
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


def _capacities(nodes: tuple[Node, ...], counts: npt.NDArray[np.int64]) -> Floats:
    kinds: dict[tuple[float, ...], list[int]] = {}
    for k, node in enumerate(nodes):
        kinds.setdefault(node.slowdown, []).append(k)
    found = np.zeros(counts.shape)
    for slowdown, members in kinds.items():
        here = counts[:, members]
        worth = [0.0] + [capacity(slowdown, n + 1) for n in range(int(here.max()))]
        found[:, members] = np.array(worth)[here]
    return found
