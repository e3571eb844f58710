"""Names that the parser took up as something else: what they name must not be passed over.

sqlglot turns `date_bin(s, a, b)` or `date_part(k, a)` into nodes in which a column is a word like
DAY. A name of the text that no identifier of the tree stands for, and that a column has, is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from mmdb.data.query.columns import Column, Rows, unknown
from mmdb.data.query.names import UNITS, fold
from mmdb.data.query.statement import Engine

_NAMES = {TokenType.VAR, TokenType.IDENTIFIER}
#: What stands before a type, a unit or an alias, and never before a column.
_NO_COLUMN_AFTER = {
    *(TokenType.DCOLON, TokenType.ALIAS),
    *(TokenType.STRING, TokenType.NUMBER, TokenType.R_PAREN, TokenType.R_BRACKET),
}
#: What stands behind the name of a function, or of an argument.
_NO_COLUMN_BEFORE = {TokenType.L_PAREN, TokenType.FARROW, TokenType.COLON_EQ}


def marked(rows: Rows, text: str, statement: exp.Expr, engine: Engine) -> Rows:
    """Return the rows of a text; if a column's name is lost in it, no output is sure."""
    if not set(_lost(text, statement, engine)) & set(_names(rows)):
        return rows
    columns = [
        Column(c.name, c.label, reads=[c, unknown(None)], names=c.names, is_gap=c.is_gap)
        for c in rows.columns
    ]
    return Rows(columns, decides=rows.decides, inner=rows.inner)


def _lost(text: str, statement: exp.Expr, engine: Engine) -> Iterator[str]:
    """Yield the names in a text that no identifier of its tree stands for."""
    taken = {node.meta.get("start") for node in statement.find_all(exp.Identifier)}
    tokens = sqlglot.tokenize(text, read=engine)
    for place, token in enumerate(tokens):
        if token.token_type in _NAMES and token.start not in taken and _may_name(tokens, place):
            is_quoted = token.token_type is TokenType.IDENTIFIER
            yield fold(token.text, engine, is_quoted=is_quoted)


def _may_name(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a column may stand at a place."""
    before = [token.token_type for token in tokens[max(place - 1, 0) : place]]
    after = [token.token_type for token in tokens[place + 1 : place + 2]]
    if set(after) & _NO_COLUMN_BEFORE or set(before) & _NO_COLUMN_AFTER:
        return False
    is_unit = tokens[place].text.lower() in UNITS
    return not (is_unit and place > 1 and tokens[place - 2].text.lower() == "extract")


def _names(rows: Rows) -> Iterator[str]:
    """Yield the names of all columns that the rows have anything to do with."""
    seen: set[int] = set()
    waiting: list[Column | Rows] = [rows]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Rows):
            waiting += [*node.columns, *node.decides, *node.inner]
        else:
            waiting += [*node.reads, *node.queries]
            if node.name is not None:
                yield node.name
