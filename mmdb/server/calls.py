"""Calls of mmdb's functions from Python: inside the server, or here where the server has none."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from mmdb.db.queries import load
from mmdb.db.url import AnyConnection
from mmdb.server.backend import Backend
from mmdb.server.declarations import Declaration, declarations


def call(
    connection: AnyConnection, backend: Backend | None, name: str, arguments: dict[str, Any]
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
    return function(backend, *(arguments[a.name] for a in declaration.arguments))


@cache
def _declared() -> dict[str, Declaration]:
    return {declaration.name: declaration for declaration in declarations()}
