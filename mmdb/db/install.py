"""Install mmdb in a database, and bring an older schema up to date.

A fresh database gets the baseline: `sql/schema` in order, then `sql/engines/<engine>.sql`. An older
one gets the migrations it lacks. What has no state (functions, views, rights) is run each time. All
of it is one transaction under a lock.
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

from mmdb.db.citus import find_cluster, is_ready, require_cluster
from mmdb.db.connection import Connection, Row
from mmdb.db.ddl import split_statements, translate_schema
from mmdb.db.definers import make_definers
from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load, sql_directory
from mmdb.db.url import AnyConnection, connect
from mmdb.errors import (
    AlreadyExists,
    ExtensionMissing,
    InvalidOption,
    MigrationMismatch,
    NotInstalled,
    RightsMissing,
)

_Q = load("install")
_CITUS = load("citus")
_MIGRATION_NAME = re.compile(r"(\d{4})_(\w+?)(?:\.(postgres|duckdb))?\.sql")
_TEAM_FILES = ("postgres_teams.sql", "postgres_policies.sql")  # the last ones, where there are any
_SCHEMA, _CURRENT, _TEAMS = 0, -1, -2  # numbers in mmdb.migration that are no migrations
_BASELINE = "baseline"  # the name of number 0; a schema of before it has another one
_TOO_OLD = (
    "With the mmdb that made it, run `mmdb export --all FOLDER` for the models. Then run "
    "`DROP SCHEMA mmdb CASCADE`, or take another file, `mmdb install URL` and `mmdb import FOLDER`."
)
_NEED_SUPERUSER = (
    "plpython3u is an untrusted language: install as a superuser, for example "
    "`mmdb install postgresql://postgres@HOST/DATABASE`; or do without: "
    "`mmdb install --client URL`."
)
_NEED_SYSTEM_ROLE = (
    "mmdb's statements run as roles mmdb_system and mmdb_system_admin, of which an owner is a "
    'member: as a superuser, run `GRANT mmdb_system_admin TO "OWNER"`; docs/roles.md.'
)
#: Where mmdb's functions run: inside the server, or in the processes of the client.
Mode = Literal["server", "client"]
#: Where the tables lie: on one server, or on the nodes of a cluster.
Engine = Literal["postgres", "citus", "duckdb"]
_RECORDED_AS: dict[Mode, str] = {"server": "current", "client": "client"}
_SPREAD = "citus"  # recorded so: on Citus functions run in the servers
_one_install_in_this_process = Lock()


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One published schema change."""

    number: int
    name: str
    digest: str  # SHA-256 in hex
    sql: str = ""
    engine: str | None = None  # that it is for, in its own dialect; None: both, translated


def migrations(engine: str, directory: Path | None = None) -> list[SchemaChange]:
    """Return the published migrations for one engine, in order.

    Raises:
        MigrationMismatch: a file has no proper name, or two have one number.
    """
    found: dict[int, SchemaChange] = {}
    for path in sorted((directory or sql_directory("sql/migrations")).glob("*.sql")):
        match = _MIGRATION_NAME.fullmatch(path.name)
        if match is None or int(match[1]) in (_SCHEMA, *found):
            raise MigrationMismatch(f"{path.name} is not named NNNN_what.sql with its own number.")
        number, sql = int(match[1]), path.read_text()
        found[number] = SchemaChange(number, match[2], _digest([sql]), sql, match[3])
    return [m for m in found.values() if m.engine in (None, engine)]


def schema_files(engine: str) -> Iterator[Path]:
    """Yield the files that make a fresh schema, in order."""
    yield from sorted(sql_directory("sql/schema").glob("*.sql"))
    yield sql_directory("sql/engines") / f"{engine}.sql"


def current_files(engine: Engine, mode: Mode = "server", *, teams: bool = False) -> Iterator[Path]:
    """Yield the files that are run at each install, in order."""
    engines = sql_directory("sql/engines")
    if engine != "duckdb":
        yield engines / "postgres_checks.sql"
    if engine == "citus":
        yield engines / "citus.sql"
    yield from sorted(sql_directory("sql/functions").glob("*.sql"))
    yield from sorted(sql_directory("sql/views").glob("*.sql"))
    yield engines / ("duckdb_views.sql" if engine == "duckdb" else "postgres_views.sql")
    if engine == "citus":
        yield engines / "citus_views.sql"
    if engine != "duckdb":
        if mode == "server":
            yield from sorted(sql_directory("udf").glob("*.sql"))
        yield engines / "postgres_rights.sql"
    if engine == "citus":
        yield engines / "citus_functions.sql"
        yield engines / "citus_rights.sql"
    if teams:
        yield from (engines / name for name in _TEAM_FILES)


