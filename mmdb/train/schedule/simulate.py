"""Simulates a run with the code that schedules real ones, and bounds its makespan."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Literal

import numpy as np
import numpy.typing as npt

from mmdb.train.schedule.core import Core, Placement, Policy, RunLayout
from mmdb.train.schedule.workload import Workload


def lower_bound(
    work: npt.NDArray[np.float64],
    slots: Mapping[str, int],
    placement: Placement,
    *,
    chain_s: float | None = None,
) -> float:
    """Return the seconds that no schedule can go below.

    The longest of: a candidate's own hops one after another; what only one node can do, shared by
    its slots; everything, shared by all slots (open shop; Gonzalez and Sahni, JACM 23(4) 1976).

    Args:
        work: (M, P) seconds of every candidate on every partition, all epochs added up.
        slots: node -> its workers.
        placement: see `Placement`.
        chain_s: the longest chain of hops, where a candidate is in several places at once.
    """
    by_part = work.sum(axis=0)
    bound = by_part.sum() / sum(slots.values())
    longest = work.sum(axis=1).max(initial=0.0) if chain_s is None else chain_s
    for node, count in slots.items():
        alone = [p for p, nodes in placement.items() if nodes == {node} and p >= 0]
        bound = max(bound, by_part[alone].sum() / count)
    return float(max(bound, longest))


Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What a simulated run came to; seconds."""

    makespan_s: float
    lower_bound_s: float
    idle_s: tuple[float, ...]  # of every worker, until the makespan
    hops: int
    moves: int  # hops on another worker than the candidate's one before
    policy: Policy

    @property
    def ratio(self) -> float:
        """Return makespan / lower bound."""
        return self.makespan_s / self.lower_bound_s if self.lower_bound_s else 1.0


def simulate(
    costs: Seconds,
    slots: int | Mapping[str, int],
    *,
    placement: Placement | None = None,
    epochs: int = 1,
    policy: Policy = "affinity",
    order: Literal["free", "fixed"] = "free",
    strategy: str = "mop",
    group: int = 1,
    validation: Seconds | None = None,
    merge: Seconds | None = None,
    move_s: float = 0.0,
    sync_s: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
) -> Simulation:
    """Return what a run comes to.

    Args:
        costs: (M, P) seconds of a hop, as the schedule expects them.
        slots: workers; of each node, if there are several.
        placement: part ordinal -> its nodes; left out, every worker finds every part.
        validation: (M,) seconds of a validation hop; None for none.
        merge: (M,) seconds of a merge, for `model_average`; None for 0.
        move_s: seconds that a hop takes longer where the state comes from another worker.
        sync_s: seconds that a group's hop takes longer than its longest partition.
        noise: sigma of the lognormal factor of every hop, which the schedule does not know.
        seed: of the noise, and of the fixed order.
    Raises:
        ValueError: a partition lies where no worker is, or a shape does not fit.
    """
    candidates, partitions = costs.shape
    load = Workload(
        candidates=candidates,
        partitions=partitions,
        epochs=epochs,
        seed=seed,
        validates=validation is not None,
        free=order == "free",
        strategy=strategy,
        group=group,
    )
    return simulate_load(
        costs,
        {"": slots} if isinstance(slots, int) else slots,
        load,
        placement or {},
        policy,
        validation=validation,
        merge=merge,
        move_s=move_s,
        sync_s=sync_s,
        noise=noise,
    )


def simulate_load(
    costs: Seconds,
    slots: Mapping[str, int],
    load: Workload,
    placement: Placement,
    policy: Policy,
    *,
    validation: Seconds | None = None,
    merge: Seconds | None = None,
    move_s: float = 0.0,
    sync_s: float = 0.0,
    noise: float = 0.0,
) -> Simulation:
    """Return what a workload comes to; see `simulate`. Its seed draws the noise too."""
    run = _SimulatedRun(load, slots, placement, policy, move_s, sync_s)
    zeros = np.zeros(load.candidates)
    extra = [zeros if x is None else x for x in (merge, validation)]
    ring = list(run.layout.ordinals[: load.partitions])
    run.costs = np.column_stack([costs[:, ring], *extra])
    run.noise, run.source = noise, np.random.default_rng(load.seed)
    return run.simulate()


