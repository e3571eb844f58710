"""The engines' dialects as far as a query's columns go: a call stays a call of its arguments.

sqlglot turns calls that it knows into nodes of its own, to write them in other dialects; some of
these leave out an argument, or take `column -> 'key'` for a lambda. Here they are left as they are.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, parser
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

#: Functions whose arguments are not a list of expressions; the others are PostgreSQL's.
_OWN_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")
_OTHERS = (
    *("JSON_OBJECT", "JSON_OBJECTAGG", "JSON_TABLE", "JSON_VALUE"),
    *("NORMALIZE", "XMLELEMENT", "XMLTABLE"),
)


class _Parser(parser.Parser):
    """What both have: no constructor LIST[...], no placeholders such as :name."""

    ARRAY_CONSTRUCTORS: ClassVar = {"ARRAY": exp.Array}
    COLON_PLACEHOLDER_TOKENS: ClassVar[set[TokenType]] = set()

    def _parse_bracket_key_value(self, is_map: bool = False) -> exp.Expr | None:
        """Read what stands in brackets; a slice may have no beginning."""
        if self._curr.token_type is TokenType.COLON:
            return self._parse_slice(None)
        return super()._parse_bracket_key_value(is_map=is_map)


class _Postgres(Postgres):
    class Parser(_Parser, PostgresParser):
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


class _DuckDB(DuckDB):
    class Parser(_Parser, DuckDBParser):
        FUNCTIONS: ClassVar = {"COLUMNS": DuckDBParser.FUNCTIONS["COLUMNS"]}
        FUNCTION_PARSERS: ClassVar = {
            name: DuckDBParser.FUNCTION_PARSERS[name] for name in _OWN_SYNTAX
        }
        FUNC_TOKENS: ClassVar = {*DuckDBParser.FUNC_TOKENS, TokenType.APPLY}


DIALECTS = {"postgres": _Postgres, "duckdb": _DuckDB}
