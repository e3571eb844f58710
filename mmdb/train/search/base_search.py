"""What every search does alike: draws configurations, stops the hopeless, fills workers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mmdb.errors import MmdbError, stops_the_caller
from mmdb.train.search.search_log import (
    BUDGET,
    PATIENCE,
    Decision,
    Entry,
    Report,
    Start,
    Stop,
    Trial,
    Want,
    begin_trial,
)
from mmdb.train.search.search_space import Config, SearchSpace
from mmdb.train.search.study import Study

#: Suggestions in a row that may be refused before a configuration is drawn at random, and draws
#: that may be refused before the search gives up.
MAX_TRIES = 20

#: Raises an MmdbError for a configuration that cannot train.
Check = Callable[[Config], None]


class ConfigSource(Protocol):
    """Gives the configuration of each of the search's own candidates."""

    count: int  # of the candidates that there will be

    def config(self, number: int, members: Sequence[Trial]) -> Config:
        """Return the configuration of the search's own candidate `number`, from 0.

        It depends on the number and on what is known of the candidates, on nothing else.
        """


class Listed:
    """Configurations that are known before anything has trained."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self.count = len(configs)
        self._configs = configs

    def config(self, number: int, members: Sequence[Trial]) -> Config:
        """Return the configuration at that place of the list."""
        return self._configs[number]


class Suggested:
    """Configurations that the results so far suggest; at random until there are `startup`."""

    def __init__(
        self, space: SearchSpace, study: Study, *, count: int, startup: int, seed: int, check: Check
    ) -> None:
        self.count = count
        self._space, self._study, self._check = space, study, check
        self._startup, self._seed = startup, seed

    def config(self, number: int, members: Sequence[Trial]) -> Config:
        """Return a configuration that meets the constraints and that `check` lets pass.

        Raises:
            EmptySearch: nothing meets the constraints.
            MmdbError: `check` refused all that was tried; its last error.
        """
        error = None
        for config in self._tries(number, members):
            try:
                self._check(config)
            except MmdbError as refused:
                if stops_the_caller(refused):
                    raise
                error = refused
            else:
                return config
        assert error is not None  # at random there is always a configuration, or EmptySearch
        raise error

    def _tries(self, number: int, members: Sequence[Trial]) -> Iterator[Config]:
        if self._study.results(members) >= self._startup:
            for attempt in range(MAX_TRIES):
                seed = random.Random(f"tpe/{self._seed}/{number}/{attempt}").getrandbits(32)
                config = self._space.config(self._study.suggest(members, seed))
                if config is not None:
                    yield config
        for attempt in range(MAX_TRIES):
            yield self._space.draw(number + attempt * self.count, self._seed)


def random_configs(space: SearchSpace, count: int, seed: int) -> list[Config]:
    """Return `count` random configurations; more of them leave the first ones as they are.

    Raises:
        EmptySearch
    """
    return [space.draw(number, seed) for number in range(count)]


def shuffled_grid(space: SearchSpace, seed: int) -> list[Config]:
    """Return the grid in an order of the seed's, because neighbours in a grid score alike.

    Raises:
        EmptySearch, InvalidHyperparameter, InvalidOption
    """
    found = space.grid()
    random.Random(f"grid/{seed}").shuffle(found)
    return found


PRUNED = "pruned"


class Search(Protocol):
    """Decides which candidates train, and how far. Pure: its caller trains them.

    A candidate trains until its goal and rests there: its state is kept, its worker is free. The
    caller logs what it tells a search and what the search decides, in order, and the decisions of
    one call in one transaction. `resume` goes through that log; the same seed and the same calls in
    the same order make the same decisions.
    """

    @property
    def done(self) -> bool:
        """Whether nothing more will be started and no goal raised, whatever is reported."""

    def begin(self) -> list[Decision]:
        """Return the first decisions, or after `resume` those that the log lacks."""

    def report(self, report: Report) -> list[Decision]:
        """Return what follows from a validated epoch or a failure; called for every one, once."""

    def want(self, idle: int) -> list[Decision]:
        """Return work for idle workers.

        Called when `idle` workers could start no hop of any candidate: all that have hops to do are
        under way. With nothing under way, `done` or a decision follows. Successive halving is also
        asked by 1 just before that, where hops are short.
        """

    def take(self, decision: Decision) -> list[Decision]:
        """Return what follows from a decision of a user, who clones, stops or resumes a candidate.

        The caller gives a clone the next ordinal.
        """

    def resume(self, log: Iterable[Entry]) -> None:
        """Take in a run's log, in order; called once, before `begin`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """How long candidates train, and how many at once."""

    epochs: int
    maximize: bool
    concurrent: int | None  # None: as many as the workers ask for
    patience: int | None = None  # epochs without improvement
    min_delta: float = 0.0  # by more than this
    study: Study | None = None  # with a pruner


