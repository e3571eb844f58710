"""Look at a database that mmdb is to work in, and say what is missing and how to mend it.

`examine` changes nothing and never raises: whatever it meets becomes a `Check`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from urllib.parse import unquote

from mmdb.db.check import Check, shown
from mmdb.db.doctor_schema import (
    broken_objects,
    extensions,
    orphans,
    rights,
    roles,
    sequences,
    worker_login,
)
from mmdb.db.doctor_server import citus, server
from mmdb.db.install import installed_mode, is_current, is_installed, pending
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load, sql_directory
from mmdb.db.server_python import server_python
from mmdb.db.url import AnyConnection, connect
from mmdb.errors import ConnectionLost, MmdbError, WrongUrl, stops_the_caller

OLDEST_SERVER = 15
#: The newest that mmdb was tried with, and the first that has MAINTAIN.
NEWEST_SERVER, _MAINTAIN_SERVER = 18, 17

_LOST = "session"  # the name of the check that ends the examination
_READ_LOG = "Read the end of the server's log, then run `mmdb doctor` again."
_Look = Callable[[], Iterator[Check]]

_Q = load("doctor")
_FUNCTION = re.compile(r"^CREATE OR REPLACE (?:FUNCTION|PROCEDURE) mmdb\.(\w+)", re.MULTILINE)
_VIEW = re.compile(r"^CREATE OR REPLACE VIEW mmdb\.(\w+)", re.MULTILINE)


def examine(url: str) -> list[Check]:
    """Return the checks of the database at `url`, in an order in which they can be mended."""
    opened: list[AnyConnection] = []
    checks = list(_guarded("connection", lambda: _open(url, opened)))
    if not opened:
        return checks
    (connection,) = opened
    try:
        for name, look in _looks(connection):
            for check in _guarded(name, look):
                checks.append(check)
                if check.name == _LOST:
                    return checks
    finally:
        connection.close()
    return checks


def _looks(connection: AnyConnection) -> Iterator[tuple[str, _Look]]:
    if isinstance(connection, PostgresConnection):
        yield "server version", lambda: _server_version(connection)
        yield "plpython3u", lambda: _extension(connection)
        yield "server Python", lambda: _server_python(connection)
    yield "schema", lambda: _schema(connection)
    yield "functions and views", lambda: _objects(connection)
    yield "rows", lambda: orphans(connection)
    if isinstance(connection, PostgresConnection):
        yield "extensions", lambda: extensions(connection)
        yield "indexes", lambda: broken_objects(connection)
        yield "sequences", lambda: sequences(connection)
        yield "rights", lambda: rights(connection)
        yield "roles", lambda: roles(connection)
        yield "worker login", lambda: worker_login(connection)
        yield "server", lambda: server(connection)
        yield "citus", lambda: citus(connection)


def _guarded(name: str, look: _Look) -> Iterator[Check]:
    """Yield the checks of `look`; an error in it becomes a failed check."""
    try:
        yield from look()
    except ConnectionLost as error:
        yield Check(
            name=_LOST,
            ok=False,
            detail=f"The session ended while looking at the {name}: {error.message}",
            mend=_READ_LOG,
        )
    except Exception as error:  # a doctor that fails helps nobody
        if stops_the_caller(error):
            raise
        known = error if isinstance(error, MmdbError) else None
        detail = known.message if known else f"{type(error).__name__}: {error}"
        mend = known.hint if known and known.hint else _READ_LOG
        yield Check(name=name, ok=False, detail=detail, mend=mend)


# -- the connection -----------------------------------------------------------


def _open(url: str, opened: list[AnyConnection]) -> Iterator[Check]:
    path = _duckdb_path(url)
    if path is not None and not path.exists():
        yield Check(
            name="connection",
            ok=False,
            detail=f"There is no file {path}.",
            mend=f"Run `mmdb install {url}`, which makes it, or correct the URL.",
        )
        return
    try:
        opened.append(connect(url))
    except (WrongUrl, ValueError) as error:
        detail = error.message if isinstance(error, WrongUrl) else f"{error}: {shown(url)!r}"
        yield Check(name="connection", ok=False, detail=detail, mend=_mend_url(url, path))
    else:
        yield Check(name="connection", ok=True, detail=shown(url))


def _mend_url(url: str, path: Path | None) -> str:
    if path is not None:
        return f"Name another file, or make `ls -l {path}` show one that you can read and write."
    if url.startswith(("postgresql://", "postgres://")):
        return (
            f"Make `psql {quote(shown(url))}` work first: the server runs, the host and port are "
            "right, the role exists, and pg_hba.conf lets it in."
        )
    return WrongUrl.default_hint


def _duckdb_path(url: str) -> Path | None:
    """Return the file that a DuckDB URL names; None for a database in memory or elsewhere."""
    name = unquote(url.removeprefix("duckdb://")).removeprefix("/")
    return Path(name) if url.startswith("duckdb://") and name not in ("", ":memory:") else None


# -- the server ---------------------------------------------------------------


def _server_version(connection: PostgresConnection) -> Iterator[Check]:
    major = _major(connection)
    detail = f"PostgreSQL {major}"
    if major > NEWEST_SERVER:
        detail += f", and mmdb was tried with {OLDEST_SERVER} to {NEWEST_SERVER}"
    elif major < _MAINTAIN_SERVER:
        detail += (
            f": before {_MAINTAIN_SERVER} a trainer cannot be granted MAINTAIN, so that states of "
            "runs are vacuumed at once only where the owner of mmdb trains, else by autovacuum"
        )
    yield Check(
        name="server version",
        ok=major >= OLDEST_SERVER,
        detail=detail,
        mend=""
        if major >= OLDEST_SERVER
        else f"mmdb needs PostgreSQL {OLDEST_SERVER} or newer: upgrade with `pg_upgrade`.",
    )


def _major(connection: PostgresConnection) -> int:
    return connection.raw.info.server_version // 10000


def _is_client_mode(connection: PostgresConnection) -> bool:
    try:
        return is_installed(connection) and installed_mode(connection) == "client"
    except MmdbError as error:  # another check says why
        if stops_the_caller(error):
            raise
        return False


def _server_python(connection: PostgresConnection) -> Iterator[Check]:
    if not _is_client_mode(connection):
        yield from server_python(connection)


def _extension(connection: PostgresConnection) -> Iterator[Check]:
    found = connection.rows(load("install").find_extension)
    if _is_client_mode(connection):
        detail = "not used: mmdb is installed without functions, they run in the clients"
        yield Check(name="plpython3u", ok=True, detail=detail)
    elif not found:
        package = f"postgresql-plpython3-{_major(connection)}"
        yield Check(
            name="plpython3u",
            ok=False,
            detail="The server has no plpython3u.",
            mend=f"On the server, run `sudo apt-get install {package}`; or do without: "
            f"`mmdb install --client {quote(shown(connection.url))}`.",
        )
    elif not found[0]["installed"]:
        yield Check(
            name="plpython3u",
            ok=False,
            detail="The server has it, this database has not.",
            mend=f"As a superuser, run `mmdb install {quote(shown(connection.url))}`.",
        )
    else:
        yield Check(name="plpython3u", ok=True, detail="installed")


# -- mmdb ---------------------------------------------------------------------


def _schema(connection: AnyConnection) -> Iterator[Check]:
    mend = f"Run `mmdb install {quote(shown(connection.url))}`."
    if not is_installed(connection):
        detail = "mmdb is not installed in this database."
        yield Check(name="schema", ok=False, detail=detail, mend=mend)
        return
    missing = pending(connection)
    if missing:
        names = ", ".join(f"{m.number:04}_{m.name}" for m in missing)
        yield Check(name="schema", ok=False, detail=f"Not applied: {names}.", mend=mend)
    else:
        yield Check(name="schema", ok=True, detail="up to date")


def _objects(connection: AnyConnection) -> Iterator[Check]:
    if not is_installed(connection):
        return
    missing = _names(_VIEW, "sql/views") - {r["name"] for r in connection.rows(_Q.find_views)}
    # DuckDB makes them at each connect.
    if isinstance(connection, PostgresConnection) and not _is_client_mode(connection):
        present = {r["name"] for r in connection.rows(_Q.find_functions)}
        missing |= _names(_FUNCTION, "udf") - present
    detail = f"missing: {', '.join(sorted(missing))}" if missing else ""
    if not missing and not is_current(connection):
        detail = "They are of another version of mmdb."
    yield Check(
        name="functions and views",
        ok=not detail,
        detail=detail or "complete",
        mend=f"Run `mmdb install {quote(shown(connection.url))}`." if detail else "",
    )


def _names(pattern: re.Pattern[str], folder: str) -> set[str]:
    files = sql_directory(folder).glob("*.sql")
    return {name for path in files for name in pattern.findall(path.read_text())}
