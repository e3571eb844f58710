"""Names as an engine compares them, and the account of those that no rule has read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from mmdb.data.query.columns import QueryColumn, QueryRows, unknown
from mmdb.data.query.statement import Engine
from mmdb.db.connection import TableName

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


#: What stands before a type, a unit or an alias, and never before a column.
_NO_COLUMN_AFTER = {
    *(TokenType.DCOLON, TokenType.ALIAS, TokenType.STRING, TokenType.NUMBER, TokenType.WITH),
}
#: What stands behind the name of a function or of an argument, or behind a type.
_NO_COLUMN_BEFORE = {
    *(TokenType.L_PAREN, TokenType.FARROW, TokenType.COLON_EQ, TokenType.STRING),
}
#: Words that a SELECT may hold and that the tokenizer takes for names.
_WORDS = set(
    "asof at breadth by current cycle depth empty error exclude extract first following group "
    "groups keep last leading materialized no nulls off only ordinality others passing path "
    "positional preceding repeatable respect search sets system ties to trailing unbounded "
    "uncommitted value within without zone both columns nested omit quotes wrapper conditional "
    "bernoulli reservoir lambda anti semi strict default array cast".split()
)
#: Words that name a column only in quotes or behind a dot, as the engines' parsers have it.
_RESERVED = set(
    "all analyse analyze and any array as asc asymmetric authorization binary both case cast check "
    "collate collation column concurrently constraint create cross default deferrable desc "
    "distinct do else end except fetch for foreign freeze from full group having ilike in "
    "initially inner intersect into is isnull join lateral leading left like limit natural not "
    "notnull offset on only or order outer overlaps placing primary references returning right "
    "select similar some symmetric table tablesample then to trailing union unique using variadic "
    "verbose when where window with".split()
)
_RESERVED_BY: dict[Engine, set[str]] = {
    "duckdb": {*_RESERVED, *"anti asof glob lambda pivot positional qualify semi unpivot".split()},
    "postgres": {
        *(*_RESERVED, "current_catalog", "current_date", "current_role", "current_schema", "user"),
        *("current_time", "current_timestamp", "current_user", "localtime", "localtimestamp"),
        *("session_user", "true", "false", "null"),  # the last three: columns in DuckDB's UNPIVOT
    },
}
#: What the text up to a word may end with if that word is of a clause: a column cannot stand there.
_ENDS = tuple(
    [f" extract ( {unit}" for unit in UNITS]
    + [" xmlelement ( name", " union by name", " all by name", " at time", " without time"]
    + [" time zone", " nulls first", " nulls last", " fetch first", " fetch next"]
    + [" current row", " unbounded preceding", " unbounded following"]
    + [" exclude ties", " exclude group", " exclude no", " no others"]
)
#: What a text begins with from a word on that is of a window's frame, and how many tokens tell it.
_FRAME = re.compile(
    r"(rows|range|groups) (between )?(unbounded|current row|[^()]+? (preceding|following))\b"
    r"|current row\b|unbounded (preceding|following)\b|exclude (ties|group|no others|current)\b"
)
_FRAME_TOKENS = 6
#: What can be a name without quotes; `*`, `1` and `GROUP BY` are none.
_WORD = re.compile(r"[A-Za-z_\u0080-\U0010ffff]\S*", re.ASCII)
#: Literals: what they hold names nothing.
_TEXTS = {t for t in TokenType if t.name == "STRING" or t.name.endswith("_STRING")}


def marked(rows: QueryRows, text: str, statement: exp.Expr, engine: Engine) -> QueryRows:
    """Return the rows of a text; if a name is lost in it, no output is sure."""
    claim(*statement.find_all(exp.DataType))
    if isinstance(statement, exp.Create):  # DuckDB's text of a view
        claim(statement.this)
    named = {name for name, _ in _columns(rows)} | set(_tables(statement, engine))
    has_gap = any(is_gap for _, is_gap in _columns(rows))
    for token, name in _lost(text, statement, engine):
        if name in named or (has_gap and _is_name(token)):
            break
    else:
        return rows
    columns = [
        QueryColumn(c.name, c.label, reads=[c, unknown(None)], names=c.names, is_gap=c.is_gap)
        for c in rows.columns
    ]
    return QueryRows(columns, decides=rows.decides, inner=rows.inner)


def _lost(text: str, statement: exp.Expr, engine: Engine) -> Iterator[tuple[Token, str]]:
    """Yield the names in a text that no rule has read."""
    taken = claimed(statement)
    tokens = sqlglot.tokenize(text, read=engine)
    for place, token in enumerate(tokens):
        if token.start not in taken and _may_name(tokens, place, engine):
            is_quoted = token.token_type is TokenType.IDENTIFIER
            yield token, fold(token.text, engine, is_quoted=is_quoted)


def _may_name(tokens: Sequence[Token], place: int, engine: Engine) -> bool:
    """Return whether a column may stand at a place."""
    token = tokens[place]
    before = [token.token_type for token in tokens[max(place - 1, 0) : place]]
    after = [token.token_type for token in tokens[place + 1 : place + 2]]
    if set(after) & _NO_COLUMN_BEFORE or set(before) & _NO_COLUMN_AFTER:
        return False
    words = "".join(f" {t.text.lower()}" for t in tokens[max(place - 2, 0) : place + 1])
    if words.endswith(_ENDS):
        return False
    if token.token_type is TokenType.IDENTIFIER:
        return True
    if _FRAME.match(" ".join(t.text.lower() for t in tokens[place : place + _FRAME_TOKENS])):
        return False
    is_reserved = token.text.lower() in _RESERVED_BY[engine] and TokenType.DOT not in before
    return not (is_reserved or token.token_type in _TEXTS or not _WORD.fullmatch(token.text))


def _is_name(token: Token) -> bool:
    """Return whether a token can only be a name, whatever there is of that name."""
    is_word = token.token_type is TokenType.VAR and token.text.lower() not in _WORDS | UNITS
    return is_word or token.token_type is TokenType.IDENTIFIER


def _tables(statement: exp.Expr, engine: Engine) -> Iterator[str]:
    """Yield the names that whole rows have in a text."""
    for node in statement.find_all(exp.Table, exp.TableAlias):
        if isinstance(node.this, exp.Identifier):
            yield fold(node.name, engine, is_quoted=bool(node.this.args.get("quoted")))


def _columns(rows: QueryRows) -> Iterator[tuple[str | None, bool]]:
    """Yield the names of all columns that the rows have anything to do with; if it is a gap."""
    seen: set[int] = set()
    waiting: list[QueryColumn | QueryRows] = [rows]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, QueryRows):
            waiting += [*node.columns, *node.decides, *node.inner]
        else:
            waiting += [*node.reads, *node.queries]
            yield node.name, node.is_gap
