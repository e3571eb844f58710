"""mmdb's functions where the server runs no Python: in a child process, and in DuckDB."""

from __future__ import annotations

import inspect
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from mmdb.db.duck import DuckConnection
from mmdb.db.queries import quote_name
from mmdb.db.url import AnyConnection
from mmdb.errors import InvalidOption, MmdbError
from mmdb.server.calls import Argument, Declaration, declarations, declared, duckdb_type
from mmdb.train.drive.child import ChildProcess

if TYPE_CHECKING:
    from torch import nn

    from mmdb.plan.profile.measurers import CalibrationSetup
    from mmdb.store.models.model_rows import SavedModel
    from mmdb.train.hops.runner import HopRunner


_T = TypeVar("_T")


class ChildBackend:
    """A `Backend` over a session of this process: a DuckDB file, or a PostgreSQL without PL/Python.

    Hops never run in the user's own process: a module may end it, or change torch's settings.
    """

    def __init__(self, connection: AnyConnection) -> None:
        self.connection = connection
        self.models: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self.known: tuple[object, dict[str, int]] = (None, {})
        self._child: ChildProcess | None = None
        self._runner: HopRunner | None = None
        #: DuckDB calls a function from several threads when a query reads a large table.
        self.one_at_a_time = threading.RLock()

    @property
    def runner(self) -> HopRunner:
        """The runner of hops that are asked for one by one."""
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

    def warn(self, text: str) -> None:
        """Nobody hears."""

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

    def _live_child(self, device: str | None) -> ChildProcess:
        if self._child is None or not self._child.alive:
            ChildBackend.close(self)
            self._child = ChildProcess(device or "cpu")
            self._child.warm_up()
            from mmdb.train.hops.runner import HopRunner  # imports torch

            self._runner = HopRunner(self.connection, self._child, "session")
        return self._child

    def close(self) -> None:
        """End the child process; the session stays open."""
        child, self._child = self._child, None
        if child is not None:
            child.close()


class DuckBackend(ChildBackend):
    """The process that owns a DuckDB file, inside a function call."""

    connection: DuckConnection

    def __init__(self, owner: DuckConnection) -> None:
        super().__init__(owner.cursor())  # the owner's own session is busy with the calling query

    def close(self) -> None:
        """End the worker process and the second session."""
        super().close()
        self.connection.close()


def register(owner: DuckConnection) -> DuckBackend:
    """Make every function of `udf/` callable over `owner`."""
    backend = DuckBackend(owner)
    distinct = {d.name: d for d in declarations()}  # of overloads the last: it takes any JSON
    with owner.transaction():  # one write to the disk, not one for each
        for declaration in distinct.values():
            _register(owner, backend, declaration)
    return backend


def _register(owner: DuckConnection, backend: DuckBackend, declaration: Declaration) -> None:
    name = f"_mmdb_{declaration.name}"
    fields = ", ".join(
        f"{quote_name(column)} {duckdb_type(kind)}" for column, kind in declaration.columns
    )
    rows = f"STRUCT({fields})" + ("[]" if declaration.is_set else "")
    make: Any = owner.raw.create_function  # typed for functions that are written out
    make(
        name,
        _callable(owner, backend, declaration),
        [duckdb_type(a.type) for a in declaration.arguments],
        rows if declaration.columns else duckdb_type(declaration.returns),
        null_handling="special",
        side_effects=True,  # else a constant call is folded, and runs under EXPLAIN too
    )
    call = f"{name}({', '.join(map(_pass, declaration.arguments))})"
    select = f"TABLE SELECT unnest(rows) FROM (SELECT unnest({call}) AS rows)"
    body = select if declaration.is_set else call
    arguments = ", ".join(
        quote_name(a.name) + (f" := {a.default}" if a.default is not None else "")
        for a in declaration.arguments
    )
    owner.raw.execute(f"CREATE OR REPLACE MACRO mmdb.{declaration.name}({arguments}) AS {body}")


def _pass(argument: Argument) -> str:
    name = quote_name(argument.name)
    if argument.type == "jsonb":
        return f"to_json({name})::VARCHAR"
    return f"{name}::{duckdb_type(argument.type)}"


def _callable(
    owner: DuckConnection, backend: DuckBackend, declaration: Declaration
) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        function = getattr(import_module(declaration.module), declaration.function).function
        try:
            with backend.one_at_a_time:
                return _with_nan(declared(declaration, function(backend, *arguments)))
        except (MmdbError, KeyboardInterrupt) as error:
            owner.raised = error  # DuckDB passes on the text alone
            raise

    # DuckDB reads the number of parameters off the signature.
    kind = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter(a.name, kind) for a in declaration.arguments]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _with_nan(result: Any) -> Any:
    """Return a result with its NaNs as text, which DuckDB casts; it takes those of Python for NULL.

    >>> _with_nan([{"loss": math.nan, "model": "net"}])
    [{'loss': 'nan', 'model': 'net'}]
    """
    if isinstance(result, float):
        return "nan" if math.isnan(result) else result
    if isinstance(result, dict):
        return {name: _with_nan(value) for name, value in result.items()}
    if not isinstance(result, list) or _all_numbers(result):
        return result
    return [_with_nan(value) for value in result]


def _all_numbers(values: list[Any]) -> bool:
    """Return whether a list has numbers alone; it may say no of infinite ones."""
    is_of_floats = bool(values) and isinstance(values[0], float) and None not in values
    return is_of_floats and not math.isnan(sum(values))
