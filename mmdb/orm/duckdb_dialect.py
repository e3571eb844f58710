"""SQLAlchemy's PostgreSQL dialect for DuckDB, and a read-only connection to an open file.

Each statement is a read-only transaction of its own, as on PostgreSQL in autocommit mode:
whoever keeps a session open sees what was written meanwhile, and holds up no checkpoint.
Why no published dialect is used: docs/orm.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import duckdb
from sqlalchemy import pool, types
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDialect, PGTypeCompiler
from sqlalchemy.sql import operators

from mmdb.db.duck import DuckConnection
from mmdb.errors import ReadOnly

#: What `create_engine` finds the dialect by.
URL = "duckdb+mmdb://"


def _path(keys: Any) -> str:
    """Return keys and indexes as a JSON path.

    >>> _path(("a b", 0)), _path("$x")
    ('$."a b"[0]', '$."$x"')
    """
    parts = (keys,) if isinstance(keys, (str, int)) else keys
    return "$" + "".join(f"[{one}]" if isinstance(one, int) else f'."{one}"' for one in parts)


class _Path(types.JSON.JSONPathType):
    def bind_processor(self, dialect: Any) -> Any:
        return _path

    def literal_processor(self, dialect: Any) -> Any:
        return lambda keys: "'" + _path(keys).replace("'", "''") + "'"


class _IntIndex(_Path, types.JSON.JSONIntIndexType):
    pass


class _StrIndex(_Path, types.JSON.JSONStrIndexType):
    pass


class _Bytes(types.LargeBinary):
    def bind_processor(self, dialect: Any) -> None:
        return None


class Compiler(PGCompiler):
    """Where DuckDB's SQL means another thing than PostgreSQL's."""

    def visit_json_path_getitem_op_binary(
        self, binary: Any, operator: Any, _cast_applied: bool = False, **kw: Any
    ) -> str:
        # As a key's, whose right side is a path as well.
        text: str = self.visit_json_getitem_op_binary(  # type: ignore[no-untyped-call]
            binary, operator, _cast_applied, **kw
        )
        return text

    def visit_custom_op_binary(self, element: Any, operator: Any, **kw: Any) -> str:
        sign = {"#>": "->", "#>>": "->>"}.get(operator.opstring, operator.opstring)
        kw["eager_grouping"] = True  # `a -> b = c` is `a -> (b = c)`
        return self._generate_generic_binary(element, f" {sign} ", **kw)

    def visit_desc_op_unary_modifier(self, unary: Any, modifier: Any, **kw: Any) -> str:
        return f"{self.process(unary.element, **kw)} DESC NULLS FIRST"

    def visit_nulls_last_op_unary_modifier(self, unary: Any, modifier: Any, **kw: Any) -> str:
        inner = unary.element
        if getattr(inner, "modifier", None) is operators.desc_op:
            return f"{self.process(inner.element, **kw)} DESC NULLS LAST"
        return f"{self.process(inner, **kw)} NULLS LAST"

    def visit_nulls_first_op_unary_modifier(self, unary: Any, modifier: Any, **kw: Any) -> str:
        text = self.process(unary.element, **kw)
        return text if text.endswith(" NULLS FIRST") else f"{text} NULLS FIRST"


class TypeCompiler(PGTypeCompiler):
    """Where DuckDB's types have other names."""

    def visit_JSONB(self, type_: Any, **kw: Any) -> str:
        return "JSON"


class DuckDialect(PGDialect):
    """PostgreSQL's, without its catalog."""

    name = "duckdb"
    driver = "mmdb"
    default_paramstyle = "qmark"
    statement_compiler = Compiler
    type_compiler_cls = TypeCompiler
    supports_statement_cache = True
    supports_native_enum = False
    _supports_jsonb_subscripting = False
    colspecs = PGDialect.colspecs | {
        types.LargeBinary: _Bytes,
        types.JSON.JSONPathType: _Path,
        types.JSON.JSONIntIndexType: _IntIndex,
        types.JSON.JSONStrIndexType: _StrIndex,
    }

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return duckdb

    @classmethod
    def get_pool_class(cls, url: Any) -> type[pool.Pool]:
        return pool.NullPool  # a session costs microseconds, and belongs to one thread

    def initialize(self, connection: Any) -> None:
        self.server_version_info = (15,)
        self.default_schema_name = "main"

    def on_connect(self) -> None:
        return None


registry.register("duckdb.mmdb", __name__, "DuckDialect")


class Cursor:
    """As the DB-API's; the rows of a statement are read at once."""

    rowcount = -1
    lastrowid = None
    arraysize = 1

    def __init__(self, raw: duckdb.DuckDBPyConnection) -> None:
        self._raw = raw
        self._rows: deque[tuple[Any, ...]] = deque()
        self.description: Any = None

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement in a transaction that may not write.

        Raises:
            ReadOnly: there are several, the first of which could end the transaction.
        """
        if len(self._raw.extract_statements(statement)) != 1:
            raise ReadOnly("The ORM reads by one statement at a time.")
        self._raw.execute("BEGIN TRANSACTION READ ONLY")
        try:
            done = self._raw.execute(statement, list(parameters))
            self.description = done.description
            self._rows = deque(done.fetchall())
        finally:
            self._raw.execute("ROLLBACK")

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None after the last."""
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows."""
        count = min(size or self.arraysize, len(self._rows))
        return [self._rows.popleft() for _ in range(count)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        return self.fetchmany(len(self._rows)) if self._rows else []

    def close(self) -> None:
        """Forget the rows."""
        self._rows.clear()


class ReadConnection:
    """As the DB-API's: a session of its own on an open file."""

    def __init__(self, connection: DuckConnection) -> None:
        self._raw = connection.cursor().raw

    def cursor(self) -> Cursor:
        """Return a cursor."""
        return Cursor(self._raw)

    def commit(self) -> None:
        """Do nothing: each statement was a transaction."""

    rollback = commit

    def close(self) -> None:
        """End the session; the file stays open."""
        self._raw.close()