class _SimulatedRun:
    costs: Seconds  # (M, P + 2), in the order of the core's parts
    noise: float
    source: np.random.Generator

    def __init__(
        self,
        load: Workload,
        slots: Mapping[str, int],
        placement: Placement,
        policy: Policy,
        move_s: float,
        sync_s: float,
    ) -> None:
        self.layout = RunLayout(load, placement)
        self._load, self._slots, self._placement = load, slots, placement
        self._move_s, self._sync_s = move_s, sync_s
        self._core: Core = self.layout.core(policy)
        for node, count in slots.items():
            for _ in range(count):
                self._core.add_worker(self.layout.node(self._core, node))
        self._epochs: list[list[array[float]]] = []  # seconds by epoch, candidate, part
        self._work = np.zeros((load.candidates, load.partitions + 2))
        self._chain_s = np.zeros(load.candidates)
        self._moves = self._hops = 0

    def simulate(self) -> Simulation:
        """Run until nothing is left."""
        core, load = self._core, self._load
        queue = core.queue
        weights = self.costs.sum(axis=1) / queue.visits
        for c, weight in enumerate(weights.tolist()):
            queue.add(0, load.epochs, 0, c % load.partitions - 1, weight)
        workers = core.crew = len(core.warm)
        for worker in range(workers):
            core.offer(worker)
        busy_s = [0.0] * workers
        now = self._groups(busy_s) if core.strategy.group > 1 else self._solo(busy_s)
        if any(map(queue.active, range(load.candidates))):
            raise ValueError("A partition lies on no node that has a worker.")
        return Simulation(
            makespan_s=now,
            lower_bound_s=self._bound_s(),
            idle_s=tuple(now - busy for busy in busy_s),
            hops=self._hops,
            moves=self._moves,
            policy=core.policy,
        )

    def _solo(self, busy_s: list[float]) -> float:
        core, queue, move_s = self._core, self._core.queue, self._move_s
        epoch, home, drawn = queue.epoch, queue.home, self._epochs
        ends: list[tuple[float, int, int, int]] = []
        now, hops, moves = 0.0, 0, 0
        starts, ended = core.decide(), False
        while True:
            for c, worker, part in starts:
                number = epoch[c]
                if number >= len(drawn):
                    self._seconds(number)
                seconds = drawn[number][c][part]
                if home[c] != worker and home[c] >= 0:
                    moves += 1
                    seconds += move_s
                busy_s[worker] += seconds
                if ended:  # one start takes the place of what has ended
                    heapreplace(ends, (now + seconds, worker, c, part))
                    ended = False
                else:
                    heappush(ends, (now + seconds, worker, c, part))
            if ended:
                heappop(ends)
            if not ends:
                self._hops, self._moves = hops, moves
                return now
            now, worker, c, part = ends[0]
            ended = True
            hops += 1
            core.done(c, worker, part)
            core.offer(worker)
            starts = core.decide()

    def _groups(self, busy_s: list[float]) -> float:
        core, queue = self._core, self._core.queue
        ends: list[tuple[float, int, list[tuple[int, int]]]] = []
        now = 0.0
        while True:
            members: dict[int, list[tuple[int, int]]] = {}
            for c, worker, part in core.decide():
                members.setdefault(c, []).append((worker, part))
            for c, group in members.items():
                seconds = max(self._seconds(queue.epoch[c])[c][part] for _, part in group)
                seconds += self._sync_s if len(group) > 1 else 0.0
                for worker, _ in group:
                    busy_s[worker] += seconds
                heappush(ends, (now + seconds, c, group))
            if not ends:
                return now
            now, c, group = heappop(ends)
            self._hops += 1
            for worker, part in group:
                core.done(c, worker, part)
                core.offer(worker)

    def _seconds(self, epoch: int) -> list[array[float]]:
        while epoch >= len(self._epochs):
            drawn = self.costs
            if self.noise:
                drawn = drawn * np.exp(self.source.normal(0.0, self.noise, drawn.shape))
            self._work += drawn
            train = drawn[:, : self._load.partitions]
            self._chain_s += train.max(axis=1) + drawn[:, self._load.partitions :].sum(axis=1)
            self._epochs.append([array("d", row.tobytes()) for row in drawn])
        return self._epochs[epoch]

    def _bound_s(self) -> float:
        placed = {self.layout.part_of[o]: nodes for o, nodes in self._placement.items()}
        chain_s = None
        if not self._core.strategy.alone:
            chain_s = float(self._chain_s.max())
        elif self._core.strategy.group > 1:
            chain_s = float(self._work.sum(axis=1).max()) / self._core.strategy.group
        return lower_bound(self._work, self._slots, placed, chain_s=chain_s)
