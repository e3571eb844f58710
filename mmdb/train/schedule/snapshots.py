"""How far every candidate is, as values that do not change when the schedule goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from mmdb.train.schedule.candidate_queue import CandidateQueue
from mmdb.train.schedule.workload import TrainingProgress

#: Share of the newest hop in the mean of a candidate's hops.
NEWEST = 0.3


class Snapshots(Sequence[TrainingProgress]):
    """`TrainingProgress` by candidate ordinal; made when it is looked at."""

    def __init__(self, queue: CandidateQueue, workers: Sequence[str]) -> None:
        """Begin without candidates; `workers` are the names behind the numbers in `queue`."""
        self._queue, self._workers = queue, workers
        self._made: list[TrainingProgress | None] = []
        self._visited: list[list[int]] = []
        self._failures: list[int] = []
        self._losses: list[int] = []
        self._published: list[bool] = []
        self._hop_s: list[float | None] = []

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> TrainingProgress: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TrainingProgress, ...]: ...
    def __getitem__(self, index: int | slice) -> TrainingProgress | tuple[TrainingProgress, ...]:
        if isinstance(index, slice):
            return tuple(self[c] for c in range(*index.indices(len(self))))
        made = self._made[index]
        if made is None:
            made = self._made[index] = self._make(index % len(self))
        return made

    def _make(self, c: int) -> TrainingProgress:
        home = self._queue.home[c]
        return TrainingProgress(
            epoch=self._queue.epoch[c],
            visited=tuple(self._visited[c]),
            closed=self._queue.closed[c],
            failures=self._failures[c],
            losses=self._losses[c],
            home=self._workers[home] if home >= 0 else None,
            published=self._published[c],
            hop_s=self._hop_s[c],
        )

    def add(self, progress: TrainingProgress, visited: Sequence[int]) -> None:
        """Add a candidate that has visited so much of its epoch."""
        self._made.append(None)
        self._visited.append(list(visited))
        self._failures.append(progress.failures)
        self._losses.append(progress.losses)
        self._published.append(True)
        self._hop_s.append(progress.hop_s)

    def touch(self, c: int) -> None:
        """Note that something about a candidate has changed."""
        self._made[c] = None

    def visited(self, c: int) -> Sequence[int]:
        """Return the part ordinals that a candidate has visited in its epoch, in order."""
        return self._visited[c]

    def visit(self, c: int, ordinal: int, *, ends: bool) -> None:
        """Note that a part is done, and whether the epoch ends with it."""
        self._visited[c].append(ordinal)
        if ends:
            self._visited[c].clear()
        self.forgive(c)

    def measure(self, c: int, seconds: float) -> float:
        """Note the seconds of a hop, and return the candidate's mean."""
        before = self._hop_s[c]
        mean = seconds if before is None else before + NEWEST * (seconds - before)
        self._hop_s[c] = mean
        self.touch(c)
        return mean

    def published(self, c: int) -> bool:
        """Return whether other workers find a candidate's state after the hop under way."""
        return self._published[c]

    def publish(self, c: int, published: bool) -> None:
        """Note whether other workers find a candidate's state after the hop that starts."""
        self._published[c] = published
        self.touch(c)

    def fail(self, c: int) -> int:
        """Note that a candidate's hop raised, and return how often it has."""
        self._failures[c] += 1
        self.touch(c)
        return self._failures[c]

    def lose(self, c: int, *, blamed: bool) -> int:
        """Note that a candidate's hop was lost, and return how often it has been to blame."""
        self._losses[c] += blamed
        self.touch(c)
        return self._losses[c]

    def forgive(self, c: int) -> None:
        """Forget a candidate's failures and losses."""
        self._failures[c] = self._losses[c] = 0
        self.touch(c)
