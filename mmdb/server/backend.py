"""The session that a function of mmdb works with, whichever engine called it.

`exposed` turns `f(backend, *arguments)` into the two callables that the engines need: PL/Python
bodies call `f(plpy, GD, *arguments)`, and DuckDB's registration takes `f.function`.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from mmdb.db.citus import own_node, tells_of_lost_node
from mmdb.db.connection import Connection
from mmdb.db.owners import LOCK_TIMEOUT, refusal
from mmdb.db.queries import load
from mmdb.errors import InTransaction, InvalidOption, MmdbError, NodeLost, NoWorkerLogin, WrongUrl
from mmdb.memory import bounded, shortage
from mmdb.server.apart import DRIVER_GRACE_S, Lent, apart, interruptible, is_any_left, this_call
from mmdb.server.plpy_connection import PlpyConnection
from mmdb.server.session_control import end_at_once, heed, stand_back
from mmdb.train.values.runtime import uncollected

if TYPE_CHECKING:  # these import torch, or drivers of databases
    from torch import nn

    from mmdb.db.url import AnyConnection
    from mmdb.plan.profile.measurers import CalibrationSetup
    from mmdb.store.models.model_rows import SavedModel
    from mmdb.train.hops.runner import HopRunner
    from mmdb.train.values.jobs import Job
    from mmdb.train.values.spec import Payload

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Of a node's session that serves a worker. Named otherwise than Citus names it, it keeps its
#: connections with other nodes; it ends a hop that nobody waits for any more; and what it reads on
#: other nodes is no part of its transaction, of which they would be told query by query, and whose
#: end would wait for them.
_SERVING = {
    "client_connection_check_interval": "500ms",
    "statement_timeout": "0",
    "citus.max_cached_connection_lifetime": "-1",
    "citus.select_opens_transaction_block": "off",
}
#: Characters of a text that takes no memory worth a look.
_SHORT = 65536
#: A block as it is: one for all, as `predict` is called for every row of a scan.
UNBOUNDED = nullcontext()


class Backend(Protocol):
    """One database session with what it keeps between calls."""

    @property
    def connection(self) -> Connection:
        """The session."""

    @property
    def runner(self) -> HopRunner:
        """Runs this session's hops."""

    @property
    def models(self) -> OrderedDict[tuple[str, int], Any]:
        """Modules kept for `predict`."""

    known: tuple[object, dict[str, int]]
    """A statement, and the models that it has named."""

    def warm_up(self, device: str) -> str:
        """Fix the device of hops, pay torch's start-up; return the environment they record.

        Raises:
            DeviceMissing, InvalidOption: the session has another device already.
        """

    def serve(self, worker: str, device: str) -> str:
        """Let this session be a driver's worker on a node of a cluster, and warm it up.

        Returns:
            The environment that its hops record.
        """

    def recover(self, model: SavedModel) -> nn.Module:
        """Return a model's module; see `mmdb.train.replay.recipe_replay.recover_module`."""

    def notice(self, text: str) -> None:
        """Tell the caller something while the function goes on."""

    def warn(self, text: str) -> None:
        """Warn the caller while the function goes on."""

    def pause(self) -> None:
        """Let others see what was done, and serve interrupts.

        Raises:
            InTransaction: the caller's transaction block keeps it from them.
        """

    def driving(self) -> AbstractContextManager[tuple[AnyConnection, Callable[[], None]]]:
        """Yield a connection for a driver, and what it is to call while it waits."""

    def bounded(self) -> AbstractContextManager[None]:
        """Let a block take no more memory than a call may, where the process is the server's."""

    def compute(self, work: Callable[[Callable[[], bool]], _T]) -> _T:
        """Run `work(stopped)`, which touches no database, so that it can be cancelled."""

    def measuring(self, count: int) -> AbstractContextManager[CalibrationSetup]:
        """Yield where a calibration measures, with `count` workers if there can be several."""


class _InterruptibleSession:
    """The session's own executor, whose jobs can be cancelled."""

    def __init__(self, plpy: Any, device: str | None) -> None:
        with uncollected():
            from mmdb.train.hops.device_worker import DeviceWorker  # torch: only where hops run

        end_at_once()
        self._plpy, self._session = plpy, DeviceWorker(device)
        self.device = device or str(self._session.device)
        self.held = self._session.held
        self.has_partition = self._session.has_partition
        self.has_backbone = self._session.has_backbone

    def warm_up(self) -> str:
        from mmdb.train.hops.device_worker import warm_up
        from mmdb.train.values.runtime import keep_freed_memory

        keep_freed_memory()  # only workers warm up; others' sessions stay as they are
        stand_back()
        with uncollected():
            return self.follow(lambda stopped: warm_up(self._session.device))

    def compute(self, job: Job[_R], payload: Payload = ()) -> tuple[_R, bytes | None]:
        return self.follow(lambda stopped: job.run(self._session, payload, stopped))

    def follow(self, work: Callable[[Callable[[], bool]], _T]) -> _T:
        return interruptible(self._plpy, work)


