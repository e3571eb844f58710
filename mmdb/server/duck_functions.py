"""mmdb's functions in DuckDB: a Python UDF for each, and a macro in schema `mmdb` that calls it.

The macro gives the schema-qualified name, the argument names and the defaults; the UDF takes every
argument and returns a list of structs, or a scalar.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from mmdb.db.duck import DuckConnection
from mmdb.errors import MmdbError
from mmdb.server.calls import Argument, Declaration, declarations, declared, duckdb_type
from mmdb.server.child_backend import ChildBackend


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
    for declaration in _distinct():
        _register(owner, backend, declaration)
    return backend


def _distinct() -> list[Declaration]:
    """One declaration a name: of overloads the last, whose json argument takes any value."""
    return list({d.name: d for d in declarations()}.values())


def _register(owner: DuckConnection, backend: DuckBackend, declaration: Declaration) -> None:
    name = f"_mmdb_{declaration.name}"
    result = duckdb_type(declaration.returns) if not declaration.columns else _struct(declaration)
    make: Any = owner.raw.create_function  # typed for functions that are written out
    make(
        name,
        _callable(owner, backend, declaration),
        [duckdb_type(a.type) for a in declaration.arguments],
        result,
        null_handling="special",
        side_effects=True,  # else a constant call is folded, and runs under EXPLAIN too
    )
    call = f"{name}({', '.join(map(_pass, declaration.arguments))})"
    select = f"TABLE SELECT unnest(rows) FROM (SELECT unnest({call}) AS rows)"
    body = select if declaration.is_set else call
    arguments = ", ".join(map(_parameter, declaration.arguments))
    owner.raw.execute(f"CREATE OR REPLACE MACRO mmdb.{declaration.name}({arguments}) AS {body}")


def _struct(declaration: Declaration) -> str:
    fields = ", ".join(f"{name} {duckdb_type(kind)}" for name, kind in declaration.columns)
    return f"STRUCT({fields})" + ("[]" if declaration.is_set else "")


def _parameter(argument: Argument) -> str:
    return argument.name + (f" := {argument.default}" if argument.default is not None else "")


def _pass(argument: Argument) -> str:
    if argument.type == "jsonb":
        return f"to_json({argument.name})::VARCHAR"
    return f"{argument.name}::{duckdb_type(argument.type)}"


def _callable(
    owner: DuckConnection, backend: DuckBackend, declaration: Declaration
) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        function = getattr(import_module(declaration.module), declaration.function).function
        try:
            with backend.one_at_a_time:
                return declared(declaration, function(backend, *arguments))
        except (MmdbError, KeyboardInterrupt) as error:
            owner.raised = error  # DuckDB passes on the text alone
            raise

    # DuckDB reads the number of parameters off the signature.
    kind = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter(a.name, kind) for a in declaration.arguments]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call
