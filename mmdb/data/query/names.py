"""Names: as an engine compares them, and what it calls an expression without one."""

from __future__ import annotations

from sqlglot import exp

from mmdb.data.query.statement import Engine
from mmdb.db.relations import TableName

#: Bytes of a name that PostgreSQL keeps.
_KEPT_BYTES = 63
#: What EXTRACT and INTERVAL may name.
UNITS = set(
    "century centuries decade decades millennium millenniums year years isoyear yearweek quarter "
    "quarters month months week weeks weekday day days dayofweek dayofyear dow doy isodow hour "
    "hours minute minutes second seconds millisecond milliseconds microsecond microseconds "
    "nanosecond nanoseconds epoch era julian timezone timezone_hour timezone_minute".split()
)
#: In an identifier's meta: a rule has read what it names.
_CLAIMED = "claimed"
_UPPER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def fold(text: str, engine: Engine, *, is_quoted: bool = False) -> str:
    """Return a name as the engine compares it; beyond ASCII both tell cases apart.

    >>> fold("Größe", "postgres"), fold("Größe", "postgres", is_quoted=True)
    ('größe', 'Größe')
    """
    if engine == "duckdb":
        return text.translate(_UPPER)
    kept = text.encode()[:_KEPT_BYTES].decode(errors="ignore")
    return kept if is_quoted else kept.translate(_UPPER)


def name_of(identifier: exp.Expr, engine: Engine) -> str:
    """Return an identifier's name as the engine compares it; the reader accounts for it."""
    identifier.meta[_CLAIMED] = True
    return fold(identifier.name, engine, is_quoted=bool(identifier.args.get("quoted")))


def claim(*nodes: exp.Expr) -> None:
    """Account for the names below some nodes: they name no column, or what is marked already."""
    for node in nodes:
        for identifier in node.find_all(exp.Identifier):
            identifier.meta[_CLAIMED] = True


def claimed(statement: exp.Expr) -> set[int | None]:
    """Return where in the text the names stand that a rule has accounted for."""
    found = statement.find_all(exp.Identifier)
    return {identifier.meta.get("start") for identifier in found if identifier.meta.get(_CLAIMED)}


def table_name(table: exp.Table, engine: Engine) -> TableName:
    """Return the name of a table in FROM."""
    *around, name = (name_of(part, engine) for part in table.parts)
    schema = around[-1] if around else None
    return TableName(name, schema, around[-2] if len(around) > 1 else None)


def shown(identifier: exp.Expr, engine: Engine) -> str:
    """Return an identifier as the engine shows it: DuckDB keeps its spelling."""
    return identifier.name if engine == "duckdb" else name_of(identifier, engine)


def output_name(item: exp.Expr, engine: Engine) -> tuple[str | None, str, tuple[str, ...]]:
    """Return an output's name, how it is spelled, and, without a name, what it may be called.

    Source: PostgreSQL, src/backend/parser/parse_target.c, FigureColname.
    """
    if isinstance(item, exp.Alias):
        alias = item.args["alias"]
        return name_of(alias, engine), shown(alias, engine), ()
    named = _named_by(item, engine)
    if named is not None:
        return name_of(named, engine), shown(named, engine), ()
    text = item.sql(dialect=engine, comments=False)[:_KEPT_BYTES]
    return None, text, _function_names(item) if engine == "postgres" else ()


def _named_by(item: exp.Expr, engine: Engine) -> exp.Expr | None:
    """Return the identifier that names an expression, if it is surely that."""
    while isinstance(item, exp.Paren):
        item = item.this
    if isinstance(item, exp.Column):
        return item.this if isinstance(item.this, exp.Identifier) else None
    if engine == "duckdb":
        return None
    if isinstance(item, exp.Bracket | exp.Collate):
        return _named_by(item.this, engine)
    if isinstance(item, exp.Dot):
        return item.expression if isinstance(item.expression, exp.Identifier) else None
    if type(item) is exp.Cast:  # of a column: its name; else that of the type or the function
        return _named_by(item.this, engine)
    return None


def _function_names(item: exp.Expr) -> tuple[str, ...]:
    """Return the names that PostgreSQL may give to a call, by the function's."""
    while isinstance(item, exp.Window | exp.Filter | exp.WithinGroup | exp.Cast | exp.Paren):
        item = item.this
    if isinstance(item, exp.Dot):
        item = item.expression
    if isinstance(item, exp.Anonymous):
        return (item.name.translate(_UPPER),)
    if isinstance(item, exp.Func):
        return tuple(name.lower() for name in item.sql_names())
    return ()
