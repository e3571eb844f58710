"""Runs one after the other over the same warm workers, which start-up would blur."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from time import perf_counter

from mmdb.api import Database
from mmdb.errors import MmdbError
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.worker import workers_of

#: Yields the name of a run, is sent the seconds that it took, and so on.
Runs = Generator[str, float, None]


class _AllDone(Exception):
    """Every run has ended."""


class _Turns:
    """Hands a driver the next run once the one before has ended."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._began: float | None = None
        self._seconds = 0.0
        self.driver: Driver | None = None

    def next(self) -> None:
        """Begin the next run if none is under way.

        Raises:
            _AllDone
        """
        assert self.driver is not None
        if self.driver.runs:
            return
        try:
            name = next(self._runs) if self._began is None else self._runs.send(self._seconds)
        except StopIteration as end:
            raise _AllDone from end
        self._began = perf_counter()
        self.driver.add_run(name)

    def end(self, name: str, error: MmdbError | None) -> None:
        """Note what a run took.

        Raises:
            MmdbError: it failed.
        """
        if error is not None:
            raise error
        assert self._began is not None
        self._seconds = perf_counter() - self._began


def train_in_turn(database: Database, runs: Runs, workers: int) -> None:
    """Train runs, each from its start on workers that are up, but for the first one.

    Raises:
        MmdbError: a run failed.
    """
    turns = _Turns(runs)
    driver = Driver(database.connection, on_wait=turns.next, on_end=turns.end)
    turns.driver = driver
    for worker in workers_of(database.connection, workers):
        driver.add_worker(worker)
    with suppress(_AllDone):
        driver.drive(forever=True)
