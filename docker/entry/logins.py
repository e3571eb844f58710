"""Makes the logins of a container's database, with the passwords that secrets hold.

The server gets a password's SCRAM verifier, so that no log of statements ever has the password.
Reads WORKER_PASSWORD_FILE, READER_PASSWORD_FILE, SOCKETS and libpq's PG variables.
"""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
from psycopg import sql

#: What keeps accidents away from a login that may only look: docs/bi.md.
_READER_SETTINGS = {
    "default_transaction_read_only": "on",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "5min",
}


def main() -> None:
    """Make or renew the logins, and name the workers' one in mmdb's settings."""
    with psycopg.connect(autocommit=True) as connection:
        worker, reader = (_password(f"{who}_PASSWORD_FILE") for who in ("WORKER", "READER"))
        if worker:
            _make_login(connection, "worker", worker, "mmdb_worker")
            database, sockets = connection.info.dbname, os.environ["SOCKETS"]
            _set_worker(connection, f"postgresql://worker@/{database}?host={sockets}")
        if reader:
            _make_login(connection, "dashboard", reader, "mmdb_reader")
            for name, value in _READER_SETTINGS.items():
                statement = sql.SQL("ALTER ROLE dashboard SET {} = {}")
                connection.execute(statement.format(sql.Identifier(name), value))


def _password(variable: str) -> str | None:
    path = os.environ.get(variable)
    return Path(path).read_text().removesuffix("\n") if path else None


def _make_login(
    connection: psycopg.Connection[tuple[object, ...]], role: str, password: str, group: str
) -> None:
    verifier = connection.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    )
    name = sql.Identifier(role)
    found = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    if found is None:
        connection.execute(sql.SQL("CREATE ROLE {}").format(name))
    statement = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}")
    connection.execute(statement.format(name, verifier.decode()))
    connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), name))


def _set_worker(connection: psycopg.Connection[tuple[object, ...]], dsn: str) -> None:
    connection.execute(
        "INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %s)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (dsn,),
    )


if __name__ == "__main__":
    main()
