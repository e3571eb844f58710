"""Population-based training: candidates that lag behind go on from the state of better ones."""

from __future__ import annotations

import random
from dataclasses import dataclass

from mmdb.errors import MmdbError, stops_the_caller
from mmdb.train.features.options import KEYS
from mmdb.train.search.base import BaseSearch, Rules
from mmdb.train.search.decisions import Decision, Goal, Start, Stop
from mmdb.train.search.member import Member
from mmdb.train.search.source import Check, Source
from mmdb.train.search.space import Config, Space

EXPLOITED = "exploited"
#: Parts of a configuration that the state has grown into; what trains is a part of the state.
LASTING = ("optimizer", "schedule", "loss", "amp", *KEYS)
ARCHITECTURE = "architecture."


def lasts(name: str) -> bool:
    """Return whether a hyper-parameter stays while the weights do."""
    return name in LASTING or name.startswith(ARCHITECTURE)


def changing(space: Space) -> set[str]:
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

    space: Space
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

    def __init__(self, source: Source, rules: Rules, evolution: Evolution) -> None:
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

    def _follow(self, member: Member) -> list[Decision]:
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

    def _ranking(self) -> list[Member]:
        """Return the living members by their last score, the worst first."""
        living = [m for m in self._members if m.number is not None and m.scores and not m.ended]
        return sorted(living, key=lambda m: (m.scores[m.epoch], -m.ordinal))

    def _group(self, ranking: list[Member]) -> int:
        """Return how many are best, and how many worst: none while few have a score."""
        return int(len(ranking) * self._evolution.fraction)

    def _lags(self, member: Member) -> bool:
        if member.failed:
            return self._numbers < self._most
        ranking = self._ranking()
        worst = ranking[: self._group(ranking)]
        return any(member is other for other in worst)

    def _clone(self, member: Member) -> Start | None:
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