class PlpyBackend:
    """A PostgreSQL session; lives in its `GD`."""

    def __init__(self, plpy: Any) -> None:
        if "torch" in sys.modules:
            import torch

            torch.set_num_threads(1)
        end_at_once()
        self._plpy = plpy
        self.connection = PlpyConnection(plpy)
        self.models: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self.known: tuple[object, dict[str, int]] = (None, {})
        self._session: _InterruptibleSession | None = None
        self._serves: tuple[str, str] | None = None  # a worker, and its device
        self._environment = ""  # that its hops record

    def _on(self, device: str | None) -> _InterruptibleSession:
        """Return the session's performer, which the first call makes on its device."""
        if self._session is None:
            self._session = _InterruptibleSession(self._plpy, device)
        return self._session

    @functools.cached_property
    def runner(self) -> HopRunner:
        with uncollected():
            from mmdb.train.hops.runner import HopRunner  # loads torch

        row = self._plpy.execute("SELECT current_setting('application_name') AS name")[0]
        name = str(row["name"])
        if not name or name.startswith("citus_internal"):
            name = "session"
        node = own_node(self.connection) if self.connection.is_spread else None
        return HopRunner(self.connection, self._on(None), name, node=node)

    def bounded(self) -> AbstractContextManager[None]:
        return bounded(self._memory_limit)

    def _memory_limit(self) -> int | None:
        """Return the bytes that the owner allows a call of this role to take.

        On a cluster that is said on the coordinator alone, which a node must not ask in mid-call.
        """
        if self.connection.is_spread:
            return None
        (row,) = self.connection.rows(load("owners").find_memory)
        return None if row["bytes"] is None else int(row["bytes"])

    def serve(self, worker: str, device: str) -> str:
        settings = {"application_name": worker} | _SERVING
        query = load("nodes").set_session
        names, texts = list(settings), list(settings.values())
        self.connection.run(query, names=names, texts=texts)  # a rollback took back what was set
        if self._serves != (worker, device):
            self._serves = None
            self.__dict__.pop("runner", None)  # which has the name that the session had
            self._environment = self.warm_up(device)
            self._serves = (worker, device)
        return self._environment

    def warm_up(self, device: str) -> str:
        session = self._on(device)
        if session.device != device:
            raise InvalidOption(
                f"This session's device is {session.device}.", hint="Open another session."
            )
        return session.warm_up()

    def recover(self, model: SavedModel) -> nn.Module:
        from mmdb.train.replay.recipe_replay import recover_module

        return recover_module(
            self.connection, model, compute=functools.partial(interruptible, self._plpy)
        )

    def bound_waits(self) -> None:
        """Let the transaction wait for no lock for ever, unless the session says otherwise."""
        self.connection.run(load("locks").bound_waits, timeout=LOCK_TIMEOUT)

    def notice(self, text: str) -> None:
        self._plpy.notice(text)

    def warn(self, text: str) -> None:
        self._plpy.warning(text)

    @contextmanager
    def driving(self) -> Iterator[tuple[AnyConnection, Callable[[], None]]]:
        """Yield a session of the owner's worker login; waiting lets PostgreSQL interrupt.

        Raises:
            InTransaction: the procedure was called inside a transaction block.
            NoWorkerLogin: the owner has set no login.
            WrongUrl: the login does not work.
        """
        from mmdb.db.postgres import PostgresConnection  # loads a driver: only where one is used

        rows = self.connection.rows(load("catalog").find_setting, name="worker_dsn")
        if not rows:
            raise NoWorkerLogin("The owner has set no login for worker sessions.")
        self.pause()
        try:
            connection = PostgresConnection(
                str(rows[0]["value"]),
                application_name="mmdb driver",
                on_wait=self._serve,  # the server that it waits for may wait for this session's end
            )
        except WrongUrl as error:
            raise WrongUrl(
                f"The login of mmdb.setting 'worker_dsn' does not work: {error.message}",
                hint="The server opens it: its password is kept by the server's user, in .pgpass; "
                "docs/running.md.",
            ) from error
        try:
            ending_with(connection.cancel)
            yield connection, self.pause
        finally:
            connection.close()

    def compute(self, work: Callable[[Callable[[], bool]], _T]) -> _T:
        return interruptible(self._plpy, work)

    @contextmanager
    def measuring(self, count: int) -> Iterator[CalibrationSetup]:
        """Yield sessions of the owner's worker login; this session alone where there is none."""
        from mmdb.plan.profile.measurers import CalibrationSetup, LocalMeasurer

        rows = self.connection.rows(load("catalog").find_setting, name="worker_dsn")
        if not rows:
            own = LocalMeasurer(self.connection)
            lacking = "the server has no login for worker sessions (mmdb.setting 'worker_dsn')"
            yield CalibrationSetup(
                places=[LocalMeasurer()], database=own, on_wait=self._serve, lacking=lacking
            )
            return
        from mmdb.plan.calibration import sessions  # loads a driver

        ending_with()
        with sessions(str(rows[0]["value"]), count, self._serve) as places:
            yield CalibrationSetup(places=places, database=places[0], on_wait=self._serve)

    def _serve(self) -> None:
        """Let PostgreSQL interrupt."""
        heed(self._plpy)

    def pause(self) -> None:
        """End the transaction, so that waiting holds back no vacuum; interrupts are served."""
        try:
            self._plpy.commit()
        except self._plpy.SPIError as error:
            if getattr(error, "sqlstate", None) == "2D000":
                raise InTransaction("train cannot run inside a transaction block.") from error
            raise
        heed(self._plpy)


