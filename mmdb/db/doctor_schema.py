"""The doctor's look at mmdb's objects, the rows in them, and who may do what."""

from __future__ import annotations

import json
from collections.abc import Iterator

from mmdb.db.check import SHOWN, Check, as_postgres
from mmdb.db.connection import Row
from mmdb.db.install import is_installed
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection

_Q = load("doctor")
_O = load("operations")


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


ROLES = ("mmdb_reader", "mmdb_trainer", "mmdb_admin", "mmdb_worker")
_SYSTEM = "mmdb_system"  # as whom mmdb's statements and, with teams, its views see the tables
#: Seconds for which a worker process counts as serving without a word from it.
LEASE_S = 10.0
_SET_LOGIN = "docs/running.md says how the owner sets mmdb.setting 'worker_dsn'."


def rights(connection: PostgresConnection) -> Iterator[Check]:
    """Yield what the role that asks may do."""
    (role,) = connection.rows(_Q.find_role)
    name = role["name"]
    if role["is_superuser"] or role["is_owner"]:
        yield Check(name="rights", ok=True, detail=f"{name} owns mmdb")
    elif not is_installed(connection):
        mend = f"Run `mmdb install {as_postgres(connection.url)}`."
        yield Check(name="rights", ok=False, detail=f"{name} may not install mmdb.", mend=mend)
    elif role["is_admin"]:
        yield Check(name="rights", ok=True, detail=f"{name} may train, predict and collect garbage")
    elif role["is_trainer"]:
        yield Check(name="rights", ok=True, detail=f"{name} may train and predict")
    else:
        may = "may only read the views" if role["is_reader"] else "may do nothing with mmdb"
        mend = f'As a superuser, run `GRANT mmdb_trainer TO "{name}"`.'
        yield Check(name="rights", ok=False, detail=f"{name} {may}.", mend=mend)


def roles(connection: PostgresConnection) -> Iterator[Check]:
    """Yield whether mmdb's roles are there, each above the other, and none a superuser."""
    if not is_installed(connection):
        return
    found = {row["name"]: row for row in connection.rows(_O.find_roles)}
    wanted = ROLES if connection.on_citus else (*ROLES, _SYSTEM)
    wrong = [f"there is no {name}" for name in wanted if name not in found]
    wrong += [
        f"{n} is a superuser, may make roles, or row security does not hold for it"
        for n, r in found.items()
        if r["is_mighty"]
    ]
    wrong += [f"{n} lacks the rights below it" for n, r in found.items() if not r["has_lower"]]
    if _has_teams(connection):
        wrong += [
            f"view mmdb.{row['name']} shows the rows of all teams"
            for row in connection.rows(_O.find_open_views)
        ]
    if not connection.on_citus:
        wrong += [
            f"{row['role']} has rights on table mmdb.{row['name']} itself"
            for row in connection.rows(_O.find_table_rights)
        ]
    mend = f"Run `mmdb install {as_postgres(connection.url)}`, which makes and grants them; take "
    mend += (
        "back by hand what a role has that it should not: `ALTER ROLE ... NOSUPERUSER NOBYPASSRLS`."
    )
    yield Check(
        name="roles",
        ok=not wrong,
        detail="; ".join(wrong) or ", ".join(wanted),
        mend=mend if wrong else "",
    )


def worker_login(connection: PostgresConnection) -> Iterator[Check]:
    """Yield whether the login by which the server's workers come opens; superusers try it."""
    (role,) = connection.rows(_Q.find_role)
    if not (is_installed(connection) and (role["is_superuser"] or role["is_trainer"])):
        return
    setting = connection.rows(load("catalog").find_setting, name="worker_dsn")
    if not setting:
        serving = connection.rows(load("service").live_workers, worker_id=None, lease_s=LEASE_S)
        detail = "none: CALL mmdb.train hands runs to `mmdb worker`, "
        start = f"`mmdb worker {as_postgres(connection.url)}`"
        detail += "which serves" if serving else f"but none serves: it raises MM304 until {start}"
        yield Check(name="worker login", ok=True, detail=detail)
    elif not role["is_superuser"] or not connection.rows(load("install").find_extension):
        yield Check(name="worker login", ok=True, detail="set; a superuser's doctor tries it")
    else:
        yield _judge_login(_probe(connection), with_teams=_has_teams(connection))


def _has_teams(connection: PostgresConnection) -> bool:
    """Return whether the database has teams, as its catalog shows it to everybody."""
    return bool(connection.rows(_O.find_team_policies))


def _probe(connection: PostgresConnection) -> Row:
    with connection.raw.transaction(force_rollback=True):
        connection.run(_O.probe_worker_login)
        found: Row = json.loads(connection.rows(_Q.read_probe)[0]["found"])
    return found


def _judge_login(found: Row, *, with_teams: bool) -> Check:
    """Return the check of what the query `probe_worker_login` has found."""
    wrong, mend = "", _SET_LOGIN
    if found["error"]:
        wrong = f"It does not work: {found['error']}"
        mend += " Its password is kept by the server's user, in .pgpass."
    elif not found["is_here"]:
        wrong = "It leads to another database."
    elif found["is_superuser"]:
        wrong = f"{found['role']} is a superuser: whoever may train would act as one."
    elif not found["is_trainer"]:
        wrong = f"{found['role']} may not train."
        mend = f'As a superuser, run `GRANT mmdb_worker TO "{found["role"]}"`.'
    elif with_teams and not found["is_worker"]:
        wrong = f"{found['role']} does not serve all teams."
        mend = f'As a superuser, run `GRANT mmdb_worker TO "{found["role"]}"`.'
    detail = wrong or f"{found['role']} opens"
    return Check(name="worker login", ok=not wrong, detail=detail, mend=mend if wrong else "")
