"""Which policy a run follows: the one that simulates best on its own costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mmdb.train.schedule.candidate_queue import CandidateQueue
from mmdb.train.schedule.core import POLICIES, Placement, Policy
from mmdb.train.schedule.simulate import Seconds, Simulation, simulate_load
from mmdb.train.schedule.workload import Workload

#: Costs have moved where a candidate's mean is this many times what it was, or that part of it.
MOVED = 1.25
#: Of the candidates that train, the share whose costs must have moved for another choice.
MOVED_SHARE = 0.1
#: Sigma of the noise that the simulations assume, and the seeds over which they are averaged.
NOISE, SEEDS = 0.05, (0, 1, 2)
#: Hops that all simulations of a choice take together, at most: half a second.
BUDGET = 100_000
#: Within this of the best makespan, the policy that moves fewest states is taken.
CLOSE = 1.01


def choose(
    costs: Seconds,
    slots: Mapping[str, int],
    load: Workload,
    placement: Placement,
    *,
    move_s: float = 0.0,
) -> tuple[Policy, dict[Policy, Simulation]]:
    """Return the policy that does a workload soonest, and the simulations of all.

    Args:
        costs: (M, P) expected seconds of a hop.
        slots: node -> its workers.
        load: cut to what the budget allows, see `sample`.
        move_s: seconds that a hop takes longer where the state comes from another worker.
    """
    policies = candidates_of(load, placement)
    costs, slots, placement = sample(costs, slots, placement, BUDGET // len(policies))
    load = replace(load, candidates=costs.shape[0], partitions=costs.shape[1])
    hops = load.candidates * load.visits * len(policies)
    seeds = SEEDS if hops * len(SEEDS) <= BUDGET else SEEDS[:1]
    epochs = max(1, min(load.epochs, BUDGET // (hops * len(seeds))))
    short = replace(load, epochs=epochs)
    validation = costs.mean(axis=1) if load.validates else None
    runs = {
        policy: [
            simulate_load(
                costs,
                slots,
                replace(short, seed=seed),
                placement,
                policy,
                validation=validation,
                move_s=move_s,
                noise=NOISE,
            )
            for seed in seeds
        ]
        for policy in policies
    }
    mean = {policy: np.mean([s.makespan_s for s in some]) for policy, some in runs.items()}
    moves = {policy: np.mean([s.moves for s in some]) for policy, some in runs.items()}
    best = min(policies, key=lambda p: mean[p])
    close = [p for p in policies if mean[p] <= CLOSE * mean[best] and 2 * moves[p] < moves[best]]
    best = min(close, key=lambda p: moves[p], default=best)
    return best, {policy: some[0] for policy, some in runs.items()}


def sample(
    costs: Seconds, slots: Mapping[str, int], placement: Placement, hops: int
) -> tuple[Seconds, Mapping[str, int], Placement]:
    """Return a run like the one given with at most about so many hops in an epoch.

    Every k-th candidate by cost, and every k-th node with what it holds (of a single node every
    k-th partition and as many slots less).
    """
    k = math.ceil(math.sqrt(costs.size / hops))
    if k == 1:
        return costs, slots, placement
    chosen = np.sort(np.argsort(costs.sum(axis=1), kind="stable")[::k])
    nodes = dict(list(slots.items())[::k])
    if len(slots) < k:
        nodes = {node: max(1, count // k) for node, count in slots.items()}
    parts = [p for p in range(costs.shape[1]) if p not in placement or placement[p] & nodes.keys()]
    if len(slots) < k:
        parts = parts[::k]
    names = frozenset(nodes)
    kept = {new: placement[p] & names for new, p in enumerate(parts) if p in placement}
    kept |= {p: n & names for p, n in placement.items() if p < 0 and n & names}
    return costs[chosen][:, parts], nodes, kept


def candidates_of(load: Workload, placement: Placement) -> list[Policy]:
    """Return the policies between which costs may decide.

    Rotation means nothing where partitions are everywhere, or in an order that is fixed anyway;
    affinity means nothing where every node holds one partition, so that each hop moves a state.
    """
    held = Counter(node for nodes in placement.values() for node in nodes)
    pointless = set[Policy]()
    if not load.free or not placement:
        pointless.add("rotation")
    if placement and max(held.values()) == 1 and len(placement) >= load.partitions:
        pointless.add("affinity")
    return [policy for policy in POLICIES if policy not in pointless]


class Portfolio:
    """The policy of a run, and the costs on which it was chosen."""

    def __init__(self, load: Workload, placement: Placement, policy: Policy | None) -> None:
        """Begin with a policy, or with None let the costs choose.

        Where every worker finds every partition there is nothing to choose: a state stays with its
        worker while there is slack, and the longest goes first when there is none.
        """
        self._load, self._placement = load, placement
        is_open = policy is None and bool(placement) and load.strategy == "mop"
        self._chooses = is_open and len(candidates_of(load, placement)) > 1
        self.policy: Policy = policy or "affinity"
        if self._chooses:
            self.policy = "rotation" if load.free else "longest"
        self._chosen_on: dict[int, float] = {}  # candidate -> its mean hop when the choice was made
        self._moved: set[int] = set()

    @property
    def stale(self) -> bool:
        """Whether costs have moved, or enough candidates were added, since the last choice."""
        return self._chooses and len(self._moved) > MOVED_SHARE * len(self._chosen_on)

    def note(self, candidate: int, hop_s: float) -> None:
        """Note a candidate's mean."""
        if self._chooses:
            before = self._chosen_on.get(candidate, 0.0)
            if before / MOVED <= hop_s <= before * MOVED:
                self._moved.discard(candidate)
            else:
                self._moved.add(candidate)

    def choose(self, means: Mapping[int, float], epochs: int, slots: Mapping[str, int]) -> Policy:
        """Choose by the mean hop of each candidate that trains; return the policy."""
        self._chosen_on = dict(means)
        self._moved.clear()
        if not means or not self._chooses:
            return self.policy
        column = np.array([*means.values()])[:, None]
        costs = np.broadcast_to(column, (len(means), self._load.partitions))
        load = replace(self._load, candidates=len(means), epochs=epochs)
        found = {n: c for n, c in slots.items() if any(n in x for x in self._placement.values())}
        self.policy, _ = choose(costs, found or slots, load, self._placement)
        return self.policy


