"""Schedules: statements that are stored, found due, and run with the rights of who stored them.

A session runs the schedules of the role that it is logged in as, and no others: so a statement that
takes another role, or lays one down, gains nothing. Only where PostgreSQL lets a statement run in a
transaction is it marked as done in the same one: both are there then, or neither.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from time import time
from typing import TYPE_CHECKING

import sqlglot
from sqlglot.errors import TokenError

from mmdb.arguments import check_seconds
from mmdb.data.names import check_name
from mmdb.db.citus import is_spread
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import (
    AlreadyExists,
    ConnectionLost,
    InvalidOption,
    MmdbError,
    NotOneStatement,
    QueryError,
    RightsMissing,
    ScheduleNotFound,
    WriteConflict,
    stops_the_caller,
)
from mmdb.messages import explain, show
from mmdb.train.drive.timetable import LastRun, NextRun, next_run, pause_s

if TYPE_CHECKING:  # which loads a driver
    from mmdb.db.url import AnyConnection

_Q = load("schedules")
#: Returns this moment, in seconds since 1970.
Clock = Callable[[], float]

#: First words of statements that run outside of a transaction.
_OUTSIDE = {"CALL", "VACUUM", "CHECKPOINT"}
#: First words of those that begin or end one, or mean nothing in a session of their own.
_REFUSED = {
    *("ABORT", "BEGIN", "COMMIT", "END", "PREPARE", "RELEASE", "ROLLBACK", "SAVEPOINT", "START"),
    *("CLOSE", "DEALLOCATE", "DECLARE", "DISCARD", "EXECUTE", "FETCH", "LISTEN", "MOVE"),
    *("RESET", "SET", "UNLISTEN", "USE"),
}
#: Seconds between due times at most: ten years.
_LONGEST_S = 3.2e8


def schedule(
    connection: Connection,
    name: str,
    statement: str,
    every: str | float | timedelta,
    starts: str | datetime | None = None,
) -> int:
    """Store a statement that workers run again and again; it is not run now.

    Args:
        every: from one due time to the next: seconds, or a text such as "1 day".
        starts: the first due time; None: now.
    Returns:
        Its number.
    Raises:
        InvalidName, AlreadyExists, InvalidOption
        QueryError and others: the database does not take the statement; see Connection.prepare.
        RightsMissing: nobody can log in as this role.
    """
    check_name(name)
    given = every.total_seconds() if isinstance(every, timedelta) else every
    every_s = check_seconds(given, "every")
    if not 1 <= every_s <= _LONGEST_S:
        raise InvalidOption(f"every is {show(every)}.", hint="It is from 1 second to ten years.")
    word = _first_word(connection, statement)
    is_postgres = connection.engine == "postgres"
    if is_postgres:
        if is_spread(connection):
            raise InvalidOption("There are no schedules on Citus.", hint="Use pg_cron there.")
        _require_login(connection)
    connection.prepare(statement)
    added = connection.rows(
        _Q.add_schedule,
        name=name,
        statement=statement,
        search_path=connection.rows(_Q.find_path)[0]["search_path"] if is_postgres else None,
        every_s=every_s,
        starts_s=_moment(connection, starts),
        is_outside=word in _OUTSIDE,
    )
    if not added:
        raise AlreadyExists(f"A schedule named {name!r} exists.")
    return int(added[0]["schedule_id"])


def unschedule(connection: Connection, name: str) -> str:
    """Delete a schedule and its history; a run that is under way is waited for.

    Raises:
        ScheduleNotFound: there is none that this role may delete.
    """
    with connection.transaction():
        found = connection.rows(_Q.find_schedule, name=name)
        if not found:
            raise ScheduleNotFound(f"There is no schedule {show(name)} of yours.")
        key = found[0]["schedule_id"]
        connection.run(_Q.delete_runs, schedule_id=key)
        connection.run(_Q.delete_schedule, schedule_id=key)
    return name


def _first_word(connection: Connection, statement: object) -> str:
    """Return the word that a statement begins with.

    Raises:
        QueryError: it is no statement that can be repeated.
    """
    if not isinstance(statement, str):
        raise QueryError(f"The statement is {show(statement)}, not a text.", hint=_ONE)
    try:
        tokens = sqlglot.tokenize(statement, read=connection.engine)
    except TokenError as error:
        raise QueryError(f"The statement is not valid SQL: {error}.", hint=_ONE) from error
    if not tokens:
        raise NotOneStatement("The text holds no statement.", hint=_ONE)
    word = (tokens[0].text.split() or [""])[0].upper()
    if word in _REFUSED:
        raise QueryError(f"A schedule cannot run {word}: it has a session of its own.", hint=_ONE)
    return word


_ONE = "Pass one statement that does something by itself, such as SELECT, INSERT or CALL."


def _require_login(connection: Connection) -> None:
    (role,) = connection.rows(_Q.find_role)
    if not role["logs_in"]:
        raise RightsMissing(
            f"Nobody can log in as {role['role']}, with whose rights the statement would run.",
            hint="RESET ROLE first: a schedule runs as the login that stores it.",
        )


def _moment(connection: Connection, starts: str | datetime | None) -> float:
    if starts is None:
        return clock_of(connection)()
    text = starts.isoformat() if isinstance(starts, datetime) else starts
    try:
        return float(connection.rows(_Q.find_moment, moment=text)[0]["seconds"])
    except Exception as error:
        if stops_the_caller(error):
            raise
        raise InvalidOption(f"starts is {show(starts)}.", hint="It is a moment.") from error


# -- serving ------------------------------------------------------------------


def clock_of(connection: Connection) -> Clock:
    """Return the clock of a database, which all of its workers have in common."""
    if connection.engine == "duckdb":
        return time
    return lambda: float(connection.rows(_Q.find_now)[0]["seconds"])


def find_due(connection: Connection, clock: Clock) -> list[int]:
    """Return the schedules of this session's role that are due."""
    rows, now_s = _find(connection), clock()
    return [row["schedule_id"] for row in rows if _next(row, now_s) is not None]