def install(
    url: str,
    *,
    mode: Mode | None = None,
    engine: Engine | None = None,
    teams: bool | None = None,
    directory: Path | None = None,
) -> Mode:
    """Install or upgrade mmdb at `url`; doing it twice changes nothing.

    Args:
        mode: "client" leaves PL/Python and mmdb's functions out; None is "server", unless the
            server has no plpython3u or mmdb is there without functions already.
        engine: "citus" spreads the tables over the cluster's nodes, "postgres" does not; None is
            what the database has, and in a fresh one "citus" if it is a coordinator with nodes.
        teams: whether each role sees its own datasets, runs and models alone, docs/roles.md; None
            is as the database has it, and without teams in a fresh one.
        directory: of migrations, other than the published ones.
    Returns:
        The mode that the database has now.
    Raises:
        ExtensionMissing: mode is "server" and the server has no plpython3u; engine is "citus" and
            the database is no coordinator with nodes.
        InvalidOption: the engine is another database's, mode is "client" on Citus, or teams are
            asked of an engine that has none.
        RightsMissing: the role may not install plpython3u, functions in it, or teams.
        AlreadyExists: there is a schema named mmdb that mmdb did not make.
        MigrationMismatch: the database has a migration that this version does not know, or a
            schema of before the baseline.
    """
    connection = connect(url)
    try:
        return install_in(connection, mode=mode, engine=engine, teams=teams, directory=directory)
    finally:
        connection.close()


def install_in(
    connection: AnyConnection,
    *,
    mode: Mode | None = None,
    engine: Engine | None = None,
    teams: bool | None = None,
    directory: Path | None = None,
) -> Mode:
    """Install or upgrade mmdb over an open connection; see `install`."""
    try:
        with _locked_transaction(connection):
            spread_over = _choose_engine(connection, engine, mode)
            chosen = _prepare_mode(connection, "server" if spread_over == "citus" else mode)
            if spread_over == "citus":
                connection.run(_CITUS.change_one_by_one)
                connection.run(_CITUS.name_engine)
            if is_installed(connection):
                for migration in pending(connection, directory):
                    _run(connection, migration.sql, own_dialect=migration.engine is not None)
                    _record(connection, migration)
            else:
                _create(connection, directory)
            with_teams = _choose_teams(connection, spread_over, teams)
            files = list(current_files(spread_over, chosen, teams=with_teams))
            _run_files(connection, files)
            if spread_over == "postgres" and isinstance(connection, PostgresConnection):
                make_definers(connection, teams=with_teams, inside=chosen == "server")
            name = _SPREAD if spread_over == "citus" else _RECORDED_AS[chosen]
            _record(connection, SchemaChange(_CURRENT, name, _digest_files(files)))
            if isinstance(connection, PostgresConnection):
                connection.after_install()
            return chosen
    except RightsMissing as error:
        hint = _NEED_SYSTEM_ROLE if "mmdb_system" in error.message else _NEED_SUPERUSER
        raise RightsMissing(error.message, hint=hint) from error


def pending(connection: AnyConnection, directory: Path | None = None) -> list[SchemaChange]:
    """Return the migrations that the database lacks.

    Raises:
        NotInstalled: there is no mmdb in this database.
        MigrationMismatch: an applied migration differs from the published one, or is unknown; or
            the schema is of before the baseline.
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


def installed_engine(connection: Connection) -> Engine:
    """Return where the tables of the database's mmdb lie."""
    return _engine(connection, _applied(connection))


def has_teams(connection: Connection) -> bool:
    """Return whether each role sees its own datasets, runs and models alone."""
    return _TEAMS in _applied(connection)


def installed_mode(connection: Connection) -> Mode:
    """Return where the functions of the database's mmdb run; DuckDB's are always there."""
    return _mode(_applied(connection))


def _applied(connection: Connection) -> dict[int, Row]:
    return {row["number"]: row for row in connection.rows(_Q.applied_migrations)}


