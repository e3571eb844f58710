"""Engines and sessions that read, and SQLAlchemy's dialect for DuckDB."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from json import dumps
from types import ModuleType
from typing import Any

import duckdb
import psycopg
from psycopg.rows import tuple_row
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Engine,
    ScalarSelect,
    Text,
    UnaryExpression,
    cast,
    create_engine,
    event,
    func,
    inspect,
    literal_column,
    pool,
    type_coerce,
    types,
)
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDialect, PGTypeCompiler
from sqlalchemy.orm import Session, UOWTransaction
from sqlalchemy.sql import operators

from mmdb.api.database import Database
from mmdb.db.duck import DuckConnection
from mmdb.db.install import ensure_duckdb, is_installed
from mmdb.db.postgres import PostgresConnection, translate_error
from mmdb.db.url import connect
from mmdb.errors import NotInstalled, ReadOnly
from mmdb.orm.base import Base, read_only

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


class _Json(JSONB):
    def bind_expression(self, bindvalue: BindParameter[Any]) -> ColumnElement[Any]:
        return _normal_form(bindvalue)

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return _Selected(column)


class _Selected(ColumnElement[Any]):
    """JSON that a SELECT returns: `Compiler.visit_selected` decides in which form."""

    __visit_name__ = "selected"

    def __init__(self, json: ColumnElement[Any]) -> None:
        self.json, self.type = json, json.type


class _Numeric(types.Numeric[Any]):
    def result_processor(self, dialect: Any, coltype: object) -> Any:
        kind = Decimal if self.asdecimal else float
        return lambda value: None if value is None else kind(str(value))


#: Finds the zeros outside of strings, and has the strings as its group.
_ZEROS = r'("(?:\\.|[^"\\])*")|\.0\b'


def _normal_form(json: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the text that equal JSON has: keys in order, no spaces, 1.0 written as 1."""
    replaced: ColumnElement[str] = literal_column(rf"'{_ZEROS}', '\1', 'g'")
    return func.regexp_replace(func.json_normalize(type_coerce(cast(json, JSONB), Text)), replaced)


