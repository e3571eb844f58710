"""Where parts lie and workers stand, on integers alone; groups of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mmdb.train.schedule.candidate_queue import CandidateQueue


def ring_of(placement: Mapping[int, frozenset[str]], partitions: int) -> tuple[int, ...]:
    """Return the part ordinals in the order in which candidates rotate through them.

    Neighbours lie on different nodes as far as possible, so that candidates that start one part
    after another meet nobody while they keep step.
    """
    seen: dict[frozenset[str], int] = {}
    turns = []
    for part in range(partitions):
        nodes = placement.get(part, frozenset())
        seen[nodes] = seen.get(nodes, -1) + 1
        turns.append((seen[nodes], part))
    return tuple(part for _, part in sorted(turns))


class Places:
    """Nodes with the parts that they hold, workers with their node, and who is idle."""

    __slots__ = (
        "_by_part",
        "_held",
        "_idle_on",
        "_shared",
        "anywhere",
        "can",
        "everywhere",
        "idle",
        "node_of",
        "open_parts",
        "parts_of",
    )

    def __init__(self, anywhere: int, everywhere: bool) -> None:
        """Begin without nodes.

        Args:
            anywhere: set of the parts that every worker finds.
            everywhere: whether those are all parts that there are.
        """
        self.anywhere, self.everywhere = anywhere, everywhere
        self.can: list[int] = []  # of each node: the set of parts that it finds
        self.parts_of: list[tuple[int, ...]] = []  # the same as numbers
        self.node_of: list[int] = []  # of each worker
        self.idle: dict[int, None] = {}  # workers, longest idle first
        self.open_parts = 0  # that an idle worker finds
        self._held: list[int] = []  # of each node: the parts not found anywhere
        self._idle_on: list[dict[int, None]] = []
        self._by_part: dict[int, list[int]] = {}  # nodes of a part that lies somewhere
        self._shared = False  # whether two nodes hold the same part

    def add_node(self, parts: Sequence[int]) -> int:
        """Add a node that holds `parts` besides those found anywhere; return its number."""
        found = self.anywhere
        for part in parts:
            found |= 1 << part
            holders = self._by_part.setdefault(part, [])
            holders.append(len(self.can))
            self._shared |= len(holders) > 1
        self.can.append(found)
        self._held.append(found & ~self.anywhere)
        self.parts_of.append(tuple(p for p in range(found.bit_length()) if found >> p & 1))
        self._idle_on.append({})
        return len(self.can) - 1

    def add_worker(self, node: int) -> int:
        """Add a worker; return its number."""
        self.node_of.append(node)
        return len(self.node_of) - 1

    def rest(self, worker: int) -> None:
        """Let a worker be idle."""
        node = self.node_of[worker]
        self.idle[worker] = None
        self._idle_on[node][worker] = None
        self.open_parts |= self.can[node]

    def wake(self, worker: int) -> None:
        """Let an idle worker be idle no more."""
        node = self.node_of[worker]
        del self.idle[worker]
        del self._idle_on[node][worker]
        if not self.idle:
            self.open_parts = 0
        elif not self._idle_on[node]:
            if self._shared:
                self.open_parts = 0
                for other, idle in enumerate(self._idle_on):
                    if idle:
                        self.open_parts |= self.can[other]
            else:
                self.open_parts ^= self._held[node]

    def idle_at(self, part: int) -> int:
        """Return a worker that is idle and finds `part`, which is one of the open parts."""
        for node in self._by_part.get(part, ()):
            for worker in self._idle_on[node]:
                return worker
        return next(iter(self.idle))


def form_groups(
    queue: CandidateQueue,
    places: Places,
    size: int,
    fixed: bool,
    starts: list[tuple[int, int, int]],
    *,
    rests: bool,
) -> None:
    """Start a group for each candidate that waits, the longest first, while workers are idle.

    The last group of an epoch is smaller where the parts do not divide. A candidate whose group is
    not idle as a whole waits, and its workers are kept for it. Where no worker has anything to do,
    and those who find their parts are too few for the next candidate, all but its first rank take
    parts from elsewhere.

    Args:
        fixed: whether the next parts of the candidate's order are the ones to visit.
        starts: (candidate, worker, part) of every rank are added, rank 0 first.
        rests: whether no worker that is up has anything to do.
    """
    waiting = queue.loose
    while waiting and places.idle:
        c = queue.ranks.top(waiting)
        waiting ^= queue.bits[c]
        parts = queue.route(c)
        wanted = min(size, len(parts))
        pairs = match(parts[:wanted] if fixed else parts, wanted, list(places.idle), places)
        if rests and not pairs and not starts:
            pairs = _around_first(parts[:wanted], list(places.idle), places)
        for worker, part in pairs:
            places.wake(worker)
            queue.start(c, part)
            starts.append((c, worker, part))


def _around_first(
    parts: Sequence[int], workers: Sequence[int], places: Places
) -> list[tuple[int, int]]:
    """Return pairs (worker, part) of which the first worker alone finds its part, or none."""
    for worker in workers:
        if places.can[places.node_of[worker]] >> parts[0] & 1 and len(workers) >= len(parts):
            others = [other for other in workers if other != worker]
            return list(zip((worker, *others), parts, strict=False))
    return []


def match(
    parts: Sequence[int], wanted: int, workers: Sequence[int], places: Places
) -> list[tuple[int, int]]:
    """Return `wanted` pairs (worker, part) of workers that find their parts, or none at all.

    Pairs come in the order of `parts`. A bipartite matching by augmenting paths (Kuhn 1955).
    """
    holder: dict[int, int] = {}  # worker -> index of its part
    found = 0
    for index in range(len(parts)):
        found += _place(index, parts, workers, places, holder, set())
        if found == wanted:
            break
    if found < wanted:
        return []
    return [(worker, parts[k]) for k, worker in sorted((k, w) for w, k in holder.items())]


def _place(
    index: int,
    parts: Sequence[int],
    workers: Sequence[int],
    places: Places,
    holder: dict[int, int],
    tried: set[int],
) -> bool:
    for worker in workers:
        if worker in tried or not places.can[places.node_of[worker]] >> parts[index] & 1:
            continue
        tried.add(worker)
        if worker not in holder or _place(holder[worker], parts, workers, places, holder, tried):
            holder[worker] = index
            return True
    return False
