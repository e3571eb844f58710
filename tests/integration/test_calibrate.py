"""Calibrations, and the profiles that they leave, on both engines."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any

import duckdb
import psycopg
import pytest

import mmdb
from mmdb.api import Database
from mmdb.cli import main
from mmdb.db.check import shown
from mmdb.db.postgres import PostgresConnection
from mmdb.errors import Cancelled, InvalidOption
from mmdb.plan.profile import machine_profile
from mmdb.plan.profile.measurements import Machine, Measurement, Stamp, Versions
from mmdb.server.outside_server import ChildBackend
from tests.points import fill
from tests.worker_process import until

NOW = datetime(2026, 1, 31, tzinfo=UTC)
HERE = Stamp(
    machine=Machine(node="a", cpu="c", capability="AVX2", cores=2, memory_bytes=2**33),
    versions=Versions(torch="2.6", python="3.11", engine="duckdb"),
    measured_at=NOW,
)
ROWS = [Measurement(kind="product", size=10.0**n, value=10.0 ** (n - 10)) for n in range(5, 9)]
#: Kinds that several workers measure together.
TOGETHER = {"all_reduce_2", "all_reduce_4", "busy_product", "busy_copy", "busy_step", "meet"}


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as opened:
        yield opened


def count(db: Database, table: str) -> int:
    """Return the rows of a table."""
    return int(db.sql(f"SELECT count(*) AS n FROM mmdb.{table}")[0]["n"])


def put_at(db: Database, days: float, rows: list[Measurement] = ROWS, stamp: Stamp = HERE) -> None:
    """Keep rows as of some days ago."""
    machine_profile.keep_profile(
        db.connection, replace(stamp, measured_at=NOW - timedelta(days=days)), rows
    )


# -- measuring ----------------------------------------------------------------


def test_a_calibration_is_kept_and_leaves_nothing_else(db: Database) -> None:
    fill(db)
    rows = db.calibrate(1.0)
    measured = [row for row in rows if row["note"] is None]
    noted = {row["kind"] for row in rows if row["note"]}
    kept = db.sql("SELECT kind, size, value, fingerprint, is_old FROM mmdb.profile_overview")
    assert {(r["kind"], r["size"], r["value"]) for r in kept} == {
        (r["kind"], r["size"], r["value"]) for r in measured
    }
    assert len({r["fingerprint"] for r in kept}) == 1 and not any(r["is_old"] for r in kept)
    kinds = {r["kind"] for r in measured}
    assert {"product", "elementwise", "query", "read", "publish", "load", "checkpoint"} <= kinds
    assert not kinds & noted and noted <= TOGETHER | {"process"}
    assert all(r["value"] > 0 and r["samples"] >= 1 and r["size_unit"] for r in measured)
    assert count(db, "checkpoint") == 0
    # In SQL it is the same, and the last one is the one that is shown.
    said = db.sql("SELECT kind, size, note FROM mmdb.calibrate(budget_s => 1)")
    assert {r["kind"] for r in said if r["note"] is None} == kinds
    assert count(db, "profile") > len(kept)
    shown = db.sql("SELECT DISTINCT measured_at FROM mmdb.profile_overview")
    assert len(shown) == 1


@pytest.mark.parametrize("budget_s", [0, 0.5, -1, 4000, float("nan"), "60", None, True])
def test_an_impossible_budget_is_refused(db: Database, budget_s: Any) -> None:
    with pytest.raises(InvalidOption, match="budget_s"):
        db.calibrate(budget_s)
    if isinstance(budget_s, int) and not isinstance(budget_s, bool):
        with pytest.raises(InvalidOption, match="1 to 3600"):
            db.sql(f"SELECT * FROM mmdb.calibrate({budget_s})")
    if budget_s is None:
        with pytest.raises(InvalidOption, match="budget_s"):
            db.sql("SELECT * FROM mmdb.calibrate(budget_s => NULL)")
    assert count(db, "profile") == 0


def test_what_is_no_order_is_not_measured(db: Database) -> None:
    for detail in ('{"what": "nothing", "budget_s": 1}', '{"what": "busy"}', "[1]"):
        with pytest.raises(InvalidOption):
            db.sql(f"SELECT * FROM mmdb.measure('{detail}')")
    rows = db.sql("""SELECT * FROM mmdb.measure('{"what": "dispatch", "budget_s": 0.1}')""")
    assert {row["kind"] for row in rows} == {"dispatch", "dispatch_backward"}


def allow_workers(url: str) -> None:
    """Let the server open sessions by the login of the test."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %s)", (shown(url),)
        )


