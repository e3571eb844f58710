"""Engines and sessions that read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import duckdb
import psycopg
from psycopg.rows import tuple_row
from sqlalchemy import Engine, create_engine, event, inspect
from sqlalchemy.orm import Session, UOWTransaction

from mmdb.api.database import Database
from mmdb.db.duck import DuckConnection
from mmdb.db.install import ensure_duckdb, is_installed
from mmdb.db.postgres import PostgresConnection, translate_error
from mmdb.db.url import connect
from mmdb.errors import NotInstalled, ReadOnly
from mmdb.orm import duckdb_dialect
from mmdb.orm.base import Base, read_only
from mmdb.orm.duckdb_dialect import ReadConnection

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
    event.listen(made, "engine_disposed", _closing(connection))
    return made


def _closing(connection: DuckConnection) -> Callable[[Engine], None]:
    return lambda engine: connection.close()


def _duckdb(connection: DuckConnection) -> Engine:
    made = create_engine(duckdb_dialect.URL, creator=lambda: ReadConnection(connection))
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
