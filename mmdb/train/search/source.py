"""Where the configurations of new candidates come from. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from mmdb.errors import MmdbError, stops_the_caller
from mmdb.train.search.member import Member
from mmdb.train.search.space import Config, Space
from mmdb.train.search.study import Study

#: Suggestions in a row that may be refused before a configuration is drawn at random, and draws
#: that may be refused before the search gives up.
MAX_TRIES = 20

#: Raises an MmdbError for a configuration that cannot train.
Check = Callable[[Config], None]


class Source(Protocol):
    """Gives the configuration of each of the search's own candidates."""

    count: int  # of the candidates that there will be

    def config(self, number: int, members: Sequence[Member]) -> Config:
        """Return the configuration of the search's own candidate `number`, from 0.

        It depends on the number and on what is known of the candidates, on nothing else.
        """


class Listed:
    """Configurations that are known before anything has trained."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self.count = len(configs)
        self._configs = configs

    def config(self, number: int, members: Sequence[Member]) -> Config:
        """Return the configuration at that place of the list."""
        return self._configs[number]


class Suggested:
    """Configurations that the results so far suggest; at random until there are `startup`."""

    def __init__(
        self, space: Space, study: Study, *, count: int, startup: int, seed: int, check: Check
    ) -> None:
        self.count = count
        self._space, self._study, self._check = space, study, check
        self._startup, self._seed = startup, seed

    def config(self, number: int, members: Sequence[Member]) -> Config:
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

    def _tries(self, number: int, members: Sequence[Member]) -> Iterator[Config]:
        if self._study.results(members) >= self._startup:
            for attempt in range(MAX_TRIES):
                seed = random.Random(f"tpe/{self._seed}/{number}/{attempt}").getrandbits(32)
                config = self._space.config(self._study.suggest(members, seed))
                if config is not None:
                    yield config
        for attempt in range(MAX_TRIES):
            yield self._space.draw(number + attempt * self.count, self._seed)


def random_configs(space: Space, count: int, seed: int) -> list[Config]:
    """Return `count` random configurations; more of them leave the first ones as they are.

    Raises:
        EmptySearch
    """
    return [space.draw(number, seed) for number in range(count)]


def shuffled_grid(space: Space, seed: int) -> list[Config]:
    """Return the grid in an order of the seed's, because neighbours in a grid score alike.

    Raises:
        EmptySearch, InvalidHyperparameter, InvalidOption
    """
    found = space.grid()
    random.Random(f"grid/{seed}").shuffle(found)
    return found