def ending_with(*actions: Callable[[], None]) -> None:
    """Give the call under way time to end its own sessions where it is interrupted.

    Args:
        actions: called then, in another thread.
    """
    call = this_call()
    if call is not None:
        call.grace_s = DRIVER_GRACE_S
        call.on_end += actions


def exposed(
    function: Callable[..., Any],
    *,
    is_quick: Callable[..., bool] = lambda backend, *arguments: False,
    is_bounded: bool = False,
) -> Callable[..., Any]:
    """Return `function` in the form that a PL/Python body calls; see the module's docstring.

    Args:
        is_quick: whether a call of a backend with these arguments heeds a cancel by itself: it is
            over at once, or computes apart.
        is_bounded: whether it bounds its memory by itself, where its texts are short, and reads
            what nobody but the owner locks: each costs a prediction a tenth of its time.
    """

    @functools.wraps(function)
    def body(plpy: Any, gd: dict[str, Any], *arguments: Any) -> Any:
        if "mmdb" not in gd or is_any_left():
            gd["mmdb"] = PlpyBackend(Lent(plpy))
        backend = gd["mmdb"]
        try:
            if not is_bounded:
                backend.bound_waits()
            is_long = any([isinstance(one, str) and len(one) > _SHORT for one in arguments])
            with backend.bounded() if is_long or not is_bounded else UNBOUNDED:
                if is_quick(backend, *arguments):
                    return function(backend, *arguments)
                return apart(plpy, functools.partial(function, backend, *arguments))
        except MmdbError as error:
            _say(plpy, error)
        except (plpy.SPIError, MemoryError, RuntimeError, OSError, ImportError) as error:
            if (short := shortage(error)) is not None:
                _say(plpy, short)
            state = getattr(error, "sqlstate", "")
            refused = refusal(state, str(error))
            if tells_of_lost_node(state, str(error)) and backend.connection.is_spread:
                refused = NodeLost(str(error))
            if refused is None:
                raise
            _say(plpy, refused)

    body.function = function  # type: ignore[attr-defined]
    return body


def deferred(
    path: str, is_quick: Callable[..., bool] = lambda backend, *arguments: False
) -> Callable[..., Any]:
    """Return a function of a backend, by its module and name, as an exposed one.

    It is loaded within the call, which a cancel can end.

    Args:
        is_quick: see `exposed`.
    """
    module, _, name = path.rpartition(".")

    def function(backend: Backend, *arguments: Any) -> Any:
        return getattr(import_module(module), name)(backend, *arguments)

    function.__name__ = name
    return exposed(function, is_quick=is_quick)


def passed_on(path: str, *keywords: str) -> Callable[..., Any]:
    """Return a library's function of a connection as an exposed one, loaded within the call.

    Args:
        path: its module and name.
        keywords: the last of its arguments that are passed by name.
    """
    module, _, name = path.rpartition(".")

    def function(backend: Backend, *arguments: Any) -> Any:
        given = arguments[: len(arguments) - len(keywords)]
        named = dict(zip(keywords, arguments[len(given) :], strict=True))
        found = getattr(import_module(module), name)(backend.connection, *given, **named)
        if isinstance(found, list):
            return [_row(one) for one in found]
        return [_row(found)] if isinstance(found, dict) or is_dataclass(found) else found

    function.__name__ = name
    return exposed(function)


def _row(value: Any) -> Any:
    if isinstance(value, tuple):
        return value._asdict()  # type: ignore[attr-defined]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _say(plpy: Any, error: MmdbError) -> NoReturn:
    """Raise an error of mmdb as PostgreSQL's."""
    said = {"hint": error.hint, "detail": getattr(error, "trace", "")}
    known = {name: text for name, text in said.items() if text}  # a None is sent as a text
    plpy.error(error.message, sqlstate=error.sqlstate, **known)
    raise AssertionError("plpy.error raises")