def sessions(url: str) -> int:
    """Return how many sessions measure."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'mmdb calibrate' AND datname = current_database()"
        ).fetchone()
    assert row
    return int(row[0])


def test_sessions_of_the_server_are_busy_together(postgres_url: str) -> None:
    allow_workers(postgres_url)
    with mmdb.connect(postgres_url) as db:
        rows = db.calibrate(2.0)
        noted = {row["kind"]: row["note"] for row in rows if row["note"]}
        assert "login" not in "".join(noted.values())
        busy = {row["size"] for row in rows if row["kind"] == "busy_product"}
        if "busy_product" not in noted:  # a machine of one processor has no company
            assert {1.0, 2.0} <= busy
            assert {"all_reduce_2", "meet"} <= {r["kind"] for r in rows if r["note"] is None}
        assert count(db, "state_chunk") == count(db, "checkpoint") == 0
    assert sessions(postgres_url) == 0


@pytest.mark.parametrize("with_workers", [True, False])
def test_a_cancel_ends_it_soon_and_keeps_nothing(postgres_url: str, with_workers: bool) -> None:
    if with_workers:
        allow_workers(postgres_url)
    with mmdb.connect(postgres_url) as db:
        connection = db.connection
        assert isinstance(connection, PostgresConnection)
        cancelled: list[datetime] = []

        def cancel_in_the_middle() -> None:
            if with_workers:
                until(lambda: sessions(postgres_url))
            sleep(2.0 if with_workers else 4.0)  # which loads torch first
            cancelled.append(datetime.now(UTC))
            connection.cancel()

        thread = threading.Thread(target=cancel_in_the_middle)
        thread.start()
        with pytest.raises(Cancelled):
            db.calibrate(120.0)
        ended = datetime.now(UTC)
        thread.join()
        assert ended - cancelled[0] < timedelta(seconds=60)  # it would take 120
        assert count(db, "profile") == count(db, "checkpoint") == 0
    assert sessions(postgres_url) == 0


def test_a_server_without_functions_is_measured_from_outside(postgres_url: str) -> None:
    with closing(PostgresConnection(postgres_url)) as connection:
        db = Database(connection, ChildBackend(connection))
        kinds = {row["kind"] for row in db.calibrate(1.0) if row["note"] is None}
        assert {"product", "checkpoint", "query"} <= kinds
        assert count(db, "profile") > 0


def test_the_command_measures_and_prints(
    installed_duckdb_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--database", installed_duckdb_url]
    assert main(["calibrate", "--budget", "1", "--json", *url]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"kind", "size", "value", "note"} <= rows[0].keys()
    assert main(["calibrate", "--budget", "0", *url]) == 1
    assert "budget_s" in capsys.readouterr().err


# -- what holds ---------------------------------------------------------------


def test_a_profile_is_found_by_its_fingerprint_alone(db: Database) -> None:
    put_at(db, 1)
    known = machine_profile.known_profile(db.connection, HERE)
    assert known.profile.seconds("product", 1e9) == pytest.approx(0.1, rel=0.2)
    assert [text.partition(":")[0] for text in known.warnings] == ["Not measured, and assumed"]
    assert known.profile.stamp == replace(HERE, measured_at=NOW - timedelta(days=1))


def test_each_kind_counts_as_it_was_measured_last(db: Database) -> None:
    put_at(db, 3)
    put_at(db, 2, [replace(row, value=2 * row.value) for row in ROWS[:2]])
    put_at(db, 1, [Measurement(kind="query", size=1.0, value=1e-3)])
    rows, stamp = machine_profile.find_profile(db.connection, HERE)
    assert [(row.kind, row.size) for row in rows] == [
        ("product", 1e5), ("product", 1e6), ("query", 1.0)
    ]  # fmt: skip
    assert [row.value for row in rows[:2]] == pytest.approx([2e-5, 2e-4])
    assert stamp is not None and stamp.measured_at == NOW - timedelta(days=1)


def test_an_old_profile_is_used_with_a_warning(db: Database) -> None:
    put_at(db, 45)
    known = machine_profile.known_profile(db.connection, HERE)
    assert "45 days old" in known.warnings[0] and "mmdb.calibrate" in known.warnings[0]
    assert "product" not in known.profile.assumed
    (row,) = db.sql("SELECT DISTINCT is_old FROM mmdb.profile_overview")
    assert row["is_old"] is True


def test_what_another_version_measured_is_not_used(db: Database) -> None:
    versions = replace(HERE.versions, torch="2.5")
    put_at(db, 1, stamp=replace(HERE, versions=versions))
    known = machine_profile.known_profile(db.connection, HERE)
    (warning,) = known.warnings
    assert "torch was 2.5, is 2.6" in warning and "mmdb.calibrate" in warning
    assert "product" in known.profile.assumed


def test_a_machine_that_changed_is_measured_anew(db: Database) -> None:
    machine = replace(HERE.machine, cores=4)
    put_at(db, 1, stamp=replace(HERE, machine=machine))
    (warning,) = machine_profile.known_profile(db.connection, HERE).warnings
    assert "cores was 4, is 2" in warning


def test_without_a_profile_costs_are_assumed(db: Database) -> None:
    elsewhere = replace(HERE, machine=replace(HERE.machine, node="b"))
    put_at(db, 1, stamp=elsewhere)
    known = machine_profile.known_profile(db.connection, HERE)
    assert known.profile.stamp is None
    assert known.warnings == known.profile.warnings and len(known.warnings) == 1


def test_rows_are_kept_whole_or_not_at_all(db: Database) -> None:
    with pytest.raises((mmdb.MmdbError, duckdb.Error)):  # the batch's end hides what it began
        put_at(db, 1, [*ROWS, ROWS[0]])
    assert count(db, "profile") == 0
    machine_profile.keep_profile(db.connection, HERE, [replace(ROWS[0], assumed=True)])
    assert count(db, "profile") == 0
