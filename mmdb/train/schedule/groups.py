"""Groups of workers that visit as many parts at once for one candidate."""

from __future__ import annotations

from collections.abc import Sequence

from mmdb.train.schedule.places import Places
from mmdb.train.schedule.standing import Standing


def form_groups(
    standing: Standing,
    places: Places,
    size: int,
    fixed: bool,
    starts: list[tuple[int, int, int]],
) -> None:
    """Start a group for each candidate that waits, the longest first, while workers are idle.

    The last group of an epoch is smaller where the parts do not divide. A candidate whose group is
    not idle as a whole waits, and its workers are kept for it.

    Args:
        fixed: whether the next parts of the candidate's order are the ones to visit.
        starts: (candidate, worker, part) of every rank are added, rank 0 first.
    """
    waiting = standing.loose
    while waiting and places.idle:
        c = standing.ranks.top(waiting)
        waiting ^= standing.bits[c]
        parts = standing.route(c)
        wanted = min(size, len(parts))
        pairs = match(parts[:wanted] if fixed else parts, wanted, list(places.idle), places)
        for worker, part in pairs:
            places.wake(worker)
            standing.start(c, part)
            starts.append((c, worker, part))


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
