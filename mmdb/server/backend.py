"""What a function of mmdb works with, whichever engine called it.

`exposed` turns `f(backend, *arguments)` into the two callables that the engines need: PL/Python
bodies call `f(plpy, GD, *arguments)`, and DuckDB's registration takes `f.function`.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from mmdb.db.connection import Connection
from mmdb.errors import MmdbError
from mmdb.server.interrupt import interruptible
from mmdb.server.plpy_connection import PlpyConnection
from mmdb.train.dispatch import Dispatcher
from mmdb.train.spec import HopResult, HopSpec


class Backend(Protocol):
    """One database session with what it keeps between calls."""

    connection: Connection

    @property
    def dispatcher(self) -> Dispatcher:
        """What runs this session's hops."""

    @property
    def models(self) -> OrderedDict[int, Any]:
        """Modules kept for `predict`."""

    def warm_up(self) -> str:
        """Pay torch's start-up now; return the environment that hops record."""


class _InterruptibleSession:
    """The session's own performer, whose computing can be cancelled."""

    def __init__(self, plpy: Any) -> None:
        from mmdb.train.session import Session  # imports torch: only where hops run

        self._plpy, self._session = plpy, Session()
        self.held = self._session.held
        self.has_partition = self._session.has_partition
        self.map_partition = self._session.map_partition

    def warm_up(self) -> str:
        from mmdb.train.session import warm_up

        return interruptible(self._plpy, lambda stopped: warm_up())

    def perform(self, spec: HopSpec, state: bytes | None) -> tuple[HopResult, bytes | None]:
        return interruptible(
            self._plpy, lambda stopped: self._session.perform(spec, state, stopped)
        )


class PlpyBackend:
    """A PostgreSQL session; lives in its `GD`."""

    def __init__(self, plpy: Any) -> None:
        self._plpy = plpy
        self.connection: Connection = PlpyConnection(plpy)
        self.models: OrderedDict[int, Any] = OrderedDict()

    @functools.cached_property
    def _session(self) -> _InterruptibleSession:
        return _InterruptibleSession(self._plpy)

    @functools.cached_property
    def dispatcher(self) -> Dispatcher:
        row = self._plpy.execute("SELECT current_setting('application_name') AS name")[0]
        return Dispatcher(self.connection, self._session, str(row["name"]) or "session")

    def warm_up(self) -> str:
        return self._session.warm_up()


def exposed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` in the form that a PL/Python body calls; see the module's docstring."""

    @functools.wraps(function)
    def body(plpy: Any, gd: dict[str, Any], *arguments: Any) -> Any:
        if "mmdb" not in gd:
            gd["mmdb"] = PlpyBackend(plpy)
        try:
            return function(gd["mmdb"], *arguments)
        except MmdbError as error:
            plpy.error(error.message, hint=error.hint or None, sqlstate=error.sqlstate)

    body.function = function  # type: ignore[attr-defined]
    return body
