"""A process outside the server that runs mmdb's functions itself, hops in a child process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from mmdb.db.url import AnyConnection
from mmdb.errors import InvalidOption
from mmdb.train.drive.child import ChildProcess
from mmdb.train.hops.runner import HopRunner

if TYPE_CHECKING:
    from torch import nn

    from mmdb.plan.profile.measurers import CalibrationSetup
    from mmdb.store.models.model_rows import SavedModel

_T = TypeVar("_T")


class ChildBackend:
    """A `Backend` over a session of this process: a DuckDB file, or a PostgreSQL without PL/Python.

    Hops never run in the user's own process: a module may end it, or change torch's settings.
    """

    def __init__(self, connection: AnyConnection) -> None:
        self.connection = connection
        self.models: OrderedDict[int, Any] = OrderedDict()
        self._child: ChildProcess | None = None
        self._runner: HopRunner | None = None
        #: DuckDB calls a function from several threads when a query reads a large table.
        self.one_at_a_time = threading.RLock()

    @property
    def runner(self) -> HopRunner:
        """What runs hops that someone asks for one by one."""
        self._live_child(None)
        assert self._runner is not None
        return self._runner

    def warm_up(self, device: str) -> str:
        """Start the child process on its device."""
        child = self._live_child(device)
        if child.device != device:
            raise InvalidOption(
                f"This session's device is {child.device}.", hint="Open another session."
            )
        return child.warm_up()

    def serve(self, worker: str, device: str) -> str:
        """Warm up: a file is on one node."""
        return self.warm_up(device)

    def recover(self, model: SavedModel) -> nn.Module:
        """Return a model's module."""
        from mmdb.train.replay.recipe_replay import recover_module  # imports torch

        return recover_module(self.connection, model)

    def notice(self, text: str) -> None:
        """Nobody hears: there is no way to tell a caller anything before the result."""

    def pause(self) -> None:
        """Nothing is held back, and nothing has to be served."""

    @contextmanager
    def driving(self) -> Iterator[tuple[AnyConnection, Callable[[], None]]]:
        """Yield the session; its workers are child processes."""
        yield self.connection, lambda: None

    def bounded(self) -> AbstractContextManager[None]:
        """Bound nothing: the process is the user's own."""
        return nullcontext()

    def compute(self, work: Callable[[Callable[[], bool]], _T]) -> _T:
        """Run it here: an interrupt ends it."""
        return work(lambda: False)

    @contextmanager
    def measuring(self, count: int) -> Iterator[CalibrationSetup]:
        """Yield processes, as workers are; the database is measured through this session."""
        from mmdb.plan.profile.measurers import CalibrationSetup, LocalMeasurer, processes

        with processes(count) as places:
            yield CalibrationSetup(
                places=places, database=LocalMeasurer(self.connection), on_wait=lambda: None
            )

    def close(self) -> None:
        """End the child process; the session stays open."""
        self._end_child()

    def _live_child(self, device: str | None) -> ChildProcess:
        if self._child is None or not self._child.alive:
            self._end_child()
            self._child = ChildProcess(device or "cpu")
            self._child.warm_up()
            self._runner = HopRunner(self.connection, self._child, "session")
        return self._child

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()
