"""Asynchronous successive halving (ASHA) and asynchronous Hyperband."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator, Sequence

from mmdb.train.search.base import BaseSearch, Rules
from mmdb.train.search.decisions import Decision, Goal, Report
from mmdb.train.search.member import Member
from mmdb.train.search.source import Source


def ladder(epochs: int, eta: int, min_epochs: int) -> tuple[int, ...]:
    """Return the rungs: epochs at which candidates rest, each eta times the one before.

    The last one is the run's epochs, in place of the greatest power below it.

    >>> ladder(27, 3, 1), ladder(10, 3, 1), ladder(10, 4, 10)
    ((1, 3, 9, 27), (1, 3, 10), (10,))
    """
    rungs = [min_epochs]
    while rungs[-1] * eta <= epochs:
        rungs.append(rungs[-1] * eta)
    return (*rungs[:-1], epochs)


def bracket_sizes(rungs: int, eta: int) -> tuple[int, ...]:
    """Return how many candidates Hyperband's brackets start, from the one with all rungs.

    Source: Li et al., Hyperband, JMLR 18(185), 2018, Algorithm 1: n = ceil((s_max + 1) / (s + 1)
        * eta^s) for s = s_max, ..., 0, where s + 1 is the number of the bracket's rungs.

    >>> bracket_sizes(5, 3)
    (81, 34, 15, 8, 5)
    """
    return tuple(-(-rungs * eta**s // (s + 1)) for s in reversed(range(rungs)))


class Bracket:
    """One run of successive halving: its rungs and what candidates scored on each.

    Args:
        rungs: epochs, ascending.
        eta: one of eta candidates of a rung goes on.
    """

    def __init__(self, rungs: Sequence[int], eta: int) -> None:
        self.rungs = rungs
        self._eta = eta
        self._place = {epochs: place for place, epochs in enumerate(rungs)}
        self._results: list[list[tuple[float, int]]] = [[] for _ in rungs]  # best first

    def add(self, member: Member, epochs: int, score: float) -> None:
        """Take in what a candidate scored after `epochs` epochs, if that is a rung."""
        if (place := self._place.get(epochs)) is not None:
            insort(self._results[place], (-score, member.ordinal))

    def fail(self, member: Member) -> None:
        """Count a candidate as the worst of the rung that it did not get to."""
        if (place := self._place.get(member.goal)) is not None:
            insort(self._results[place], (math.inf, member.ordinal))

    def promotable(self, members: Sequence[Member]) -> Goal | None:
        """Return the goal of the best candidate that goes on, from the highest rung that has one.

        A candidate goes on when it is in the best 1/eta of all that its rung has seen so far.

        Source: Li et al., A System for Massively Parallel Hyperparameter Tuning, MLSys 2020,
            Algorithm 2 (get_job).
        """
        for place in reversed(range(len(self.rungs) - 1)):
            results = self._results[place]
            for _, ordinal in results[: len(results) // self._eta]:
                member = members[ordinal]
                if member.goal <= self.rungs[place] and not member.ended:
                    return Goal(candidate=ordinal, epochs=self.rungs[place + 1])
        return None


class Halving(BaseSearch):
    """Starts many candidates with few epochs and lets the best go on: ASHA, by one bracket or more.

    A free worker gets the best candidate that may go on; where there is none, a new one. Nothing
    waits for a rung to fill, and no candidate is stopped: one that is not promoted rests.

    Args:
        sizes: candidates that each bracket starts, the first bracket first.
    """

    def __init__(
        self, source: Source, rules: Rules, brackets: Sequence[Bracket], sizes: Sequence[int]
    ) -> None:
        super().__init__(source, rules)
        self._brackets = brackets
        self._of_number = [b for b, size in zip(brackets, sizes, strict=True) for _ in range(size)]

    @property
    def done(self) -> bool:
        """Whether all are started, none has hops to do and none may go on."""
        if not super().done or self._flying:
            return False
        return next(self._promotable(), None) is None

    def _next(self, most: int) -> list[Decision]:
        decisions: list[Decision] = []
        while len(decisions) < most:
            goal = next(self._promotable(), None)
            if goal is not None:
                decisions.append(self._decide(goal))
            elif self._numbers < self._source.count:
                decisions.append(self._start(self._of_number[self._numbers].rungs[0]))
            else:
                break
        return decisions

    def _promotable(self) -> Iterator[Goal]:
        goals = (bracket.promotable(self._members) for bracket in self._brackets)
        return (goal for goal in goals if goal is not None)

    def _absorb(self, report: Report) -> Member:
        known = self._members[report.candidate]
        new = not known.failed and report.epoch not in known.scores
        member = super()._absorb(report)
        if member.number is not None and new:
            bracket = self._of_number[member.number]
            if report.failed:
                bracket.fail(member)
            else:
                bracket.add(member, report.epoch, member.scores[report.epoch])
        return member