class BaseSearch:
    """Trains each candidate that `source` gives for all epochs of the run.

    Searches that let candidates rest before override `_next`, `_follow` and `done`. What they keep
    beside the members follows from the decisions and each candidate's own reports, so that a log
    resumes them in whatever order different candidates reported.
    """

    def __init__(self, source: ConfigSource, rules: SearchRules) -> None:
        self._source, self._rules = source, rules
        self._members: list[Trial] = []
        self._numbers = 0  # of own candidates
        self._flying: set[int] = set()  # own candidates in flight

    @property
    def done(self) -> bool:
        """Whether every candidate has been started."""
        return self._numbers >= self._source.count

    def begin(self) -> list[Decision]:
        """Return the first starts, or what the log lacks."""
        decisions: list[Decision] = []
        for member in self._members:
            decisions += self._tired(member)
        return decisions + self._next(max(self._rules.concurrent or 1, 1) - len(self._flying))

    def report(self, report: Report) -> list[Decision]:
        """Return what follows from a report."""
        member = self._absorb(report)
        if member.stopped is not None:  # its last hop was under way when it was stopped
            return []
        decisions = self._tired(member) + self._pruned(member)
        return decisions if member.in_flight else decisions + self._follow(member)

    def want(self, idle: int) -> list[Decision]:
        """Return further candidates, up to the cap of those at once."""
        cap = self._rules.concurrent
        return self._next(idle if cap is None else min(idle, cap - len(self._flying)))

    def take(self, decision: Decision) -> list[Decision]:
        """Return what follows from a user's decision, or from the end of the run's time."""
        frees = isinstance(decision, Stop) and decision.reason != BUDGET
        flying = set(self._flying)
        member = self._apply(decision)
        return self._follow(member) if frees and member.ordinal in flying else []

    def resume(self, log: Iterable[Entry]) -> None:
        """Take in what was told and decided."""
        for entry in log:
            match entry:
                case Report():
                    self._absorb(entry)
                case Want():
                    pass
                case _:
                    self._apply(entry)

    # -- what searches differ in --------------------------------------------------

    def _next(self, most: int) -> list[Decision]:
        """Return up to `most` decisions that each put a candidate in flight."""
        most = min(most, self._source.count - self._numbers)
        return [self._start(self._rules.epochs) for _ in range(most)]

    def _follow(self, member: Trial) -> list[Decision]:
        """Return what follows when a candidate rests, has failed or was stopped."""
        if member.number is None:
            return []
        cap = self._rules.concurrent
        return self._next(1 if cap is None else cap - len(self._flying))

    # -- facts --------------------------------------------------------------------

    def _start(self, goal: int) -> Decision:
        config = self._source.config(self._numbers, self._members)
        return self._decide(Start(config=config, goal=goal))

    def _decide(self, decision: Decision) -> Decision:
        self._apply(decision)
        return decision

    def _apply(self, decision: Decision) -> Trial:
        if isinstance(decision, Start):
            parent = None if decision.parent is None else self._members[decision.parent]
            number = self._numbers if decision.by == "search" else None
            self._numbers += decision.by == "search"
            member = begin_trial(decision, len(self._members), number, parent)
            self._members.append(member)
        else:
            member = self._members[decision.candidate]
            member.decide(decision)
        self._note(member)
        return member

    def _absorb(self, report: Report) -> Trial:
        member = self._members[report.candidate]
        member.absorb(report, self._score(report.value), self._rules.min_delta)
        self._note(member)
        return member

    def _score(self, value: float) -> float:
        """Return a value turned so that more is better; what is no number is worst."""
        if math.isnan(value):
            return -math.inf
        return value if self._rules.maximize else -value

    def _note(self, member: Trial) -> None:
        if member.number is not None and member.in_flight:
            self._flying.add(member.ordinal)
        else:
            self._flying.discard(member.ordinal)

    def _tired(self, member: Trial) -> list[Decision]:
        """Stop a candidate that has ceased to improve, unless it has done all that it is for."""
        limit = self._rules.patience
        through = member.number is None or member.trained + member.epoch >= self._rules.epochs
        if limit is None or member.exempt or member.ended or (through and not member.in_flight):
            return []
        if member.epoch - member.marked_at < limit:
            return []
        return [self._decide(Stop(candidate=member.ordinal, reason=PATIENCE))]

    def _pruned(self, member: Trial) -> list[Decision]:
        """Stop a candidate that the pruner gives up, by what all have shown when it reports."""
        study = self._rules.study
        if study is None or member.exempt or member.number is None or not member.in_flight:
            return []
        if not study.prunes(member, self._members):
            return []
        return [self._decide(Stop(candidate=member.ordinal, reason=PRUNED))]
