"""What it costs to store, keep, recompute or stream the features of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Frozen layers that candidates of a run have in common, and their features.

    Attributes:
        key: names it in the plan.
        backbone: equal for prefixes of one network with the same tensors.
        candidates: that train on its features.
        passes: over the rows, of each candidate: epochs, a mean where they differ.
        rows: of all partitions, those of validation too.
        row_s: seconds in which a row passes the layers, from the raw rows on.
        disk_bytes: of all rows in the database, as they are stored.
        cache_bytes: of all rows in a node's cache, decoded.
        partition_bytes: of the largest partition, decoded.
        raw_bytes: of all raw rows, decoded; what streaming reads instead.
        found_rows: whose features the database has already.
        is_source: deeper features can be computed from these: float32, not pooled.
        fixed: the only possible choice, and why; "streamed" or "whole".
    """

    key: str
    backbone: str
    candidates: int
    passes: float
    rows: int
    row_s: float
    disk_bytes: int
    cache_bytes: int
    partition_bytes: int
    raw_bytes: int = 0
    found_rows: int = 0
    is_source: bool = False
    fixed: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Where a run trains, and the budgets of its features.

    Attributes:
        disk_bytes: that the features may take in the database.
        memory_bytes: that they may take on each node, outside of the database.
        write_byte_s, read_byte_s: seconds in which a byte is encoded and written to the database,
            or read from it and decoded into a node's cache.
        map_byte_s: seconds in which a hop takes a byte of rows out of the cache.
        nodes: that train on each partition.
        workers: on each node.
        fuse: candidates of a fused hop, at most; 1: none is fused.
        reuse: later runs that will use what is stored now, and compute the rest again.
    """

    disk_bytes: int
    memory_bytes: int
    write_byte_s: float
    read_byte_s: float
    map_byte_s: float = 0.0
    nodes: int = 1
    workers: int = 1
    fuse: int = 1
    reuse: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCost:
    """Seconds of all workers in one run.

    Attributes:
        compute_s: in the frozen layers. What a pass has in common is with the shallowest prefix
            that comes out of it.
        write_s: into the database.
        read_s: out of the database, and of rows out of the cache.
    """

    compute_s: float = 0.0
    write_s: float = 0.0
    read_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds altogether."""
        return self.compute_s + self.write_s + self.read_s