class HopCosts:
    """Tells the candidates' queue and the portfolio of measured means."""

    def __init__(self, queue: CandidateQueue, portfolio: Portfolio) -> None:
        self._queue, self._portfolio = queue, portfolio
        self._unmeasured: set[int] = set()
        self._assumed_s = 0.0  # of a hop that is not measured yet
        self.slowest_s = 0.0  # the longest mean of any candidate's hops so far

    @property
    def guess_s(self) -> float:
        """Return the predicted seconds of a hop of a candidate that is new."""
        return self._assumed_s or 1.0

    @property
    def stale(self) -> bool:
        """Whether all costs are known, and the policy was chosen on others."""
        return self._portfolio.stale and not self._unmeasured

    def add(self, candidate: int, hop_s: float | None) -> None:
        """Note a new candidate, with its mean where it is known."""
        if hop_s is None:
            self._unmeasured.add(candidate)
        else:
            self._assume(hop_s)

    def measure(self, candidate: int, hop_s: float) -> None:
        """Note a candidate's mean."""
        self._unmeasured.discard(candidate)
        self._queue.weigh(candidate, max(hop_s, 1e-9))
        self._portfolio.note(candidate, hop_s)
        self._assume(hop_s)

    def _assume(self, hop_s: float) -> None:
        """Take a hop not measured yet for the slowest: begun too late, it would end last."""
        self.slowest_s = max(self.slowest_s, hop_s)
        if self.slowest_s > MOVED * self._assumed_s:
            self._assumed_s = self.slowest_s
            for other in self._unmeasured:
                self._queue.weigh(other, self.slowest_s)
