"""Functions in FROM: which of them are surely made of their arguments alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from mmdb.data.query.columns import QueryColumn, gap, unknown
from mmdb.data.query.names import claim, fold, name_of, shown
from mmdb.data.query.statement import Engine

_SERIES = "generate_series"
#: PostgreSQL's own, by the columns that they return; without names, one that the alias names.
_ELEMENTS, _PAIRS = ("value",), ("key", "value")
_OWN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("json_array_elements", "json_array_elements_text"), _ELEMENTS),
    **dict.fromkeys(("jsonb_array_elements", "jsonb_array_elements_text"), _ELEMENTS),
    **dict.fromkeys(("json_each", "json_each_text", "jsonb_each", "jsonb_each_text"), _PAIRS),
    **dict.fromkeys(("json_object_keys", "jsonb_object_keys", "jsonb_path_query"), ()),
    **dict.fromkeys(("regexp_matches", "regexp_split_to_table", "string_to_table"), ()),
    "generate_subscripts": (),
}
#: Those whose columns the alias defines.
_RECORDS = {"json_to_record", "json_to_recordset", "jsonb_to_record", "jsonb_to_recordset"}

#: What the arguments of a function read.
Read = Callable[[exp.Expr], list[QueryColumn]]


def function_name(node: exp.Expr) -> str:
    """Return what a function in FROM is called where it has no alias."""
    calls = _calls(node)
    return _call_name(calls[0]) if len(calls) == 1 else ""


def function_columns(
    node: exp.Expr, name: str, definitions: Sequence[exp.Expr], read: Read, engine: Engine
) -> list[QueryColumn]:
    """Return the columns of one function in FROM, or of several side by side.

    Args:
        name: its alias, or the function's name.
        definitions: the alias's list of columns, names or names with types.
    """
    calls = _calls(node)
    listed = [c.this if isinstance(c, exp.ColumnDef) else c for c in definitions]
    has_types = bool(listed) and all(isinstance(c, exp.ColumnDef) for c in definitions)
    offset = _offset(node)
    columns: list[QueryColumn] = []
    for call in calls:
        scalar = name if len(calls) == 1 else _call_name(call)
        wanted = len(listed) - (offset is True) if len(calls) == 1 else 0
        columns += _columns(call, scalar, has_types, wanted if listed else None, read(call), engine)
    if offset:
        columns.append(QueryColumn("ordinality", "ordinality"))
    if isinstance(offset, exp.Identifier):
        listed = [*listed, offset]
    if any(column.is_gap for column in columns[: len(listed)]) or len(listed) > len(columns):
        made = [unknown(name_of(c, engine), shown(c, engine)) for c in listed]
        return made if has_types else [*made, gap()]
    for column, given in zip(columns, listed, strict=False):
        column.name, column.label = name_of(given, engine), shown(given, engine)
    return columns


def calls_in(node: exp.Expr) -> list[exp.Expr]:
    """Return the arguments of all functions of an item of FROM."""
    return [argument for call in _calls(node) for argument in _arguments(_bare(call))]


def _arguments(call: exp.Expr) -> list[exp.Expr]:
    if isinstance(call, exp.Unnest):
        return list(call.expressions)
    return [call] if isinstance(call, exp.Func) else list(call.iter_expressions())


def _calls(node: exp.Expr) -> list[exp.Expr]:
    """Return the calls of an item: itself, the one in it, or those of ROWS FROM."""
    if isinstance(node, exp.Unnest):
        return [node]
    if isinstance(node, exp.Table | exp.Lateral):
        beside = node.args.get("rows_from")
        if beside:
            return list(beside)
        if isinstance(node.this, exp.Unnest):
            return [node.this]
        return [node] if isinstance(node.this, exp.Expr) else []
    return []


def _bare(call: exp.Expr) -> exp.Expr:
    return call if isinstance(call, exp.Unnest) else call.this


def _call_name(call: exp.Expr) -> str:
    bare = _bare(call)
    if isinstance(bare, exp.Unnest):
        return "unnest"
    return fold(bare.name, "duckdb") if isinstance(bare, exp.Anonymous) else ""


def _offset(node: exp.Expr) -> exp.Expr | bool:
    """Return whether a count of the rows follows, or its name."""
    inner = node.this if isinstance(node, exp.Lateral) else node
    offset = inner.args.get("offset") if isinstance(inner, exp.Unnest) else None
    if isinstance(offset, exp.Identifier):
        return offset
    return bool(offset) or bool(node.args.get("ordinality"))


def _columns(
    call: exp.Expr,
    name: str,
    has_types: bool,
    wanted: int | None,
    reads: list[QueryColumn],
    engine: Engine,
) -> list[QueryColumn]:
    """Return one call's columns; `wanted`: how many the alias lists, None for no list."""
    bare = _bare(call)
    schema = call.args.get("db")
    claim(*(part for part in (schema, call.args.get("catalog")) if part is not None))
    is_own = schema is None or schema.name in ("pg_catalog", "main")
    called = _call_name(call)
    is_single = called == _SERIES and is_own
    if isinstance(bare, exp.Unnest) and engine == "postgres":  # of composite values: many columns
        count = 0 if wanted is None else max(wanted, len(bare.expressions))
        return _made(count, reads) or [gap(None, reads)]
    if engine == "duckdb" and (is_single or isinstance(bare, exp.Unnest)):
        return [QueryColumn(None, name, reads=reads)]  # by more than one name
    if is_single:
        return [QueryColumn(name, name, reads=reads)]
    if engine == "postgres" and is_own and called in _OWN:
        return [QueryColumn(given, given, reads=list(reads)) for given in _OWN[called] or (name,)]
    if engine == "postgres" and is_own and called in _RECORDS:
        own = (call.args.get("alias") or exp.TableAlias()).args.get("columns") or ()
        claim(*own)
        if has_types or own:  # of ROWS FROM
            return _made((wanted or 0) if has_types else len(own), reads)
    return [gap()]


def _made(count: int, reads: list[QueryColumn]) -> list[QueryColumn]:
    return [QueryColumn(None, reads=list(reads)) for _ in range(count)]