def run_due(connection: AnyConnection, now_s: float | None = None) -> list[Row]:
    """Run what is due in a DuckDB file, one after another; see `run_schedule`."""
    clock = clock_of(connection) if now_s is None else lambda: now_s
    ended = [run_schedule(connection, key, clock) for key in find_due(connection, clock)]
    return [row for row in ended if row is not None]


def run_schedule(connection: AnyConnection, schedule_id: int, clock: Clock) -> Row | None:
    """Run a schedule if it is due and no other session runs it.

    Args:
        connection: a session of its own, on PostgreSQL: the statement may leave settings behind.
    Returns:
        schedule, due_s, outcome ("done" or "failed") and message; None where it did not run.
    """
    is_postgres = connection.engine == "postgres"
    key = schedule_id % 2**31
    if is_postgres and not connection.rows(_Q.lock_schedule, key=key)[0]["locked"]:
        return None
    try:
        found = _find(connection, schedule_id)
        due = _next(found[0], clock()) if found else None
        return None if due is None else _run(connection, found[0], due, clock)
    finally:
        if is_postgres:
            _unlock(connection, key)


def _unlock(connection: AnyConnection, key: int) -> None:
    try:
        connection.run(_Q.unlock_schedule, key=key)
    except ConnectionLost:
        pass  # the lock went with the session


def _find(connection: Connection, schedule_id: int | None = None) -> list[Row]:
    role = None
    if connection.engine == "postgres":
        role = connection.rows(_Q.find_login)[0]["role"]
    return connection.rows(_Q.find_schedules, role=role, schedule_id=schedule_id)


def _next(row: Row, now_s: float) -> NextRun | None:
    last = None
    if row["due_s"] is not None:
        last = LastRun(
            due_s=row["due_s"],
            outcome=row["outcome"],
            failures=row["failures"],
            retry_s=row["retry_s"],
        )
    return next_run(row["starts_s"], row["every_s"], last, now_s)


def _run(connection: AnyConnection, row: Row, due: NextRun, clock: Clock) -> Row | None:
    """Run a statement, write how it went, and return that."""
    begun = connection.rows(
        _Q.begin_run,
        schedule_id=row["schedule_id"],
        due_s=due.due_s,
        failures=due.failures,
        retry_s=due.retry_s,
        now_s=clock(),
    )
    if not begun:
        return None  # it was done meanwhile
    (run,), message = begun, None
    try:
        if row["is_outside"]:
            _run_outside(connection, row, run, clock)
        else:
            _run_inside(connection, row, run, clock)
    except MmdbError as error:
        message = error.message
        _note_failure(connection, row, run, due, error, clock)
        if stops_the_caller(error):
            raise
    outcome = "done" if message is None else "failed"
    return {"schedule": row["name"], "due_s": due.due_s, "outcome": outcome, "message": message}


def _run_inside(connection: AnyConnection, row: Row, run: Row, clock: Clock) -> None:
    """Run a statement and mark it as done, in one transaction."""
    with connection.transaction():
        if connection.engine == "postgres":
            path = {"search_path": row["search_path"], "is_local": True}
            connection.run(_Q.use_path, **path)
        connection.exhaust(row["statement"])
        _finish(connection, run, clock())


def _run_outside(connection: AnyConnection, row: Row, run: Row, clock: Clock) -> None:
    """Run a statement, then mark it as done: it may run again where a worker dies in between."""
    if connection.engine == "postgres":
        path = {"search_path": row["search_path"], "is_local": False}
        connection.run(_Q.use_path, **path)
    connection.exhaust(row["statement"])
    _finish(connection, run, clock())


def _finish(connection: AnyConnection, run: Row, now_s: float) -> None:
    if connection.engine == "postgres":
        connection.script("SET ROLE NONE")  # another which the statement may have taken
    about = {"outcome": "done", "failures": 0, "retry_s": now_s, "sqlstate": None, "message": None}
    if not connection.rows(_Q.finish_run, **run, **about, now_s=now_s):
        raise WriteConflict("Another worker has taken this run over.")


def _note_failure(
    connection: AnyConnection, row: Row, run: Row, due: NextRun, error: MmdbError, clock: Clock
) -> None:
    """Write that a try has failed, unless it is done or another one has begun meanwhile."""
    if isinstance(error, ConnectionLost) and connection.engine == "postgres":
        connection.reconnect()
    now_s, failures = clock(), due.failures + 1
    connection.rows(
        _Q.finish_run,
        **run,
        outcome="failed",
        failures=failures,
        retry_s=now_s + pause_s(failures, row["every_s"]),
        sqlstate=error.sqlstate,
        message=explain(error),
        now_s=now_s,
    )
