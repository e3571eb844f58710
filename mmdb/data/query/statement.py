"""A user's query: taken apart in its engine's dialect, and refused if it is not one SELECT."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Literal

import sqlglot
from sqlglot import exp, parser
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from mmdb.errors import NotASelect, NotOneStatement, QueryError
from mmdb.messages import show

#: Characters of a query that is kept once it has been looked at.
_SHORT = 4096
#: Functions whose arguments are not a list of expressions; the others are PostgreSQL's.
_OWN_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")
_OTHERS = (
    *("JSON_OBJECT", "JSON_OBJECTAGG", "JSON_TABLE", "JSON_VALUE"),
    *("NORMALIZE", "XMLELEMENT", "XMLTABLE"),
)


class _Parser(parser.Parser):
    """A parser of either engine's SQL: LIST[...] is no array, :name is no placeholder."""

    ARRAY_CONSTRUCTORS: ClassVar = {"ARRAY": exp.Array}
    COLON_PLACEHOLDER_TOKENS: ClassVar[set[TokenType]] = set()

    def _parse_bracket_key_value(self, is_map: bool = False) -> exp.Expr | None:
        """Read what stands in brackets; a slice may have no beginning."""
        if self._curr.token_type is TokenType.COLON:
            return self._parse_slice(None)
        return super()._parse_bracket_key_value(is_map=is_map)


class _PostgresSyntax(_Parser, PostgresParser):
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {
        name: PostgresParser.FUNCTION_PARSERS[name] for name in (*_OWN_SYNTAX, *_OTHERS)
    }
    LAMBDAS: ClassVar = {
        token: parse
        for token, parse in PostgresParser.LAMBDAS.items()
        if token is not TokenType.ARROW
    }
    PLACEHOLDER_PARSERS: ClassVar = {
        **PostgresParser.PLACEHOLDER_PARSERS,
        TokenType.PARAMETER: lambda self: exp.Abs(this=self._parse_unary()),  # @ x
    }

    def _parse_lateral(self) -> exp.Lateral | None:
        """Read LATERAL; before ROWS FROM it says nothing that is not so without it."""
        if self._match_text_seq("LATERAL", "ROWS", "FROM", advance=False):
            self._advance()
            return None
        return super()._parse_lateral()

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        """Read a join; USING (...) may have an alias."""
        join = super()._parse_join(*args, **kwargs)
        if join is not None and join.args.get("using") and self._match(TokenType.ALIAS):
            join.set("alias", self._parse_id_var(any_token=False))
        return join


class _Postgres(Postgres):
    Parser = _PostgresSyntax


class _DuckDBSyntax(_Parser, DuckDBParser):
    FUNCTIONS: ClassVar = {"COLUMNS": DuckDBParser.FUNCTIONS["COLUMNS"]}
    FUNCTION_PARSERS: ClassVar = {name: DuckDBParser.FUNCTION_PARSERS[name] for name in _OWN_SYNTAX}
    FUNC_TOKENS: ClassVar = {*DuckDBParser.FUNC_TOKENS, TokenType.APPLY}


class _DuckDB(DuckDB):
    Parser = _DuckDBSyntax


DIALECTS = {"postgres": _Postgres, "duckdb": _DuckDB}


Engine = Literal["postgres", "duckdb"]

#: Characters of the longest query that is parsed: a million take some ten seconds, in which the
#: session heeds no cancel.
MAX_CHARACTERS = 1_000_000
_READS = (exp.Select, exp.SetOperation)
_WRITES: dict[type[exp.Expression], str] = {
    exp.Insert: "INSERT",
    exp.Update: "UPDATE",
    exp.Delete: "DELETE",
    exp.Merge: "MERGE",
    exp.Create: "CREATE",
    exp.Drop: "DROP",
    exp.Alter: "ALTER",
    exp.Copy: "COPY",
    exp.Into: "SELECT INTO",
    exp.Lock: "FOR UPDATE",
}


