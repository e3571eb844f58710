"""Parts of values as columns: a row's fields, a range's bounds, what is at a path of a document.

A part is named by its column and path, such as `payload.items[0].price`. A dataset keeps no more of
it than the name, by which rows that are predicted are taken apart, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mmdb.data.column_layout import check_twins
from mmdb.db.connection import ColumnType, Connection
from mmdb.db.queries import quote_name, quote_text
from mmdb.errors import InvalidInput, InvalidOption, UnsupportedType
from mmdb.messages import show

Columns = Sequence[tuple[str, ColumnType]]
#: By the name of a column or a part: what a document holds there, None where that is not known.
Wanted = Mapping[str, ColumnType | None]

_STEP = re.compile(r'\.(?:"((?:[^"]|"")*)"|([^."\[\]]+))|\[(\d+)\]')
_PATH = re.compile(f"(?:{_STEP.pattern})+")
#: A range as PostgreSQL writes it, such as `[1,5)` or `["2013-01-01 05:00:00",)`.
_BOUND = r'("(?:[^"\\]|""|\\.)*"|[^",]*)'
_RANGE = re.compile(rf"(?:empty|[\[(]{_BOUND},{_BOUND}[\])])", re.DOTALL)
#: Bytes of a name: PostgreSQL cuts a longer one off.
_NAME_BYTES = 63
#: How values of these types are read, so that they are what JSON has: `{}` is their column.
_READ_AS = {
    "inet": "pg_catalog.textin(pg_catalog.inet_out({}))",  # a cast adds the mask /32
    "time with time zone": "({} AT TIME ZONE 'UTC')::time",
    "boolean[]": "{}::integer[]",
    "TIME WITH TIME ZONE": "{0}::TIME - to_seconds(date_part('timezone', {0}))",
    "TIMESTAMPTZ_NS": "{}::TIMESTAMPTZ",
    "BOOLEAN[]": "{}::INTEGER[]",
    "BIGNUM": "CASE WHEN {0} IS NOT NULL THEN COALESCE(TRY_CAST({0} AS DOUBLE), 'inf'::DOUBLE) END",
    '"NULL"': "{}::VARCHAR",
}
_WITH_PARTS = ("composite", "range")
_DOCUMENTS = ("json", "jsonb", "hstore", "JSON", "VARIANT", "MAP", "UNION", "TUPLE")
_NESTED, _TEXTS = "('object', 'array')", "('string', 'varchar', 'boolean')"


def is_document(kind: ColumnType) -> bool:
    """Whether columns of a type are read by paths, as JSON: lists and maps are, too."""
    return kind.partition("(")[0].rpartition(".")[2] in _DOCUMENTS or kind.endswith("]")


def steps_of(name: str, column: str) -> list[str]:
    """Return the path by which a part's name goes on from that of a column; empty: it does not.

    >>> steps_of('payload.items[0]."a.b"', "payload"), steps_of("payloads", "payload")
    (['items', '0', 'a.b'], [])
    """
    path = name[len(column) :] if column and name.startswith(column) else ""
    found = _STEP.findall(path) if path and _PATH.fullmatch(path) else []
    return [quoted.replace('""', '"') + plain + at for quoted, plain, at in found]


def with_parts(
    connection: Connection, select: str, columns: Columns, wanted: Wanted
) -> tuple[str, Columns]:
    """Return a SELECT of a query's columns with their parts, and its columns.

    Args:
        select: ready to be put in parentheses.
        wanted: parts, and columns that stay whole. For what is not known its rows are read.
    Raises:
        QueryError: two columns have one name.
        UnsupportedType: there is an object or a list at a path.
        InvalidOption: PostgreSQL cannot have a name as long.
    """
    opened: set[str] = set()
    while True:
        check_twins([name for name, _ in columns], connection.engine)
        items, taken = [], {name for name, _ in columns}
        for name, kind in columns:
            parts: list[tuple[str, str]] = []
            if name not in opened and (kind in _WITH_PARTS or is_document(kind)):
                further = sorted(wanted.keys() - taken)
                below = {part: wanted[part] for part in further if steps_of(part, name)}
                if below or name not in wanted:
                    parts = list(_parts(connection, select, name, kind, below))
                    opened.add(name)
            if name in wanted or not parts:
                items.append((name, _READ_AS.get(kind, "{}").format(quote_name(name))))
            items += parts
        if items == [(name, quote_name(name)) for name, _ in columns]:
            return select, columns
        for name, _ in items:
            if len(name.encode()) > _NAME_BYTES and connection.engine == "postgres":
                raise InvalidOption(
                    f"Column {name!r} has a name of more than {_NAME_BYTES} bytes.",
                    hint="Take this part in the query, under a shorter name.",
                )
        shown = ", ".join(f"{item} AS {quote_name(name)}" for name, item in items)
        select = f"SELECT {shown} FROM ({select}\n) AS q"
        kinds = [kind for _, kind in connection.columns(select)]
        columns = [(name, kind) for (name, _), kind in zip(items, kinds, strict=True)]


def _parts(
    connection: Connection, select: str, name: str, kind: ColumnType, below: Wanted
) -> Iterator[tuple[str, str]]:
    """Yield name and expression of each part that a column becomes."""
    column, is_duckdb = quote_name(name), connection.engine == "duckdb"
    if is_document(kind):
        for part, known in below.items():
            yield part, _at_path(connection, select, name, part, known)
    elif kind == "range":
        for bound in ("lower", "upper"):
            yield f"{name}.{bound}", f"pg_catalog.{bound}({column})"
    elif kind == "composite":
        fields = f"unnest({column})" if is_duckdb else f"({column}).*"
        for field, _ in connection.columns(f"SELECT {fields} FROM ({select}\n) AS q"):
            step = field if steps_of(f"x.{field}", "x") == [field] else quote_name(field)
            taken = f"struct_extract({column}, {quote_text(field)})"
            yield f"{name}.{step}", taken if is_duckdb else f"({column}).{quote_name(field)}"


def _at_path(
    connection: Connection, select: str, name: str, part: str, known: ColumnType | None
) -> str:
    """Return the expression of what is at a path: a number where all that is there is one."""
    column, steps = quote_name(name), steps_of(part, name)
    if connection.engine == "duckdb":
        pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
        place, number = f"(to_json({column}), {quote_text(pointer)})", "double"
        text, kind = f"json_extract_string{place}", f"lower(json_type{place})"
    else:
        path = ", ".join("E" + quote_text(step).replace("\\", "\\\\") for step in steps)
        place, number = f"(pg_catalog.to_jsonb({column}), {path})", "numeric"
        text = f"pg_catalog.jsonb_extract_path_text{place}"
        kind = f"pg_catalog.jsonb_typeof(pg_catalog.jsonb_extract_path{place})"
    if known is None:
        rank = f"CASE WHEN {kind} IN {_NESTED} THEN 2 WHEN {kind} IN {_TEXTS} THEN 1 ELSE 0 END"
        most = f"SELECT COALESCE(max({rank}), 0)::bigint AS found FROM ({select}\n) AS q"
        (batch,) = connection.scan(most, [("found", "bigint")])
        if batch["found"][0] == 2:
            raise UnsupportedType(
                f"Column {part!r} holds objects or lists.",
                hint=f'Go on to a value in them: "{part}.price", or "{part}[0]".',
            )
        known = "text" if batch["found"][0] else "float"
    if known == "text":
        return text
    is_other = f"{kind} IN {_NESTED} OR {kind} IN {_TEXTS}"
    return f"(CASE WHEN {is_other} THEN 'NaN' ELSE {text} END)::{number}"


def parts_of(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return columns and parts of them by name, as far as a row that JSON holds has them.

    Raises:
        InvalidInput: a column has no parts.
    """
    return {
        name: row[name] if name == column else _walk(column, row[column], steps)
        for name in names
        for column in ([name] if name in row else row)
        if (steps := steps_of(name, column)) or name == column
    }


def _walk(column: str, value: Any, steps: Sequence[str]) -> Any:
    """Return what is at a path of a value, None where there is nothing."""
    if isinstance(value, str) and not _RANGE.fullmatch(value):
        try:
            value = json.loads(value)  # as drivers pass JSON on
        except ValueError as error:
            raise InvalidInput(
                f"Column {column!r} holds {show(value)}, which has no parts.",
                hint="Pass an object, a list, or a range such as [1,5).",
            ) from error
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list):
            value = value[int(step)] if step.isdecimal() and int(step) < len(value) else None
        else:
            bounds = _RANGE.fullmatch(value) if isinstance(value, str) else None
            if bounds is None or step not in ("lower", "upper"):
                return None
            bound = bounds[1 + (step == "upper")] or ""
            quoted = re.sub(r'""|\\(.)', lambda found: found[1] or '"', bound[1:-1])
            value = (quoted if bound.startswith('"') else bound) or None
    return value
