"""Simulated time on nodes whose workers slow each other down."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from mmdb.plan.equations.makespan import slowdown_at


class Clock:
    """Work under way on nodes, and which of it ends next.

    While k workers of a node are busy its work goes on at a rate of 1 / slowdown_k: each node has
    a time of its own in which it does not slow down, and its work ends in the order of that.
    """

    def __init__(self, slowdowns: Sequence[tuple[float, ...]]) -> None:
        """Begin at 0. Args: slowdowns: of each node, see `mmdb.plan.cost.Node`."""
        self.now = 0.0
        self._slowdowns = slowdowns
        self._steady = [set(s) == {1.0} for s in slowdowns]
        self._own = [0.0] * len(slowdowns)  # each node's time
        self._rate = [1.0] * len(slowdowns)
        self._looked = [0.0] * len(slowdowns)  # when its time was put right
        self._busy = [0] * len(slowdowns)
        self._stamp = [0] * len(slowdowns)  # of its last turn: what was planned before is void
        self._turned: set[int] = set()
        self._work: list[list[tuple[float, int]]] = [[] for _ in slowdowns]
        self._next: list[tuple[float, int, int]] = []  # (when, node, its stamp)
        self._waiting: list[tuple[float, int]] = []  # (when, what): work that nothing slows down

    def start(self, what: int, node: int, seconds: float, workers: int = 1) -> None:
        """Begin work of so many seconds alone; `workers` of the node are busy with it."""
        if self._steady[node]:
            self.wait(what, seconds)
            return
        self._turn(node, workers)
        heappush(self._work[node], (self._own[node] + seconds, what))

    def wait(self, what: int, seconds: float) -> None:
        """Begin something that nothing slows down, and that slows nothing down."""
        heappush(self._waiting, (self.now + seconds, what))

    def look(self) -> None:
        """Say that all that starts now has been started."""
        for node in self._turned:
            if self._work[node]:
                self._plan(node)
        self._turned.clear()

    def end(self, workers: Sequence[int]) -> int | None:
        """Go on to the next end; return what has ended, or None where nothing is under way.

        Args:
            workers: by what, how many were busy with it.
        """
        while self._next and self._next[0][2] != self._stamp[self._next[0][1]]:
            heappop(self._next)
        if self._waiting and (not self._next or self._waiting[0][0] <= self._next[0][0]):
            self.now, what = heappop(self._waiting)
            return what
        if not self._next:
            return None
        self.now, node, _ = heappop(self._next)
        _, what = heappop(self._work[node])
        self._turn(node, -workers[what])
        return what

    def _turn(self, node: int, workers: int) -> None:
        """Put a node's time right, and change how many of its workers are busy."""
        self._own[node] += (self.now - self._looked[node]) * self._rate[node]
        self._looked[node] = self.now
        self._busy[node] += workers
        self._rate[node] = 1 / slowdown_at(self._slowdowns[node], self._busy[node])
        self._stamp[node] += 1
        self._turned.add(node)

    def _plan(self, node: int) -> None:
        left = self._work[node][0][0] - self._own[node]
        when = self._looked[node] + max(left, 0.0) / self._rate[node]
        heappush(self._next, (when, node, self._stamp[node]))