#: What can be chosen, in the order in which one of several that cost the same is taken.
OPTIONS = ("stored", "memory", "recomputed", "streamed")
#: Rows that a pass over a chain needs at a cut: on the node that computes what is stored, on each
#: other node, and in a later run.
Need = tuple[int, int, int]
NOTHING: Need = (0, 0, 0)
#: What a choice that was not asked for counts as, beside its seconds.
UNASKED_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The demands of a run, and what is possible for each.

    Attributes:
        chains: places of the demands of each backbone, the deepest first.
        step_s: seconds of a row from the next shallower demand of the chain on.
        asked: what is to be chosen wherever it fits, whatever it costs.
    """

    demands: tuple[Demand, ...]
    conditions: Conditions
    chains: tuple[tuple[int, ...], ...]
    step_s: tuple[float, ...]
    asked: str | None = None

    @classmethod
    def of(
        cls, demands: Sequence[Demand], conditions: Conditions, asked: str | None = None
    ) -> Problem:
        """Return the problem of choosing for these demands; see `choose`."""
        chains: dict[str, list[int]] = {}
        for place, demand in enumerate(demands):
            chains.setdefault(demand.backbone, []).append(place)
        steps = [demand.row_s for demand in demands]
        for chain in chains.values():
            chain.sort(key=lambda place: -demands[place].row_s)
            for deep, shallow in pairwise(chain):
                steps[deep] -= demands[shallow].row_s
        return cls(
            demands=tuple(demands),
            conditions=conditions,
            chains=tuple(map(tuple, chains.values())),
            step_s=tuple(steps),
            asked=asked,
        )

    def options(self, place: int) -> tuple[str, ...]:
        """Return the choices for a demand that the budgets allow, if nothing else is kept."""
        return tuple(c for c in self.possible(place) if self.fits_alone(place, c))

    def possible(self, place: int) -> tuple[str, ...]:
        """Return the choices for a demand, were there no budgets."""
        demand = self.demands[place]
        if demand.fixed is not None:
            return (demand.fixed[0],)
        if self.asked is not None:
            return tuple(c for c in OPTIONS if c in (self.asked, "streamed"))
        is_found = demand.found_rows >= demand.rows  # then it is read, not computed for a cache
        return tuple(c for c in OPTIONS if c != "memory" or not is_found)

    def fits_alone(self, place: int, choice: str) -> bool:
        """Return whether a choice is within the budgets where nothing else is kept."""
        given = self.conditions
        disk, memory = self.disk_bytes(place, choice), self.memory_bytes(place, choice)
        return disk <= given.disk_bytes and memory <= given.memory_bytes

    # -- bytes --------------------------------------------------------------------

    def disk_bytes(self, place: int, choice: str) -> int:
        """Return the bytes that the database grows by."""
        demand = self.demands[place]
        if choice != "stored":
            return 0
        return ceil(demand.disk_bytes * (1 - demand.found_rows / max(1, demand.rows)))

    def memory_bytes(self, place: int, choice: str) -> int:
        """Return the bytes that a choice alone takes on a node."""
        demand = self.demands[place]
        if choice == "memory":
            return demand.cache_bytes
        if choice == "recomputed":
            return demand.partition_bytes * self.conditions.workers
        return 0

    def bytes_of(self, choices: Sequence[str]) -> tuple[int, int]:
        """Return the bytes of choices together: in the database, and on a node.

        A worker holds the features of one partition that it recomputed, whatever prefix they are
        of.
        """
        kept = [self.memory_bytes(i, c) for i, c in enumerate(choices) if c == "memory"]
        held = [self.memory_bytes(i, c) for i, c in enumerate(choices) if c == "recomputed"]
        disk = sum(self.disk_bytes(i, c) for i, c in enumerate(choices))
        return disk, sum(kept) + max(held, default=0)

    def fits(self, choices: Sequence[str]) -> bool:
        """Return whether choices are within the budgets."""
        disk, memory = self.bytes_of(choices)
        return disk <= self.conditions.disk_bytes and memory <= self.conditions.memory_bytes

    # -- seconds ------------------------------------------------------------------

    def apart(self, place: int, choice: str) -> FeatureCost:
        """Return what a choice costs in this run, without the passes that it shares."""
        demand, given = self.demands[place], self.conditions
        uses = demand.candidates * demand.passes
        mapped = uses * demand.cache_bytes * given.map_byte_s
        if choice == "stored":
            fresh = self.disk_bytes(place, choice)  # lie in the cache of the node that computes
            read = given.nodes * demand.disk_bytes - fresh
            return FeatureCost(
                write_s=fresh * given.write_byte_s, read_s=read * given.read_byte_s + mapped
            )
        if choice == "memory":
            return FeatureCost(read_s=mapped)
        raw = demand.raw_bytes * given.map_byte_s
        if choice == "recomputed":
            hops = self.hops(place)
            return FeatureCost(
                compute_s=hops * demand.rows * demand.row_s, read_s=hops * raw + mapped
            )
        return FeatureCost(compute_s=uses * demand.rows * demand.row_s, read_s=uses * raw)

    def hops(self, place: int) -> float:
        """Return how often the features of a partition are needed, once for a fused hop."""
        demand, given = self.demands[place], self.conditions
        share = ceil(demand.candidates / (given.nodes * given.workers))  # none waits for a fellow
        return demand.passes * ceil(demand.candidates / max(1, min(given.fuse, share)))

    def streamed_s(self, place: int) -> float:
        """Return the seconds of this run without sharing."""
        return self.apart(place, "streamed").seconds

    def weight_s(self, place: int, choice: str) -> float:
        """Return the seconds of `apart` in this run and the later ones, which are to be few."""
        given = self.conditions
        cost = again = self.apart(place, choice)
        if choice == "stored":  # all of it is read then, and nothing is written
            fresh = self.disk_bytes(place, choice)
            again = FeatureCost(read_s=cost.read_s + fresh * given.read_byte_s)
        unasked = self.asked is not None and choice != self.asked
        return cost.seconds + given.reuse * again.seconds + unasked * UNASKED_S

    def pass_step(self, place: int, choice: str, need: Need) -> tuple[Need, float, float]:
        """Go one demand up a chain.

        Args:
            need: of the deeper demands.
        Returns:
            the need at this cut; seconds to read this one's stored features for deeper ones; and
            seconds to compute those needed here from the next shallower demand on: both of this run
            and the later ones.
        """
        demand = self.demands[place]
        need, read_s = self._sources(place, choice, need)
        if choice == "stored":
            need = (max(need[0], demand.rows - demand.found_rows), *need[1:])
        elif choice == "memory":
            need = (max(need[0], demand.rows), max(need[1], demand.rows), max(need[2], demand.rows))
        return need, read_s, self.step_s[place] * self._weigh(need)

    def _sources(self, place: int, choice: str, need: Need) -> tuple[Need, float]:
        """Take stored features for what deeper ones need, where reading them is faster."""
        demand = self.demands[place]
        is_found = demand.is_source and demand.found_rows >= demand.rows
        is_there = (is_found, is_found, demand.is_source and (is_found or choice == "stored"))
        cost_s = 0.0 if choice == "stored" else demand.disk_bytes * self.conditions.read_byte_s
        left, read_s = list(need), 0.0
        for stream, (rows, weight) in enumerate(zip(need, self._weights(), strict=True)):
            if rows and is_there[stream] and cost_s <= rows * demand.row_s:
                left[stream] = 0
                read_s += weight * cost_s
        return (left[0], left[1], left[2]), read_s

    def _weights(self) -> tuple[int, int, int]:
        given = self.conditions
        return 1, given.nodes - 1, given.nodes * given.reuse

    def _weigh(self, need: Need) -> float:
        return sum(w * n for w, n in zip(self._weights(), need, strict=True))

    def total_s(self, choices: Sequence[str]) -> float:
        """Return the seconds of this run and the later ones, which are to be few."""
        return sum(self.chain_s(chain, choices) for chain in self.chains)

    def chain_s(self, chain: Sequence[int], choices: Sequence[str] | Mapping[int, str]) -> float:
        """Return `total_s` of one chain."""
        total, need = 0.0, NOTHING
        for place in chain:
            need, read_s, compute_s = self.pass_step(place, choices[place], need)
            total += self.weight_s(place, choices[place]) + read_s + compute_s
        return total

    def costs(self, choices: Sequence[str]) -> tuple[FeatureCost, ...]:
        """Return what each choice costs in this run; their sum is what the run costs."""
        costs = [self.apart(place, choice) for place, choice in enumerate(choices)]
        for place, read_s, compute_s in self._passes(choices):
            cost = costs[place]
            costs[place] = FeatureCost(
                compute_s=cost.compute_s + compute_s,
                write_s=cost.write_s,
                read_s=cost.read_s + read_s,
            )
        return tuple(costs)

    def _passes(self, choices: Sequence[str]) -> Iterator[tuple[int, float, float]]:
        """Yield which demand bears what part of its backbone's pass in this run."""
        now = replace(self, conditions=replace(self.conditions, reuse=0))
        for chain in self.chains:
            need, bearer = NOTHING, chain[0]
            for place in chain:
                need, read_s, compute_s = now.pass_step(place, choices[place], need)
                yield bearer, read_s, 0.0
                if self.is_computed_once(place, choices[place]):
                    bearer = place
                yield bearer, 0.0, compute_s

    def is_computed_once(self, place: int, choice: str) -> bool:
        """Return whether a choice takes part in the pass of its backbone."""
        demand = self.demands[place]
        return choice == "memory" or (choice == "stored" and demand.found_rows < demand.rows)
