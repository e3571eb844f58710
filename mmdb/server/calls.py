"""Calls of mmdb's functions from Python: inside the server, or in this process."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mmdb.db.queries import load
from mmdb.db.url import AnyConnection
from mmdb.server.declarations import Declaration, declarations

if TYPE_CHECKING:  # it loads torch
    from mmdb.server.child_backend import ChildBackend


def call(
    connection: AnyConnection, backend: ChildBackend | None, name: str, arguments: dict[str, Any]
) -> Any:
    """Call a function of `udf/` and return its rows, or its value where it returns one.

    Args:
        backend: runs the function; None for the server, by the query of the same name in api.sql.
        arguments: all of them, by name; json as text.
    """
    declaration = _declared()[name]
    if backend is None:
        rows = connection.rows(getattr(load("api"), name), **arguments)
        return rows if declaration.is_set else next(iter(rows[0].values()))
    function = getattr(import_module(declaration.module), declaration.function).function
    with backend.one_at_a_time:
        result = function(backend, *(arguments[a.name] for a in declaration.arguments))
    return declared(declaration, result)


def declared(declaration: Declaration, result: Any) -> Any:
    """Return what a function has returned, its rows with the declared columns alone."""
    if not declaration.columns:
        return result
    rows = result if isinstance(result, list) else [result]
    rows = [{name: row[name] for name, _ in declaration.columns} for row in rows]
    return rows if declaration.is_set else rows[0]


@cache
def _declared() -> dict[str, Declaration]:
    return {declaration.name: declaration for declaration in declarations()}
