"""A core over the partitions and nodes of a run, and the names behind its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mmdb.train.schedule.core import Core, Policy
from mmdb.train.schedule.places import Places, ring_of
from mmdb.train.schedule.strategy import strategy_of
from mmdb.train.schedule.workload import Workload
from mmdb.train.seeds import MERGE, VALIDATION, visit_order

#: Part ordinal -> the nodes that hold it; a part that is missing is found on every node.
Placement = Mapping[int, frozenset[str]]


class Layout:
    """Part ordinals and node names as the numbers of a core.

    Train parts are numbered in the order in which candidates rotate through them.
    """

    def __init__(self, load: Workload, placement: Placement) -> None:
        ring = ring_of(placement, load.partitions)
        self.ordinals = (*ring, MERGE, VALIDATION)
        self.part_of = {ordinal: part for part, ordinal in enumerate(self.ordinals)}
        self.node_of: dict[str, int] = {}
        self.used = 0  # set of the parts that an epoch has
        self._load, self._placement = load, placement
        self._base: dict[int, tuple[int, ...]] = {}  # epoch -> candidate 0's order

    def core(self, policy: Policy) -> Core:
        """Return a core without candidates and workers."""
        load = self._load
        strategy = strategy_of(load.strategy, load.group)
        train, merge = (1 << load.partitions) - 1, 1 << load.partitions
        stages = strategy.stages(train, merge, merge << 1 if load.validates else 0)
        placed = self.set_of(self._placement)
        self.used = sum(stages)
        places = Places(self.used & ~placed, not self.used & placed)
        route = None if load.free else self.route
        return Core(strategy, stages, load.partitions, places, policy, route)

    def node(self, core: Core, name: str) -> int:
        """Return the number of a node, which is added when it is first seen."""
        if core.places.everywhere:
            name = ""  # one node is as good as another
        if name not in self.node_of:
            held = [self.part_of[o] for o, nodes in self._placement.items() if name in nodes]
            held = [part for part in held if self.used >> part & 1]
            self.node_of[name] = core.places.add_node(held)
        return self.node_of[name]

    def set_of(self, ordinals: Sequence[int] | Mapping[int, object]) -> int:
        """Return part ordinals as a set of parts."""
        return sum(1 << self.part_of[ordinal] for ordinal in ordinals)

    def route(self, candidate: int, epoch: int) -> list[int]:
        """Return the parts in the order of `visit_order`."""
        load = self._load
        if epoch not in self._base:
            if len(self._base) > 64:
                self._base.clear()
            order = visit_order(load.seed, 0, epoch, load.partitions)
            self._base[epoch] = tuple(self.part_of[ordinal] for ordinal in order)
        base, start = self._base[epoch], candidate % load.partitions
        return [*base[start:], *base[:start]]
