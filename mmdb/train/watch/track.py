"""A worker's last minute, kept short however many hops it does."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from mmdb.train.watch.snapshot import Segment

#: Seconds that are looked back.
WINDOW_S = 60.0
#: A hop that begins so soon after the one before it began is drawn as a part of that one.
RESOLUTION_S = 0.2


class Track:
    """What one worker does, as segments of time. Calls come in the order of their times."""

    def __init__(self, node: str, device: str) -> None:
        self.node, self.device = node, device
        self.up = True
        self._present: Segment | None = None
        self._past: deque[Segment] = deque()
        self._since: float | None = None
        self._busy: deque[tuple[float, float]] = deque()  # (end, seconds)

    @property
    def present(self) -> Segment | None:
        """Return the hop that it does now."""
        return self._present

    def start(self, segment: Segment) -> None:
        """Begin a hop; one that is still under way ends here."""
        if self._present is not None:
            self.finish(segment.begin)
        self._since = segment.begin if self._since is None else self._since
        self._present, self.up = segment, True

    def finish(self, at: float, *, failed: bool = False) -> Segment | None:
        """End the hop under way and return it; None where there is none."""
        present, self._present = self._present, None
        if present is None:
            return None
        segment = replace(present, end=at, failed=failed)
        self._count(segment.begin, at)
        last = self._past[-1] if self._past else None
        if last is not None and not failed and segment.begin - last.begin < RESOLUTION_S:
            self._past[-1] = replace(last, end=at)
        else:
            self._past.append(segment)
        self._forget(at)
        return segment

    def segments(self, at: float) -> tuple[Segment, ...]:
        """Return what lies in the last minute, the oldest first."""
        self._forget(at)
        present = () if self._present is None else (self._present,)
        return (*self._past, *present)

    def busy(self, at: float) -> float:
        """Return the share of the last minute that hops took, 0 to 1."""
        self._forget(at)
        if self._since is None:
            return 0.0
        span = min(WINDOW_S, at - self._since)
        seconds = sum(s for _, s in self._busy)
        if self._present is not None:
            seconds += min(at - self._present.begin, WINDOW_S)
        return min(1.0, seconds / span) if span > 0 else 0.0

    def _count(self, begin: float, end: float) -> None:
        """Add a hop's seconds to those of the second in which it ended."""
        if self._busy and end - self._busy[-1][0] < 1.0:
            first, seconds = self._busy[-1]
            self._busy[-1] = (first, seconds + end - begin)
        else:
            self._busy.append((end, end - begin))

    def _forget(self, at: float) -> None:
        while self._past and (self._past[0].end or at) < at - WINDOW_S:
            self._past.popleft()
        while self._busy and self._busy[0][0] < at - WINDOW_S:
            self._busy.popleft()


class Rate:
    """How many things happened in the last minute, counted by the second."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._counts: deque[tuple[float, int]] = deque()

    def begin(self, at: float) -> None:
        """Take it that the first one is under way; later calls change nothing."""
        self._began_at = at if self._began_at is None else self._began_at

    def add(self, at: float) -> None:
        """Count one more."""
        if self._counts and at - self._counts[-1][0] < 1.0:
            first, count = self._counts[-1]
            self._counts[-1] = (first, count + 1)
        else:
            self._counts.append((at, 1))

    def per_s(self, at: float) -> float:
        """Return the mean over the last minute, or over the time since the beginning."""
        while self._counts and self._counts[0][0] < at - WINDOW_S:
            self._counts.popleft()
        span = 0.0 if self._began_at is None else min(WINDOW_S, at - self._began_at)
        return sum(count for _, count in self._counts) / span if span > 0 else 0.0
