"""Install mmdb in a database, and bring an older schema up to date.

A fresh database gets `sql/schema` in order, then `sql/engines/<engine>.sql`; an older one gets the
migrations it lacks. What has no state (functions, views, rights) is run each time. All of it is one
transaction under a lock.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Literal

from mmdb.db.connection import Connection, Row
from mmdb.db.ddl import translate_schema
from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load, sql_directory
from mmdb.db.totals import seal_finished
from mmdb.db.url import AnyConnection, connect
from mmdb.errors import (
    AlreadyExists,
    ExtensionMissing,
    MigrationMismatch,
    NotInstalled,
    RightsMissing,
)

_Q = load("install")
_MIGRATION_NAME = re.compile(r"(\d{4})_(\w+?)(?:\.(postgres|duckdb))?\.sql")
_SCHEMA, _CURRENT = 0, -1  # numbers in mmdb.migration that are no migrations
_NEED_SUPERUSER = (
    "plpython3u is an untrusted language: install as a superuser, for example "
    "`mmdb install postgresql://postgres@HOST/DATABASE`; or do without: "
    "`mmdb install --client URL`."
)
#: Where mmdb's functions run: inside the server, or in the processes of the client.
Mode = Literal["server", "client"]
_RECORDED_AS: dict[Mode, str] = {"server": "current", "client": "client"}
_one_install_in_this_process = Lock()


@dataclass(frozen=True, slots=True)
class Migration:
    """One published schema change."""

    number: int
    name: str
    digest: str  # SHA-256 in hex
    sql: str = ""
    engine: str | None = None  # that it is for, in its own dialect; None: both, translated


def migrations(engine: str, directory: Path | None = None) -> list[Migration]:
    """Return the published migrations for one engine, in order.

    Raises:
        MigrationMismatch: a file has no proper name, or two have one number.
    """
    found: dict[int, Migration] = {}
    for path in sorted((directory or sql_directory("sql/migrations")).glob("*.sql")):
        match = _MIGRATION_NAME.fullmatch(path.name)
        if match is None or int(match[1]) in (_SCHEMA, *found):
            raise MigrationMismatch(f"{path.name} is not named NNNN_what.sql with its own number.")
        number, sql = int(match[1]), path.read_text()
        found[number] = Migration(number, match[2], _digest([sql]), sql, match[3])
    return [m for m in found.values() if m.engine in (None, engine)]


def schema_files(engine: str) -> Iterator[Path]:
    """Yield the files that make a fresh schema, in order."""
    yield from sorted(sql_directory("sql/schema").glob("*.sql"))
    yield sql_directory("sql/engines") / f"{engine}.sql"


def current_files(engine: str, mode: Mode = "server") -> Iterator[Path]:
    """Yield the files that are run at each install, in order."""
    yield from sorted(sql_directory("sql/functions").glob("*.sql"))
    yield from sorted(sql_directory("sql/views").glob("*.sql"))
    yield sql_directory("sql/engines") / f"{engine}_views.sql"
    if engine == "postgres":
        if mode == "server":
            yield from sorted(sql_directory("udf").glob("*.sql"))
        yield sql_directory("sql/engines") / "postgres_rights.sql"


def install(url: str, *, mode: Mode | None = None, directory: Path | None = None) -> Mode:
    """Install or upgrade mmdb at `url`; doing it twice changes nothing.

    Args:
        mode: "client" leaves PL/Python and mmdb's functions out; None is "server", unless the
            server has no plpython3u or mmdb is there without functions already.
        directory: of migrations, other than the published ones.
    Returns:
        The mode that the database has now.
    Raises:
        ExtensionMissing: mode is "server" and the server has no plpython3u.
        RightsMissing: the role may not install plpython3u, or functions in it.
        AlreadyExists: there is a schema named mmdb that mmdb did not make.
        MigrationMismatch: the database has a migration that this version does not know.
    """
    connection = connect(url)
    try:
        chosen = install_in(connection, mode=mode, directory=directory)
        seal_finished(connection)  # those of an older version have no totals
        return chosen
    finally:
        connection.close()


def install_in(
    connection: AnyConnection, *, mode: Mode | None = None, directory: Path | None = None
) -> Mode:
    """Install or upgrade mmdb over an open connection; see `install`."""
    try:
        with _locked_transaction(connection):
            chosen = _prepare_mode(connection, mode)
            if is_installed(connection):
                for migration in pending(connection, directory):
                    _run(connection, migration.sql, own_dialect=migration.engine is not None)
                    _record(connection, migration)
            else:
                _create(connection, directory)
            files = list(current_files(connection.engine, chosen))
            _run_files(connection, files)
            _record(connection, Migration(_CURRENT, _RECORDED_AS[chosen], _digest_files(files)))
            return chosen
    except RightsMissing as error:
        raise RightsMissing(error.message, hint=_NEED_SUPERUSER) from error


def pending(connection: AnyConnection, directory: Path | None = None) -> list[Migration]:
    """Return the migrations that the database lacks.

    Raises:
        NotInstalled: there is no mmdb in this database.
        MigrationMismatch: an applied migration differs from the published one, or is unknown.
    """
    if not is_installed(connection):
        raise NotInstalled("mmdb is not installed in this database.")
    return _pending(connection, _applied(connection), directory)


def is_current(connection: AnyConnection) -> bool:
    """Return whether the functions and views of the database are those of this version."""
    return _is_current(connection, _applied(connection))


def is_up_to_date(connection: AnyConnection) -> bool:
    """Return whether the database lacks no migration and `is_current`, by one question.

    Raises:
        NotInstalled, MigrationMismatch: as `pending`.
    """
    if not is_installed(connection):
        raise NotInstalled("mmdb is not installed in this database.")
    applied = _applied(connection)
    return not _pending(connection, applied) and _is_current(connection, applied)


def installed_mode(connection: Connection) -> Mode:
    """Return where the functions of the database's mmdb run; DuckDB's are always there."""
    return _mode(_applied(connection))


def _applied(connection: Connection) -> dict[int, Row]:
    return {row["number"]: row for row in connection.rows(_Q.applied_migrations)}


def _pending(
    connection: AnyConnection, applied: dict[int, Row], directory: Path | None = None
) -> list[Migration]:
    known = {m.number: m for m in migrations(connection.engine, directory)}
    for number, row in applied.items():
        if number > _SCHEMA and (number not in known or known[number].digest != row["digest"]):
            raise MigrationMismatch(
                f"Migration {number} ({row['name']}) of this database is not the one known here."
            )
    return [m for number, m in known.items() if number not in applied]


def _is_current(connection: AnyConnection, applied: dict[int, Row]) -> bool:
    files = current_files(connection.engine, _mode(applied))
    return _CURRENT in applied and applied[_CURRENT]["digest"] == _digest_files(files)


def _mode(applied: dict[int, Row]) -> Mode:
    is_client = _CURRENT in applied and applied[_CURRENT]["name"] == _RECORDED_AS["client"]
    return "client" if is_client else "server"


def ensure_duckdb(connection: DuckConnection) -> None:
    """Install mmdb in a DuckDB file that lacks it or is behind; the file has no other owner."""
    if not is_installed(connection) or not is_up_to_date(connection):
        install_in(connection)


@contextmanager
def _locked_transaction(connection: AnyConnection) -> Iterator[None]:
    """One transaction, and no other install in this database while it lasts."""
    if isinstance(connection, DuckConnection):  # no other process has the file open
        with _one_install_in_this_process, connection.transaction():
            yield
        return
    with connection.transaction():
        connection.run(_Q.read_committed)
        connection.run(_Q.lock_install)
        connection.run(_Q.pin_search_path)
        yield


def _prepare_mode(connection: AnyConnection, mode: Mode | None) -> Mode:
    """Return the mode to install in, with PL/Python in the database if that needs it."""
    if isinstance(connection, DuckConnection):
        return "server"
    if mode is None:
        without = is_installed(connection) and installed_mode(connection) == "client"
        mode = "client" if without or not connection.rows(_Q.find_extension) else "server"
    if mode == "server":
        _require_extension(connection)
    elif is_installed(connection) and installed_mode(connection) == "server":
        raise AlreadyExists(
            "mmdb is in this database with its functions.",
            hint="They do no harm to clients: run `mmdb install URL` without --client.",
        )
    return mode


def _require_extension(connection: PostgresConnection) -> None:
    found = connection.rows(_Q.find_extension)
    if not found:
        major = connection.raw.info.server_version // 10000
        raise ExtensionMissing(
            "This server has no plpython3u.",
            hint=f"Install the package postgresql-plpython3-{major} on the server and run "
            "`mmdb install` again, or do without: `mmdb install --client URL`.",
        )
    if not found[0]["installed"]:
        connection.run(_Q.create_extension)


def is_installed(connection: AnyConnection) -> bool:
    """Return whether the database has mmdb, of whatever version."""
    return any(row["installed"] for row in connection.rows(_Q.find_schema))


def _create(connection: AnyConnection, directory: Path | None) -> None:
    """Make a fresh schema, which has every migration already."""
    if connection.rows(_Q.find_schema):  # its owner could replace mmdb's functions later
        raise AlreadyExists(
            "This database has a schema named mmdb that mmdb did not make.",
            hint="Look at what it holds, then rename or drop it.",
        )
    engine = connection.engine
    connection.run(_Q.create_schema)
    _run_files(connection, schema_files(engine))
    _record(connection, Migration(_SCHEMA, "schema", _digest_files(schema_files(engine))))
    for migration in migrations(engine, directory):
        _record(connection, migration)


def _run_files(connection: AnyConnection, paths: Iterable[Path]) -> None:
    for path in paths:
        _run(connection, path.read_text(), own_dialect=path.parent.name == "engines")


def _run(connection: AnyConnection, sql: str, *, own_dialect: bool) -> None:
    if own_dialect or isinstance(connection, PostgresConnection):
        connection.script(sql)
        return
    for statement in _translated(sql):
        connection.select(statement)


@cache
def _translated(sql: str) -> tuple[str, ...]:
    """Return a file's statements for DuckDB: 0.4 s for all, and a process may make many files."""
    return tuple(translate_schema(sql))


def _record(connection: AnyConnection, migration: Migration) -> None:
    connection.run(
        _Q.record_migration,
        number=migration.number,
        name=migration.name,
        digest=migration.digest,
    )


def _digest_files(paths: Iterable[Path]) -> str:
    return _digest(path.read_text() for path in paths)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest()
