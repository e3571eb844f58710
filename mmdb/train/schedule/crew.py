"""The workers that a run may use: their names, the nodes they stand on, and which are up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mmdb.train.schedule.core import Core
from mmdb.train.schedule.layout import Layout


class Crew:
    """Worker names as the numbers of a core."""

    def __init__(self, core: Core, layout: Layout) -> None:
        self._core, self._layout = core, layout
        self.names: list[str] = []
        self.numbers: dict[str, int] = {}
        self.node_of: dict[str, str] = {}  # of the workers that are up

    def enlist(self, worker: str, node: str) -> None:
        """Note that a worker is up, on a node, with a fresh session."""
        place = self._layout.node(self._core, node)
        if worker not in self.numbers:
            self.numbers[worker] = self._core.add_worker(place)
            self.names.append(worker)
        number = self.numbers[worker]
        self._core.withdraw(number)
        self._core.places.node_of[number] = place
        self._core.warm[number] = 0
        self.node_of[worker] = node
        self._core.crew = len(self.node_of)

    def dismiss(self, worker: str) -> int | None:
        """Note that a worker is not up; return its number if it ever was."""
        self.node_of.pop(worker, None)
        self._core.crew = len(self.node_of)
        number = self.numbers.get(worker)
        if number is not None:
            self._core.withdraw(number)
        return number

    def offer(self, idle: Iterable[str]) -> None:
        """Say which workers, and no others, may be given something to do."""
        for worker in idle:
            if worker not in self.node_of:
                self.enlist(worker, "")
        offered = dict.fromkeys(self.numbers[w] for w in idle)
        resting = self._core.places.idle
        for number in [n for n in resting if n not in offered]:
            self._core.withdraw(number)
        for number in offered:
            if number not in resting:
                self._core.offer(number)

    def slots(self) -> Counter[str]:
        """Return how many workers are up on each node."""
        return Counter(self.node_of.values())
