"""Install mmdb in a database, and bring an older schema up to date.

A fresh database gets `sql/schema` in order, then `sql/engines/<engine>.sql`; an older one gets the
migrations it lacks. What has no state (functions, views, rights) is run each time. All of it is one
transaction under a lock.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mmdb.db.ddl import translate_schema
from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load, sql_directory
from mmdb.db.url import AnyConnection, connect
from mmdb.errors import ExtensionMissing, MigrationMismatch, NotInstalled

_MIGRATION_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One published schema change."""

    number: int
    name: str
    digest: str  # SHA-256 in hex
    sql: str


def migrations(directory: Path | None = None) -> list[Migration]:
    """Return the published migrations in order."""
    found = []
    for path in sorted((directory or sql_directory("sql/migrations")).glob("*.sql")):
        match = _MIGRATION_NAME.fullmatch(path.name)
        if match is None:
            raise MigrationMismatch(f"{path.name} is not named NNNN_what.sql.")
        sql = path.read_text()
        digest = hashlib.sha256(sql.encode()).hexdigest()
        found.append(Migration(int(match[1]), match[2], digest, sql))
    return found


def schema_files(engine: str) -> Iterator[Path]:
    """Yield the files that make a fresh schema, in order."""
    yield from sorted(sql_directory("sql/schema").glob("*.sql"))
    yield sql_directory("sql/engines") / f"{engine}.sql"


def current_files(engine: str) -> Iterator[Path]:
    """Yield the files that are run at each install, in order."""
    yield from sorted(sql_directory("sql/functions").glob("*.sql"))
    yield from sorted(sql_directory("sql/views").glob("*.sql"))
    if engine == "postgres":
        yield from sorted(sql_directory("udf").glob("*.sql"))
        yield sql_directory("sql/engines") / "postgres_rights.sql"


def install(url: str, *, directory: Path | None = None) -> None:
    """Install or upgrade mmdb at `url`; doing it twice changes nothing.

    Args:
        directory: of migrations, other than the published ones.
    Raises:
        ExtensionMissing: the server has no plpython3u.
        MigrationMismatch: the database has a migration that this version does not know.
    """
    connection = connect(url)
    try:
        install_in(connection, directory=directory)
    finally:
        connection.close()


def install_in(connection: AnyConnection, *, directory: Path | None = None) -> None:
    """Install or upgrade mmdb over an open connection; see `install`."""
    if isinstance(connection, PostgresConnection):
        _require_extension(connection)
    with connection.transaction():
        if isinstance(connection, PostgresConnection):
            connection.run(load("install").lock_install)
            connection.run(load("install").pin_search_path)
        if _is_fresh(connection):
            connection.select("CREATE SCHEMA IF NOT EXISTS mmdb")
            for path in schema_files(connection.engine):
                _run_file(connection, path.read_text(), path.parent.name == "engines")
            _record(connection, Migration(0, "schema", _schema_digest(connection.engine), ""))
            for migration in migrations(directory):
                _record(connection, migration)
        else:
            for migration in pending(connection, directory):
                _run_file(connection, migration.sql, connection.engine == "postgres")
                _record(connection, migration)
        for path in current_files(connection.engine):
            _run_file(connection, path.read_text(), connection.engine == "postgres")


def pending(connection: AnyConnection, directory: Path | None = None) -> list[Migration]:
    """Return the migrations that the database lacks.

    Raises:
        NotInstalled: there is no mmdb in this database.
        MigrationMismatch: an applied migration differs from the published one, or is unknown.
    """
    if _is_fresh(connection):
        raise NotInstalled("mmdb is not installed in this database.")
    known = {m.number: m for m in migrations(directory)}
    applied = {r["number"]: r for r in connection.rows(load("install").applied_migrations)}
    for number, row in applied.items():
        if number and (number not in known or known[number].digest != row["digest"]):
            raise MigrationMismatch(
                f"Migration {number} ({row['name']}) of this database is not the one known here."
            )
    return [m for number, m in known.items() if number not in applied]


def _is_fresh(connection: AnyConnection) -> bool:
    return not connection.rows(load("install").find_schema)


def _record(connection: AnyConnection, migration: Migration) -> None:
    connection.run(
        load("install").record_migration,
        number=migration.number,
        name=migration.name,
        digest=migration.digest,
    )


def _schema_digest(engine: str) -> str:
    text = "".join(path.read_text() for path in schema_files(engine))
    return hashlib.sha256(text.encode()).hexdigest()


def _run_file(connection: AnyConnection, sql: str, own_dialect: bool) -> None:
    if isinstance(connection, PostgresConnection):
        connection.script(sql)
    elif own_dialect:
        connection.script(sql)
    else:
        for statement in translate_schema(sql):
            connection.select(statement)


def _require_extension(connection: PostgresConnection) -> None:
    found = connection.rows(load("install").find_extension)
    if not found:
        raise ExtensionMissing("This server has no plpython3u.")
    if not found[0]["installed"]:
        connection.run(load("install").create_extension)


def ensure_duckdb(connection: DuckConnection) -> None:
    """Install mmdb in a DuckDB file that lacks it or is behind; the file has no other owner."""
    if _is_fresh(connection) or pending(connection):
        install_in(connection)
