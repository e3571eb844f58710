"""The functions of mmdb that a session may call, with values for their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg

from mmdb.db.queries import load, sql_directory

#: Which mean the same where somebody has planted others of these names.
_FUNCTIONS = """
SELECT n.nspname, p.proname, p.prokind = 'p',
    ARRAY(SELECT pg_catalog.format_type(coalesce(nullif(t.typbasetype, 0), t.oid), NULL)
        FROM pg_catalog.unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, place)
        INNER JOIN pg_catalog.pg_type AS t ON a.type = t.oid
        ORDER BY a.place),
    coalesce(p.proargnames, '{}')
FROM pg_catalog.pg_proc AS p INNER JOIN pg_catalog.pg_namespace AS n ON p.pronamespace = n.oid
WHERE n.nspname IN ('mmdb', 'mmdb_call') AND p.prorettype <> 'pg_catalog.trigger'::regtype::oid
    AND has_function_privilege(p.oid, 'EXECUTE')
ORDER BY 1, 2
"""
#: Values that a call goes far with, by the argument's name; others are by its type.
GOOD: dict[str, Any] = {
    "query": "SELECT x, y FROM public.points",
    "label": "y",
    "architecture": "linear",
    "key": "id",
    "entity": "model:model_own@1",
    "warm_start": "off",
    "approach": "auto",
    "strategy": "mop",
    "direction": "up",
    "kind": "model",
    "role": "rob",
    "alias": "prod",
    "validation": 0.2,
    "device": "cpu",
    "run": "run_own",
    "dataset": "data_own",
    "model": "model_own",
    "a": "model_own@1",
    "b": "model_own@2",
    "target": "work.made",
    "metric": "accuracy",
}
_BY_TYPE: dict[str, Any] = {
    "text": "x",
    "boolean": False,
    "json": "{}",
    "jsonb": "{}",
    "bytea": b"\0" * 32,
    "real": 0.5,
    "double precision": 0.5,
    "timestamp with time zone": "2026-01-02",
    "interval": "1 day",
}


@dataclass(frozen=True, slots=True)
class Function:
    """A function or procedure, with the names and types of its arguments."""

    schema: str
    name: str
    is_procedure: bool
    arguments: tuple[tuple[str, str], ...]

    @property
    def title(self) -> str:
        return f"{self.schema}.{self.name}"

    def call(self) -> str:
        """Return the statement that calls it, with a mark for each argument."""
        marks = ", ".join(f"%s::{kind}" for _, kind in self.arguments)
        return f"{'CALL' if self.is_procedure else 'SELECT * FROM'} {self.title}({marks})"


def functions_of(session: psycopg.Connection[Any]) -> list[Function]:
    """Return what the session's role may call."""
    found = []
    for schema, name, is_procedure, types, names in session.execute(_FUNCTIONS).fetchall():
        given = _parameters().get(name, names) if schema == "mmdb_call" else names
        named = [*given, *(f"argument_{k}" for k in range(len(given), len(types)))]
        arguments = tuple(zip(named, types, strict=False))
        found.append(Function(schema, name, is_procedure, arguments))
    return found


def good_value(name: str, kind: str, own: dict[str, list[Any]]) -> Any:
    """Return what is given for an argument that is not attacked: something of one's own."""
    base = kind.removesuffix("[]")
    singular = name.removesuffix("s") if kind.endswith("[]") else name
    if singular in GOOD and base in ("text", "double precision"):
        value = GOOD[singular]
    else:
        values = [v for v in own.get(singular, []) if fits(v, base)]
        value = values[0] if values else _BY_TYPE.get(base, 1)
    return [value] if kind.endswith("[]") else value


def fits(value: Any, kind: str) -> bool:
    """Return whether a value of a table is of a type."""
    types: dict[str, type | tuple[type, ...]] = {
        "text": str,
        "bytea": bytes,
        "boolean": bool,
        "real": float,
        "double precision": float,
    }
    wanted = types.get(kind, int if kind in ("bigint", "integer", "smallint") else ())
    return isinstance(value, wanted) and isinstance(value, bool) == (kind == "boolean")


@cache
def _parameters() -> dict[str, list[str]]:
    """Return the names of the arguments of mmdb_call's functions, which have types alone."""
    files = sorted(sql_directory("sql/queries").glob("*.sql"))
    queries = [query for path in files for query in load(path.stem)]
    return {q.definer: list(q.parameters) for q in queries if q.definer is not None}
