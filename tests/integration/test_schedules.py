"""Schedules: what is due runs once, with its owner's rights, whatever fails or is killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from tests.cluster import Cluster
from tests.worker_process import WorkerCommand, until

START = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as database:
        database.sql("CREATE TABLE done (note text)")
        yield database


def notes(db: Database) -> list[str]:
    return [row["note"] for row in db.sql("SELECT note FROM done ORDER BY note")]


def hourly(db: Database, name: str = "hourly", statement: str = "") -> None:
    text = statement or f"INSERT INTO done VALUES ('{name}')"
    db.schedule(name, text, HOUR, starts=START)


def outcomes(db: Database, at: datetime) -> list[str]:
    return [row["outcome"] for row in db.run_due(at)]


def overview(db: Database) -> Any:
    (row,) = db.sql("SELECT * FROM mmdb.schedule_overview")
    return row


def test_each_due_time_runs_once_and_missed_ones_are_caught_up_once(db: Database) -> None:
    hourly(db)
    assert outcomes(db, START - HOUR) == [] and notes(db) == []
    assert outcomes(db, START) == ["done"]
    assert outcomes(db, START + HOUR / 2) == []
    assert outcomes(db, START + 7.5 * HOUR) == ["done"]
    assert outcomes(db, START + 7.9 * HOUR) == []
    assert notes(db) == ["hourly"] * 2
    rows = db.sql("SELECT due_at, outcome, tries FROM mmdb.schedule_history ORDER BY due_at")
    assert [row["due_at"].astimezone(UTC) for row in rows] == [START, START + 7 * HOUR]
    assert {(row["outcome"], row["tries"]) for row in rows} == {("done", 1)}
    shown = overview(db)
    assert (shown["done"], shown["failures"], shown["last_outcome"]) == (2, 0, "done")
    assert shown["next_at"].astimezone(UTC) == START + 8 * HOUR


def test_sql_stores_and_deletes_schedules(db: Database) -> None:
    (row,) = db.sql("SELECT mmdb.schedule('s', 'SELECT 1 AS x', every => '5 min') AS key")
    assert (overview(db)["schedule_id"], overview(db)["every_s"]) == (row["key"], 300)
    db.sql("SELECT mmdb.schedule('later', 'SELECT 1', '1 day', starts => '2030-01-01 00:00+00')")
    assert [row["outcome"] for row in db.run_due()] == ["done"]
    db.sql("SELECT mmdb.unschedule('s')")
    assert overview(db)["schedule"] == "later"
    db.unschedule("later")
    assert db.sql("SELECT * FROM mmdb.schedule_history") == []
    with pytest.raises(errors.ScheduleNotFound):
        db.unschedule("later")


def test_a_statement_that_fails_is_tried_again_after_pauses_and_stops_nothing(
    db: Database,
) -> None:
    insert = "INSERT INTO done SELECT 'x' FROM missing"
    db.sql("CREATE TABLE missing (x integer)")
    hourly(db, "bad", insert)
    hourly(db, "good")
    db.sql("DROP TABLE missing")
    assert outcomes(db, START) == ["failed", "done"]
    assert outcomes(db, START + timedelta(seconds=9)) == []
    assert outcomes(db, START + timedelta(seconds=10)) == ["failed"]
    assert outcomes(db, START + timedelta(seconds=29)) == []
    assert outcomes(db, START + timedelta(seconds=30)) == ["failed"]
    (row,) = db.sql("SELECT * FROM mmdb.schedule_overview WHERE schedule = 'bad'")
    assert (row["failures"], row["tries"], row["last_outcome"]) == (3, 3, "failed")
    assert "missing" in row["message"]
    db.sql("CREATE TABLE missing AS SELECT 1 AS x")
    assert outcomes(db, START + HOUR) == ["done", "done"]
    assert notes(db) == ["good", "good", "x"]


@pytest.mark.parametrize("every", ["0 s", "-1 hours", "soon", "", 0, -5, 0.5, None, True, 1e12])
def test_an_interval_that_is_none_is_refused(db: Database, every: Any) -> None:
    with pytest.raises(errors.InvalidOption):
        db.schedule("s", "SELECT 1", every)


@pytest.mark.parametrize(
    "statement",
    [
        *("", "  -- nothing", "SELECT 1; SELECT 2", "SELEC 1", "SELECT 'open", None, 3),
        *("COMMIT", "/* x */ ROLLBACK", "BEGIN", "SET x.y = 1", "PREPARE p AS SELECT 1"),
    ],
)
def test_what_is_not_one_statement_is_refused_and_nothing_is_run(
    db: Database, statement: Any
) -> None:
    with pytest.raises(errors.QueryError):
        db.schedule("s", statement, "1 hour")
    if isinstance(statement, str):
        quoted = statement.replace("'", "''")
        with pytest.raises(errors.QueryError):
            db.sql(f"SELECT mmdb.schedule('s', '{quoted}', '1 hour')")
    assert db.sql("SELECT * FROM mmdb.schedule_overview") == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM nope",
        "INSERT INTO nope SELECT 'x'",
        "INSERT INTO done SELECT note FROM nope",
        "UPDATE nope SET note = 'x'",
        "DELETE FROM nope",
        "CREATE TABLE made AS SELECT * FROM nope",
        "WITH one AS (SELECT 1) SELECT * FROM one, nope",
    ],
)
def test_a_statement_whose_tables_are_missing_is_refused(db: Database, statement: str) -> None:
    with pytest.raises(errors.UnknownTable):
        db.schedule("s", statement, "1 hour")


@pytest.mark.parametrize("statement", ["/* all */ TRUNCATE done", "CREATE TABLE made (x integer)"])
def test_a_statement_that_defines_or_empties_is_taken(db: Database, statement: str) -> None:
    db.schedule("s", statement, "1 hour")
    assert db.sql("SELECT * FROM done") == []


def test_names_and_moments_are_checked(db: Database) -> None:
    hourly(db)
    with pytest.raises(errors.AlreadyExists):
        hourly(db)
    with pytest.raises(errors.InvalidName):
        db.schedule("a b", "SELECT 1", "1 hour")
    with pytest.raises(errors.InvalidOption):
        db.schedule("s", "SELECT 1", "1 hour", starts="one day")


def test_a_statement_that_is_stored_is_not_run(db: Database) -> None:
    hourly(db, "s", "INSERT INTO done VALUES ('now')")
    assert notes(db) == []


# -- PostgreSQL ---------------------------------------------------------------


@pytest.fixture
def pg(postgres_url: str) -> Iterator[Database]:
    with mmdb.connect(postgres_url) as database:
        database.sql("CREATE TABLE done (note text)")
        yield database


@pytest.fixture
def logins(pg: Database, cluster: Cluster, postgres_url: str) -> Iterator[dict[str, str]]:
    """Yield the URLs of two trainers and an admin; ann is a member of a team that logs in."""
    names = {"ann": "mmdb_trainer", "bob": "mmdb_trainer", "kim": "mmdb_admin", "lab": None}
    for name, role in names.items():
        pg.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{cluster.password}'")
        if role:
            pg.sql(f"GRANT {role} TO {name}")
    pg.sql("GRANT lab TO ann")
    pg.sql("GRANT mmdb_trainer TO lab")
    yield {name: postgres_url.replace("postgres:", f"{name}:", 1) for name in names}
    for name in names:
        pg.sql(f"DROP OWNED BY {name}")
        pg.sql(f"DROP ROLE {name}")


def test_a_statement_runs_with_the_rights_of_its_owner_whatever_it_resets(
    pg: Database, logins: dict[str, str]
) -> None:
    pg.sql("CREATE TABLE secret (x integer)")
    pg.sql("GRANT INSERT ON done TO ann")
    tricks = "RESET ROLE; RESET SESSION AUTHORIZATION; INSERT INTO done SELECT x FROM secret"
    with mmdb.connect(logins["ann"]) as ann:
        hourly(ann, "trick", f"DO $$ BEGIN {tricks}; END $$")
        hourly(ann, "who", "INSERT INTO done VALUES (session_user || ' ' || current_user)")
        hourly(ann, "taken", "SELECT set_config('role', 'lab', false)")
        ann.sql("SET ROLE lab")
        with pytest.raises(errors.AlreadyExists):
            hourly(ann, "who")
    assert outcomes(pg, START) == []  # the superuser's workers serve the superuser's
    with mmdb.connect(logins["bob"]) as bob:
        assert outcomes(bob, START) == []
    with mmdb.connect(logins["ann"]) as ann:
        found = {row["schedule"]: row for row in ann.run_due(START)}
    assert {name: row["outcome"] for name, row in found.items()} == {
        "trick": "failed",
        "who": "done",
        "taken": "done",
    }
    assert "secret" in found["trick"]["message"] and notes(pg) == ["ann ann"]


def test_nobody_sees_changes_or_drops_the_schedule_of_another(
    pg: Database, logins: dict[str, str]
) -> None:
    with mmdb.connect(logins["ann"]) as ann:
        hourly(ann, "private", "SELECT 1 / 0")
        ann.run_due(START)
        assert overview(ann)["statement"] == "SELECT 1 / 0"
        assert "zero" in overview(ann)["message"]
    with mmdb.connect(logins["bob"]) as bob:
        row = overview(bob)
        assert (row["owner"], row["statement"], row["message"]) == ("ann", None, None)
        assert bob.sql("SELECT message FROM mmdb.schedule_history") == [{"message": None}]
        leaks = "SELECT * FROM mmdb_call.schedules_find_schedules('ann', NULL)"
        assert bob.sql(leaks) == []
        with pytest.raises(errors.ScheduleNotFound):
            bob.unschedule("private")
        key = f"{row['schedule_id']}::bigint"
        for call in (f"delete_runs({key})", f"delete_schedule({key})"):
            bob.sql(f"SELECT * FROM mmdb_call.schedules_{call}")
        assert len(bob.sql("SELECT * FROM mmdb.schedule_history")) == 1
        begin = f"SELECT * FROM mmdb_call.schedules_begin_run({key}, 0, 0, 0, 0)"
        with pytest.raises(errors.RightsMissing):
            bob.sql(begin)
        with pytest.raises(errors.RightsMissing):
            bob.sql("INSERT INTO mmdb.schedule (name, owner) VALUES ('x', 'ann')")
    with mmdb.connect(logins["kim"]) as admin:
        assert overview(admin)["statement"] == "SELECT 1 / 0"
        with pytest.raises(errors.RightsMissing):  # nor does an admin write to it
            admin.sql(begin)
        admin.unschedule("private")
    assert pg.sql("SELECT * FROM mmdb.schedule") == []


def test_a_role_that_nobody_logs_in_as_has_no_schedules(
    pg: Database, logins: dict[str, str]
) -> None:
    pg.sql("ALTER ROLE lab NOLOGIN")
    with mmdb.connect(logins["ann"]) as ann:
        ann.sql("SET ROLE lab")
        with pytest.raises(errors.RightsMissing, match="log in as lab"):
            hourly(ann)


def test_names_mean_what_they_meant_when_it_was_stored(
    pg: Database, logins: dict[str, str]
) -> None:
    pg.sql("CREATE SCHEMA shop CREATE TABLE goods (note text)")
    pg.sql("GRANT ALL ON SCHEMA shop TO ann")
    pg.sql("GRANT ALL ON shop.goods TO ann")
    with mmdb.connect(logins["ann"]) as ann:
        ann.sql("SET search_path = shop")
        ann.sql("SELECT mmdb.schedule('s', 'INSERT INTO goods VALUES (1)', '1 hour')")
    with mmdb.connect(logins["ann"]) as ann:
        assert [row["outcome"] for row in ann.run_due()] == ["done"]
    assert pg.sql("SELECT * FROM shop.goods") == [{"note": "1"}]


def test_a_run_that_another_session_does_is_left_alone(pg: Database, postgres_url: str) -> None:
    hourly(pg)
    key = overview(pg)["schedule_id"]
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(1835889767, %s)", [key])
        assert outcomes(pg, START) == []
    assert outcomes(pg, START) == ["done"] and notes(pg) == ["hourly"]


def test_a_procedure_that_commits_runs_outside_of_a_transaction(pg: Database) -> None:
    pg.sql(
        "CREATE PROCEDURE twice() LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO done VALUES ('a'); COMMIT; INSERT INTO done VALUES ('b'); END $$"
    )
    hourly(pg, "s", "CALL twice()")
    assert outcomes(pg, START) == ["done"] and notes(pg) == ["a", "b"]


def test_a_deferred_constraint_that_fails_at_the_commit_is_a_failure(pg: Database) -> None:
    pg.sql("CREATE TABLE once (x integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    hourly(pg, "s", "INSERT INTO once VALUES (1), (1)")
    assert outcomes(pg, START) == ["failed"]
    assert overview(pg)["last_outcome"] == "failed" and overview(pg)["failures"] == 1


# -- worker processes ---------------------------------------------------------

#: What a run leaves: how often each statement has had its effects. It waits where it is told to.
SLOW = (
    "WITH a AS (INSERT INTO done VALUES ('slow') RETURNING 1)"
    " SELECT pg_sleep((SELECT seconds FROM nap)) FROM a"
)


def test_workers_serve_their_logins_and_one_that_is_killed_leaves_all_or_nothing(
    pg: Database, postgres_url: str, logins: dict[str, str]
) -> None:
    pg.sql("CREATE TABLE nap AS SELECT 600.0 AS seconds")
    pg.sql("GRANT INSERT ON done TO ann")
    pg.schedule("slow", SLOW, "1 day")
    with mmdb.connect(logins["ann"]) as ann:
        ann.schedule("anns", "INSERT INTO done VALUES (current_user)", "1 day")
    sleeping = (
        "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'mmdb schedule %%'"
        " AND wait_event = 'PgSleep'"
    )
    options = ("--slots", "1", "--schedules", logins["ann"])
    with WorkerCommand(postgres_url, *options) as first:
        until(lambda: pg.sql(sleeping), lambda: str(first.said))
        first.signal(signal.SIGKILL)
        first.ends()
    until(lambda: not pg.sql(sleeping))
    pg.sql("UPDATE nap SET seconds = 0")
    with WorkerCommand(postgres_url, *options), WorkerCommand(postgres_url, *options):
        until(lambda: notes(pg) == ["ann", "slow"], lambda: str(notes(pg)))
    # ann's may have been running too when the worker was killed.
    rows = pg.sql("SELECT outcome, tries FROM mmdb.schedule_history ORDER BY tries")
    assert [row["outcome"] for row in rows] == ["done", "done"]
    assert rows[1]["tries"] == 2


def test_a_worker_that_is_stopped_cancels_what_outlasts_the_grace(
    pg: Database, postgres_url: str
) -> None:
    pg.schedule("slow", "SELECT pg_sleep(600)", "1 day")
    running = "SELECT 1 FROM mmdb.schedule_history WHERE outcome = 'begun'"
    with WorkerCommand(postgres_url, "--slots", "1", "--grace", "0.5") as process:
        until(lambda: pg.sql(running), lambda: str(process.said))
        process.signal(signal.SIGTERM)
        assert process.ends() == 0, process.said
    assert overview(pg)["last_outcome"] == "failed"
