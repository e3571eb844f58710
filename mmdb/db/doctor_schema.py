"""The doctor's look at what PostgreSQL says of mmdb's objects, and at rows that stand alone."""

from __future__ import annotations

from collections.abc import Iterator

from mmdb.db.check import SHOWN, Check, as_postgres
from mmdb.db.install import is_installed
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection

_Q, _O = load("doctor"), load("operations")


def extensions(connection: PostgresConnection) -> Iterator[Check]:
    """Yield whether the extensions in the database are those whose files the server has."""
    late = connection.rows(_O.find_extensions)
    if late:
        names = "; ".join(f"{r['name']} is {r['installed']}, not {r['available']}" for r in late)
        commands = " ".join(f"ALTER EXTENSION {r['name']} UPDATE;" for r in late)
        mend = f"As a superuser, run `{commands}` in a new session."
        yield Check(name="extensions", ok=False, detail=f"{names}.", mend=mend)


def broken_objects(connection: PostgresConnection) -> Iterator[Check]:
    """Yield whether indexes and constraints hold for every row."""
    if not is_installed(connection):
        return
    broken = connection.rows(_O.find_broken)
    indexes = [r["name"] for r in broken if r["kind"] == "index"]
    constraints = [r["name"] for r in broken if r["kind"] == "constraint"]
    yield Check(
        name="indexes",
        ok=not indexes,
        detail=f"not used: {', '.join(indexes)}" if indexes else "valid",
        mend=f"Run `REINDEX INDEX CONCURRENTLY {indexes[0]}`, and so on." if indexes else "",
    )
    if constraints:
        detail = f"not held against all rows: {', '.join(constraints)}"
        mend = "Run `ALTER TABLE ... VALIDATE CONSTRAINT ...`: it names a row that is wrong."
        yield Check(name="constraints", ok=False, detail=detail, mend=mend)


def sequences(connection: PostgresConnection) -> Iterator[Check]:
    """Yield whether the next row of each table gets a number that no row has; for the owner."""
    (role,) = connection.rows(_Q.find_role)
    if not (is_installed(connection) and (role["is_superuser"] or role["is_owner"])):
        return
    late = connection.rows(_O.find_late_sequences)
    names = ", ".join(f"{r['table_name']} (next {r['next_value']})" for r in late)
    mend = (
        "Rows were copied in without their sequences: for each run `SELECT setval("
        "pg_get_serial_sequence('mmdb.TABLE', 'COLUMN'), max(COLUMN)) FROM mmdb.TABLE`; "
        "docs/runbook/sequence-behind.md."
    )
    detail = f"behind their tables: {names}" if late else "ahead of their tables"
    yield Check(name="sequences", ok=not late, detail=detail, mend=mend if late else "")


def orphans(connection: AnyConnection) -> Iterator[Check]:
    """Yield whether rows stand beside each other that should; for the owner."""
    if not is_installed(connection):
        return
    if isinstance(connection, PostgresConnection):
        (role,) = connection.rows(_Q.find_role)
        if not (role["is_superuser"] or role["is_owner"]):
            return
    found = [r for r in connection.rows(_O.find_orphans) if r["items"]]
    names = ", ".join(f"{r['items']:,} {r['what']}" for r in found[:SHOWN])
    yield Check(
        name="rows",
        ok=not found,
        detail=names or "complete",
        mend=f"Run `mmdb doctor --verify {as_postgres(connection.url)}`, which names them; "
        "docs/runbook/damaged-bytes.md."
        if found and isinstance(connection, PostgresConnection)
        else "docs/runbook/damaged-bytes.md says what to restore."
        if found
        else "",
    )