def parse_select(query: str, engine: Engine) -> tuple[str, exp.Expr]:
    """Return a query's text, ready to be put in parentheses, and its syntax tree.

    Raises:
        QueryError: it cannot be parsed; the message says where.
        NotOneStatement: it holds none, or several.
        NotASelect: it writes, locks, or reads from schema mmdb.
    """
    statement = _parse(query, engine)
    _check_reads_only(statement)
    semicolon = TokenType.SEMICOLON  # by its type: a text may be ';' as well
    tokens = [t for t in sqlglot.tokenize(query, read=engine) if t.token_type is not semicolon]
    return query[tokens[0].start : tokens[-1].end + 1], statement


@lru_cache(maxsize=64)
def _short_select(query: str, engine: Engine) -> str:
    return parse_select(query, engine)[0]


def checked_select(query: str, engine: Engine) -> str:
    """Return the text of `parse_select`; that of a short query is kept, as triggers ask again.

    Raises:
        QueryError, NotOneStatement, NotASelect: as `parse_select`.
    """
    if isinstance(query, str) and len(query) <= _SHORT:
        return _short_select(query, engine)
    return parse_select(query, engine)[0]


def _parse(query: str, engine: Engine) -> exp.Expr:
    if not isinstance(query, str):
        raise QueryError(f"The query is {show(query)}, not a text.")
    if len(query) > MAX_CHARACTERS:
        raise QueryError(
            f"The query has {len(query):,} characters; {MAX_CHARACTERS:,} is the most.",
            hint="Put the values that it lists into a table and join it.",
        )
    try:
        parsed = sqlglot.parse(query, read=DIALECTS[engine])
    except ParseError as error:
        where = error.errors[0] if error.errors else {}
        what = str(where.get("description")).partition(" but got <")[0]
        what = "something is missing" if "<class" in what else what  # the parser's own classes
        raise QueryError(
            f"The query is not valid SQL at line {where.get('line')}, column {where.get('col')}, "
            f"near {where.get('highlight')!r}: {what}.",
            hint="Run the query by itself; it must succeed there first.",
        ) from error
    except TokenError as error:
        reason = error.__cause__ or error
        raise QueryError(f"The query is not valid SQL: {reason}.") from error
    except RecursionError as error:
        raise QueryError("The query is nested too deeply.", hint="Use WITH or a view.") from error
    statements = [s for s in parsed if s is not None and not isinstance(s, exp.Semicolon)]
    if len(statements) != 1:
        count = f"{len(statements)} statements" if statements else "no statement"
        raise NotOneStatement(f"The query holds {count}; it must be one SELECT.")
    return statements[0]


# -- what is refused ----------------------------------------------------------


def _check_reads_only(statement: exp.Expr) -> None:
    inner = statement.unnest() if isinstance(statement, exp.Subquery) else statement
    for node in statement.walk():
        for kind, word in _WRITES.items():
            if isinstance(node, kind):
                raise NotASelect(f"The query holds {word}; it must be one SELECT.")
        if _schema_of(node).lower() == "mmdb" or _is_private(node):
            raise NotASelect(
                f"The query uses {node.sql()}, which is of schema mmdb.",
                hint="A dataset is made of your own tables; copy what you need out of mmdb first.",
            )
    if not isinstance(inner, _READS):
        word = statement.sql().split()[0].upper() if statement.sql() else "nothing"
        raise NotASelect(f"The query is {word}, not a SELECT.")


def _schema_of(node: exp.Expr) -> str:
    """Return the schema of a table or of a function call, or an empty text."""
    if isinstance(node, exp.Table):
        return str(node.db)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
        schema = node.this.expression if isinstance(node.this, exp.Dot) else node.this
        return str(schema.name)
    return ""


def _is_private(node: exp.Expr) -> bool:
    """Return whether it calls a function that DuckDB's macros of schema mmdb stand for."""
    return isinstance(node, exp.Anonymous) and node.name.lower().startswith("_mmdb_")