def _pending(
    connection: AnyConnection, applied: dict[int, Row], directory: Path | None = None
) -> list[SchemaChange]:
    if all(row["name"] != _BASELINE for row in applied.values()):
        raise MigrationMismatch(
            "The schema of this database is older than the oldest that can be upgraded.",
            hint=_TOO_OLD,
        )
    known = {m.number: m for m in migrations(connection.engine, directory)}
    for number, row in applied.items():
        if number > _SCHEMA and (number not in known or known[number].digest != row["digest"]):
            raise MigrationMismatch(
                f"Migration {number} of this database is not the one known here."
            )
    return [m for number, m in known.items() if number not in applied]


def _is_current(connection: AnyConnection, applied: dict[int, Row]) -> bool:
    files = current_files(_engine(connection, applied), _mode(applied), teams=_TEAMS in applied)
    return _CURRENT in applied and applied[_CURRENT]["digest"] == _digest_files(files)


def _mode(applied: dict[int, Row]) -> Mode:
    is_client = _CURRENT in applied and applied[_CURRENT]["name"] == _RECORDED_AS["client"]
    return "client" if is_client else "server"


def _engine(connection: Connection, applied: dict[int, Row]) -> Engine:
    is_spread = _CURRENT in applied and applied[_CURRENT]["name"] == _SPREAD
    return "citus" if is_spread else connection.engine


def ensure_duckdb(connection: DuckConnection) -> None:
    """Install mmdb in a DuckDB file that lacks it or is behind; the file has no other owner."""
    try:
        if is_up_to_date(connection):
            return
    except NotInstalled:
        pass
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
        connection.run(_Q.pin_search_path)
        connection.run(_Q.lock_install)
        yield


def _choose_engine(connection: AnyConnection, asked: Engine | None, mode: Mode | None) -> Engine:
    """Return the engine to install for; see `install`."""
    if isinstance(connection, DuckConnection) or asked == "duckdb":
        if asked not in (None, connection.engine):
            raise InvalidOption(
                f"This is {connection.engine}, not {asked}.", hint="Leave --engine out."
            )
        return connection.engine
    has = installed_engine(connection) if is_installed(connection) else None
    if has == "citus" and asked == "postgres":
        raise InvalidOption(
            "The tables of this database are spread over nodes.", hint="Leave --engine out."
        )
    chosen = asked or has or ("citus" if _can_spread(connection, mode) else "postgres")
    if chosen == "citus":
        require_cluster(connection)
        if mode == "client":
            raise InvalidOption(
                "On Citus hops run in the servers.",
                hint="Leave --client out, or install with --engine postgres.",
            )
    return chosen


def _choose_teams(connection: AnyConnection, engine: Engine, asked: bool | None) -> bool:
    """Return whether the database is to have teams; see `install`."""
    has = has_teams(connection)
    if (asked or (has and asked is None)) and engine != "postgres":
        hint = "Pass --no-teams" if has else "Leave --teams out"
        why = ": docs/citus.md, Rights." if engine == "citus" else "."
        raise InvalidOption(f"There are no teams on {engine}.", hint=hint + why)
    if has and asked is False:
        _run_files(connection, [sql_directory("sql/engines") / "postgres_no_teams.sql"])
        connection.run(_Q.forget_teams)
        return False
    if asked and not has:
        _record(connection, SchemaChange(_TEAMS, "teams", ""))
    return has or bool(asked)


def _can_spread(connection: PostgresConnection, mode: Mode | None) -> bool:
    has_functions = mode != "client" and bool(connection.rows(_Q.find_extension))
    return has_functions and is_ready(find_cluster(connection))


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
    _record(connection, SchemaChange(_SCHEMA, _BASELINE, _digest_files(schema_files(engine))))
    for migration in migrations(engine, directory):
        _record(connection, migration)


def _run_files(connection: AnyConnection, paths: Iterable[Path]) -> None:
    for path in paths:
        _run(connection, path.read_text(), own_dialect=path.parent.name == "engines")


def _run(connection: AnyConnection, sql: str, *, own_dialect: bool) -> None:
    if isinstance(connection, PostgresConnection):
        for statement in split_statements(sql):
            connection.script(statement)
        return
    if own_dialect:
        connection.script(sql)
        return
    for statement in _translated(sql):
        connection.select(statement)


@cache
def _translated(sql: str) -> tuple[str, ...]:
    """Return a file's statements for DuckDB: 0.4 s for all, and a process may make many files."""
    return tuple(translate_schema(sql))


def _record(connection: AnyConnection, migration: SchemaChange) -> None:
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
