"""What a hop of each candidate costs, measured as the run goes on."""

from __future__ import annotations

from mmdb.train.schedule.portfolio import MOVED, Portfolio
from mmdb.train.schedule.standing import Standing


class Costs:
    """Tells the candidates' standing and the portfolio of measured means."""

    def __init__(self, standing: Standing, portfolio: Portfolio) -> None:
        self._standing, self._portfolio = standing, portfolio
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
        self._standing.weigh(candidate, max(hop_s, 1e-9))
        self._portfolio.note(candidate, hop_s)
        self._assume(hop_s)

    def _assume(self, hop_s: float) -> None:
        """Take a hop not measured yet for the slowest: begun too late, it would end last."""
        self.slowest_s = max(self.slowest_s, hop_s)
        if self.slowest_s > MOVED * self._assumed_s:
            self._assumed_s = self.slowest_s
            for other in self._unmeasured:
                self._standing.weigh(other, self.slowest_s)
