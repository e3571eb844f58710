"""The account of a text's names: one that no rule has read must not be passed over.

A rule that reads a name accounts for it (`names.name_of`, `names.claim`). A token that none has
read, where a column may stand and with a name that something has, makes all outputs unsure: the
parser took it up as something else, or a clause is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from mmdb.data.query.columns import Column, Rows, unknown
from mmdb.data.query.names import UNITS, claim, claimed, fold
from mmdb.data.query.statement import Engine

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


def marked(rows: Rows, text: str, statement: exp.Expr, engine: Engine) -> Rows:
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
        Column(c.name, c.label, reads=[c, unknown(None)], names=c.names, is_gap=c.is_gap)
        for c in rows.columns
    ]
    return Rows(columns, decides=rows.decides, inner=rows.inner)


def _lost(text: str, statement: exp.Expr, engine: Engine) -> Iterator[tuple[Token, str]]:
    """Yield the names in a text that no rule has read."""
    taken = claimed(statement)
    tokens = sqlglot.tokenize(text, read=engine)
    for place, token in enumerate(tokens):
        if token.start not in taken and _may_name(tokens, place):
            is_quoted = token.token_type is TokenType.IDENTIFIER
            yield token, fold(token.text, engine, is_quoted=is_quoted)


def _may_name(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a column may stand at a place."""
    token = tokens[place]
    if token.token_type is TokenType.STRING:
        return False
    before = [token.token_type for token in tokens[max(place - 1, 0) : place]]
    after = [token.token_type for token in tokens[place + 1 : place + 2]]
    if set(after) & _NO_COLUMN_BEFORE or set(before) & _NO_COLUMN_AFTER:
        return False
    call = tokens[place - 2].text.lower() if place > 1 else ""
    is_unit = call == "extract" and token.text.lower() in UNITS
    return not (is_unit or (call == "xmlelement" and token.text.lower() == "name"))


def _is_name(token: Token) -> bool:
    """Return whether a token can only be a name, whatever there is of that name."""
    is_word = token.token_type is TokenType.VAR and token.text.lower() not in _WORDS | UNITS
    return is_word or token.token_type is TokenType.IDENTIFIER


def _tables(statement: exp.Expr, engine: Engine) -> Iterator[str]:
    """Yield the names that whole rows have in a text."""
    for node in statement.find_all(exp.Table, exp.TableAlias):
        if isinstance(node.this, exp.Identifier):
            yield fold(node.name, engine, is_quoted=bool(node.this.args.get("quoted")))


def _columns(rows: Rows) -> Iterator[tuple[str | None, bool]]:
    """Yield the names of all columns that the rows have anything to do with; if it is a gap."""
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
            yield node.name, node.is_gap
