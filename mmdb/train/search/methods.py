"""Successive halving (ASHA), Hyperband, and population-based training (PBT)."""

from __future__ import annotations

import math
import random
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mmdb.errors import MmdbError, stops_the_caller
from mmdb.train.search.base_search import BaseSearch, Check, ConfigSource, SearchRules
from mmdb.train.search.search_log import Decision, Goal, Report, Start, Stop, Trial
from mmdb.train.search.search_space import Config, SearchSpace
from mmdb.train.values.feature_options import KEYS


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

    def add(self, member: Trial, epochs: int, score: float) -> None:
        """Take in what a candidate scored after `epochs` epochs, if that is a rung."""
        if (place := self._place.get(epochs)) is not None:
            insort(self._results[place], (-score, member.ordinal))

    def fail(self, member: Trial) -> None:
        """Count a candidate as the worst of the rung that it did not get to."""
        if (place := self._place.get(member.goal)) is not None:
            insort(self._results[place], (math.inf, member.ordinal))

    def promotable(self, members: Sequence[Trial]) -> Goal | None:
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
        self,
        source: ConfigSource,
        rules: SearchRules,
        brackets: Sequence[Bracket],
        sizes: Sequence[int],
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

    def _absorb(self, report: Report) -> Trial:
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


EXPLOITED = "exploited"
#: Parts of a configuration that the state has grown into; what trains is a part of the state.
LASTING = ("optimizer", "schedule", "loss", "amp", *KEYS)
ARCHITECTURE = "architecture."


def lasts(name: str) -> bool:
    """Return whether a hyper-parameter stays while the weights do."""
    return name in LASTING or name.startswith(ARCHITECTURE)


def changing(space: SearchSpace) -> set[str]:
    """Return the dimensions that have several values and may change while the weights stay."""
    return {
        name
        for name, dimension in space.dimensions.items()
        if not lasts(name) and len(dimension.ends()) > 1
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """How a population changes.

    A member is compared with the others every `interval` epochs. One in the worst `fraction` gives
    way to a clone of one in the best `fraction`. Of the clone's hyper-parameters each is drawn anew
    with the probability `resample` and otherwise moved to a neighbour.
    """

    space: SearchSpace
    seed: int
    interval: int
    fraction: float
    resample: float
    check: Check

    def explore(self, config: Config, ordinal: int) -> Config:
        """Return the configuration of the clone `ordinal` of a candidate.

        Every hyper-parameter changes by a stream of its own. Where a constraint or the check
        refuses what comes out, the parent's configuration stays.
        """
        changed = dict(config)
        for name in changing(self.space) & config.keys():
            dimension = self.space.dimensions[name]
            source = random.Random(f"pbt/{self.seed}/{ordinal}/{name}")
            if source.random() < self.resample:
                changed[name] = dimension.draw(source)
            else:
                changed[name] = dimension.move(config[name], source)
        found = self.space.config(changed)
        if found is None or any(lasts(name) for name in config.keys() - found.keys()):
            return config
        return found if self._passes(found) else config

    def _passes(self, config: Config) -> bool:
        try:
            self.check(config)
        except MmdbError as error:
            if stops_the_caller(error):
                raise
            return False
        return True


class Population(BaseSearch):
    """Trains a population; each member rests every `interval` epochs and is compared. No barrier.

    A member's epochs are those of its weights: its own and those in the state that it started from;
    it trains until they are the run's.

    Source: Jaderberg et al., Population Based Training of Neural Networks, 2017: truncation
        selection; perturb by 0.8 or 1.2, or resample.
    """

    def __init__(self, source: ConfigSource, rules: SearchRules, evolution: Evolution) -> None:
        super().__init__(source, rules)
        self._evolution = evolution
        # A failed member is replaced as well; a population that always fails must end.
        steps = -(-rules.epochs // evolution.interval)
        self._most = source.count * (1 + steps)

    @property
    def done(self) -> bool:
        """Whether every member has done the run's epochs, or has ended."""
        return self._numbers >= self._source.count and not self._flying

    def begin(self) -> list[Decision]:
        """Return the population, or what the log lacks."""
        decisions: list[Decision] = []
        for member in list(self._members):
            decisions += self._tired(member)
            if not member.in_flight and not member.ended:
                decisions += self._follow(member)
        return decisions + self._next(self._source.count)

    def want(self, idle: int) -> list[Decision]:
        """Return nothing: a population has its size."""
        return []

    def _next(self, most: int) -> list[Decision]:
        return [
            self._start(self._step(0)) for _ in range(min(most, self._source.count - self._numbers))
        ]

    def _follow(self, member: Trial) -> list[Decision]:
        if member.number is None or member.stopped is not None:
            return []
        trained = member.trained + member.epoch
        if trained >= self._rules.epochs:
            return []
        if self._lags(member) and (clone := self._clone(member)) is not None:
            stop = Stop(candidate=member.ordinal, reason=EXPLOITED)
            return [self._decide(d) for d in ((clone,) if member.failed else (stop, clone))]
        if member.failed:
            return []
        goal = Goal(candidate=member.ordinal, epochs=member.epoch + self._step(trained))
        return [self._decide(goal)]

    def _step(self, trained: int) -> int:
        return min(self._evolution.interval, self._rules.epochs - trained)

    def _ranking(self) -> list[Trial]:
        """Return the living members by their last score, the worst first."""
        living = [m for m in self._members if m.number is not None and m.scores and not m.ended]
        return sorted(living, key=lambda m: (m.scores[m.epoch], -m.ordinal))

    def _group(self, ranking: list[Trial]) -> int:
        """Return how many are best, and how many worst: none while few have a score."""
        return int(len(ranking) * self._evolution.fraction)

    def _lags(self, member: Trial) -> bool:
        if member.failed:
            return self._numbers < self._most
        ranking = self._ranking()
        worst = ranking[: self._group(ranking)]
        return any(member is other for other in worst)

    def _clone(self, member: Trial) -> Start | None:
        """Return the start of what takes a member's place, or None where no better one trains."""
        ranking = self._ranking()
        training = [m for m in ranking if m.trained + m.epoch < self._rules.epochs]
        best = training[-max(self._group(ranking), 1) :]
        if not member.failed:
            best = [m for m in best if m.scores[m.epoch] > member.scores[member.epoch]]
        if not best:
            return None
        ordinal = len(self._members)
        source = random.Random(f"pbt/{self._evolution.seed}/{ordinal}")
        parent = source.choice(best)
        return Start(
            config=self._evolution.explore(parent.config, ordinal),
            goal=self._step(parent.trained + parent.epoch),
            parent=parent.ordinal,
            epoch=parent.epoch,
        )