def _normal_text(json: Any) -> str:
    """Return the text of `_normal_form`: what stands in tuples comes to no `bind_expression`."""
    return re.sub(
        _ZEROS, r"\1", dumps(json, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    )


def _is_json(side: Any) -> bool:
    return isinstance(side, ColumnElement) and side.type._type_affinity is types.JSON


def _comparable(side: ColumnElement[Any]) -> ColumnElement[Any]:
    apart = (BindParameter, ScalarSelect, UnaryExpression)  # which see to it, or hold what does
    is_normal = isinstance(side, apart) or not _is_json(side)
    return side if is_normal else _normal_form(side)


#: Comparisons of JSON, which on DuckDB is text.
_EQUALITIES = {
    operators.eq,
    operators.ne,
    operators.in_op,
    operators.not_in_op,
    operators.is_distinct_from,
    operators.is_not_distinct_from,
}


def _escaped(visit: Callable[..., str]) -> Callable[..., str]:
    """Let a backslash escape if nothing else is said to."""

    def visit_escaped(self: Any, binary: Any, operator: Any, **kw: Any) -> str:
        text = visit(self, binary, operator, **kw)
        return f"{text} ESCAPE '\\'" if binary.modifiers.get("escape") is None else text

    return visit_escaped


class Compiler(PGCompiler):
    """Where DuckDB's SQL means another thing than PostgreSQL's."""

    def visit_binary(self, binary: Any, *others: Any, **kw: Any) -> str:
        if binary.operator in _EQUALITIES:
            binary = binary._clone()  # of a SELECT the JSON is in its normal form
            binary.left, binary.right = _comparable(binary.left), _comparable(binary.right)
        text: str = super().visit_binary(binary, *others, **kw)  # type: ignore[no-untyped-call]
        return text

    def _label_select_column(self, *column: Any, **kw: Any) -> str:
        kw["need_column_expressions"] = True  # wherever the SELECT is
        text: str = super()._label_select_column(*column, **kw)  # type: ignore[no-untyped-call]
        return text

    def visit_selected(self, selected: _Selected, **kw: Any) -> str:
        select: Any = self.stack[-1]["selectable"]
        is_read = len(self.stack) == 1 and not (select._distinct or select._group_by_clauses)
        return self.process(selected.json if is_read else _normal_form(selected.json), **kw)

    def _generate_delimited_list(self, elements: Any, separator: str, **kw: Any) -> str:
        comparable = [_comparable(one) for one in elements]  # of a tuple, GROUP or PARTITION BY
        text: str = super()._generate_delimited_list(comparable, separator, **kw)  # type: ignore[no-untyped-call]
        return text

    def visit_distinct_op_unary_operator(self, unary: Any, operator: Any, **kw: Any) -> str:
        return f"DISTINCT {self.process(_comparable(unary.element), **kw)}"

    def visit_cast(self, cast: Any, **kw: Any) -> str:
        text = super().visit_cast(cast, **kw)  # type: ignore[no-untyped-call]
        is_cut = isinstance(cast.type, types.String) and cast.type.length
        return f"left({text}, {cast.type.length})" if is_cut else text

    visit_like_op_binary = _escaped(PGCompiler.visit_like_op_binary)
    visit_not_like_op_binary = _escaped(PGCompiler.visit_not_like_op_binary)
    visit_ilike_op_binary = _escaped(PGCompiler.visit_ilike_op_binary)
    visit_not_ilike_op_binary = _escaped(PGCompiler.visit_not_ilike_op_binary)

    def visit_floordiv_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        sides = binary.left, binary.right
        if all(side.type._type_affinity is types.Integer for side in sides):
            return self._generate_generic_binary(binary, " // ", **kw)
        return f"FLOOR({self._generate_generic_binary(binary, ' / ', **kw)})"

    def visit_extract(self, extract: Any, **kw: Any) -> str:
        parts = {"second": " / 1e6", "milliseconds": " / 1e3"}  # whole numbers in DuckDB
        field, part = extract.field, parts.get(extract.field, "")
        source = self.process(extract.expr, **kw)
        return f"(EXTRACT({'microseconds' if part else field} FROM {source}){part})"

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

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        return f"FLOAT({type_.precision})" if type_.precision else "DOUBLE"

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:
        return super().visit_NUMERIC(type_, **kw) if type_.precision else "NUMERIC(38, 12)"


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
    _backslash_escapes = False
    div_is_floordiv = False
    colspecs = PGDialect.colspecs | {
        types.LargeBinary: _Bytes,
        types.Numeric: _Numeric,
        types.Float: types.Float,
        JSONB: _Json,
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
        self._raw.execute("SET SESSION ieee_floating_point_ops = false")  # x / 0 is an error

    def cursor(self) -> Cursor:
        """Return a cursor."""
        return Cursor(self._raw)

    def commit(self) -> None:
        """Do nothing: each statement was a transaction."""

    rollback = commit

    def close(self) -> None:
        """End the session; the file stays open."""
        self._raw.close()


Where = str | Database

#: What the engines say to whoever writes all the same.
_READ_ONLY_STATE, _READ_ONLY_TEXT = "25006", "launched in read-only mode"


class ReadSession(Session):
    """A session that refuses to write; closing it also closes what it opened itself."""

    def add(self, instance: object, _warn: bool = True) -> None:
        raise _refusal(instance)

    def delete(self, instance: object) -> None:
        raise _refusal(instance)

    def merge(self, instance: Any, **options: Any) -> Any:
        raise _refusal(instance)

    def bulk_save_objects(self, objects: Iterable[object], *options: Any, **others: Any) -> None:
        raise _refusal(next(iter(objects), None))

    def bulk_insert_mappings(self, mapper: Any, *options: Any, **others: Any) -> None:
        raise read_only(inspect(mapper).class_)

    bulk_update_mappings = bulk_insert_mappings

    def close(self) -> None:
        super().close()
        if self.info.get("owns_engine"):
            self.get_bind().engine.dispose()


def session(where: Where) -> ReadSession:
    """Return a session; use it in `with`, or call its `close`.

    Args:
        where: a URL as `mmdb.connect` takes it, or an open database; a DuckDB file that this
            process has open can only be read through that.
    Raises:
        WrongUrl, DatabaseLocked, NotInstalled, MigrationMismatch
    """
    return ReadSession(engine(where), info={"owns_engine": True})


def engine(where: Where) -> Engine:
    """Return an engine; `dispose` closes what it has opened.

    Each statement reads what is committed when it begins, and none can write.

    Args:
        where: as of `session`.
    Raises:
        WrongUrl, DatabaseLocked, NotInstalled, MigrationMismatch
    """
    made = _engine(where)
    event.listen(made, "before_execute", _refuse_changes)
    return made


def _engine(where: Where) -> Engine:
    if isinstance(where, Database):
        if isinstance(where.connection, DuckConnection):
            return _duckdb(where.connection)
        return _postgres(where.connection.url, where.connection.on_citus)
    connection = connect(where)
    try:
        if isinstance(connection, PostgresConnection):
            if not is_installed(connection):
                raise NotInstalled("mmdb is not installed in this database.")
            connection.close()
            return _postgres(where, connection.on_citus)
        ensure_duckdb(connection)
    except BaseException:
        connection.close()
        raise
    made = _duckdb(connection)
    event.listen(made, "engine_disposed", lambda engine: connection.close())
    return made


def _duckdb(connection: DuckConnection) -> Engine:
    made = create_engine(
        URL, creator=lambda: ReadConnection(connection), json_serializer=_normal_text
    )
    event.listen(made, "handle_error", partial(_raise_ours, connection.translate_error))
    return made


def _postgres(url: str, on_citus: bool) -> Engine:
    def connected() -> psycopg.Connection[Any]:
        settings = {"default_transaction_read_only": "on"}
        session = PostgresConnection(url, application_name="mmdb orm", settings=settings)
        raw: Any = session.raw
        raw.row_factory = tuple_row
        return raw  # type: ignore[no-any-return]

    made = create_engine("postgresql+psycopg://", creator=connected, isolation_level="AUTOCOMMIT")
    translate = partial(translate_error, on_citus=on_citus)
    event.listen(made, "handle_error", partial(_raise_ours, translate))
    return made


def _refusal(instance: object) -> ReadOnly:
    return read_only(type(instance) if isinstance(instance, Base) else None)


def _refuse_changes(connection: Any, statement: Any, *others: Any) -> None:
    if getattr(statement, "is_dml", False):
        raise read_only(_class_of(statement.table))
    if getattr(statement, "is_ddl", False):
        raise read_only(None)


def _class_of(table: Any) -> type[Base] | None:
    mappers = (m for m in Base.registry.mappers if getattr(m.local_table, "name", "") == table.name)
    return next((mapper.class_ for mapper in mappers), None)


def _raise_ours(translate: Callable[[Any], BaseException], context: Any) -> None:
    """Raise the error of mmdb that a driver's stands for."""
    original = context.original_exception
    if getattr(original, "sqlstate", "") == _READ_ONLY_STATE or _READ_ONLY_TEXT in str(original):
        raise read_only(None) from original
    if isinstance(original, (psycopg.Error, duckdb.Error)):
        raise translate(original) from original


@event.listens_for(ReadSession, "before_flush")
def _refuse_flush(session: Session, context: UOWTransaction, instances: object) -> None:
    changed = [*session.new, *session.dirty, *session.deleted]
    raise _refusal(changed[0] if changed else None)
