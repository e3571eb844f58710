"""Calls of mmdb's functions from Python, as `udf/` declares them: in the server or this process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from mmdb.argument_types import check_type
from mmdb.db.queries import load, sql_directory
from mmdb.db.url import AnyConnection

if TYPE_CHECKING:
    from mmdb.server.outside_server import ChildBackend


_FUNCTION = re.compile(
    r"CREATE OR REPLACE (?:FUNCTION|PROCEDURE) mmdb\.(?P<name>\w+)\s*\((?P<arguments>[^$]*?)\)\s*"
    r"(?:RETURNS (?P<returns>[^$]*?))?\s*LANGUAGE plpython3u.*?"
    r"from (?P<module>[\w.]+) import (?P<function>\w+)\n",
    re.DOTALL,
)
_TYPE = re.compile(r"CREATE TYPE mmdb\.(?P<name>\w+) AS \((?P<columns>.*?)\n\);", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a function."""

    name: str
    type: str  # PostgreSQL's
    default: str | None  # SQL text


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One function of `udf/`."""

    name: str
    arguments: tuple[Argument, ...]
    columns: tuple[tuple[str, str], ...]  # of the rows it returns: name and type
    returns: str  # type; empty for a procedure, which returns its INOUT arguments as one row
    module: str
    function: str

    @property
    def is_set(self) -> bool:
        """Whether it returns any number of rows."""
        return bool(self.columns) and bool(self.returns)


@cache
def duckdb_type(postgres: str) -> str:
    """Return the DuckDB type that stands for a PostgreSQL type; json travels as text."""
    if postgres == "jsonb":
        return "VARCHAR"
    return exp.DataType.build(postgres.replace(" [", "["), dialect="postgres").sql("duckdb")


@cache
def declarations() -> tuple[Declaration, ...]:
    """Return the functions of `udf/` in order."""
    text = (sql_directory("sql/engines") / "postgres.sql").read_text()
    types = {match["name"]: match["columns"] for match in _TYPE.finditer(text)}
    return tuple(
        _declaration(match, types)
        for path in sorted(sql_directory("udf").glob("*.sql"))
        for match in _FUNCTION.finditer(path.read_text())
    )


def _declaration(match: re.Match[str], types: dict[str, str]) -> Declaration:
    returns = (match["returns"] or "").strip()
    items = _items(match["arguments"])
    results = [item.removeprefix("INOUT ") for item in items if item.startswith("INOUT ")]
    taken = [i for i in items if not (i.startswith("INOUT ") and i.endswith("DEFAULT NULL"))]
    if returns.startswith("TABLE"):
        results = _items(returns.removeprefix("TABLE").strip()[1:-1])
    elif returns.startswith("SETOF mmdb."):
        results = _items(types[returns.removeprefix("SETOF mmdb.")])
    return Declaration(
        name=match["name"],
        arguments=tuple(_argument(item.removeprefix("INOUT ")) for item in taken),
        columns=tuple((a.name, a.type) for a in map(_argument, results)),
        returns=returns,
        module=match["module"],
        function=match["function"],
    )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _argument(item: str) -> Argument:
    declared, _, default = item.partition(" DEFAULT ")
    name, _, kind = declared.replace(" [", "[").partition(" ")
    return Argument(name=name.strip('"'), type=_DOMAINS.get(kind, kind), default=default or None)


#: PostgreSQL's domains, which say how long an array may be.
_DOMAINS = {"mmdb.numbers": "real[]", "mmdb.sizes": "integer[]", "mmdb.ids": "bigint[]"}


#: What Python passes for PostgreSQL's types that DuckDB would not check.
_KINDS = {
    "bigint": int | None,
    "boolean": bool | None,
    "double precision": float | None,
    "integer": int | None,
    "text": str | None,
}


def call(
    connection: AnyConnection, backend: ChildBackend | None, name: str, arguments: dict[str, Any]
) -> Any:
    """Call a function of `udf/` and return its rows, or its value where it returns one.

    Args:
        backend: runs the function; None for the server, by the query of the same name in api.sql.
        arguments: all of them, by name; json as text.
    Raises:
        InvalidOption: one is of another type.
    """
    declaration = _declared()[name]
    for one in declaration.arguments:
        check_type(one.name, arguments[one.name], _KINDS.get(one.type, Any))
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
