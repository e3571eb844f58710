"""Sessions that die or are stopped in the middle of a hop: none is lost, and no bit changes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.idle_children import IDLE
from mmdb.train.drive.worker import PoolWorker, workers_of
from mmdb.train.hops.orders import Order
from tests.points import NOW, at, fill, logged


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as database:
        fill(database)
        yield database


def worker_processes() -> list[int]:
    """Return the process ids of this process's worker children."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            line = (path.parent / "cmdline").read_text()
        except OSError:
            continue  # it has just ended
        if fields[1] == str(os.getpid()) and "mmdb.train.drive.child" in line:
            found.append(int(path.parent.name))
    return found


def test_a_killed_worker_process_costs_no_hop_and_changes_no_bit(duckdb_url: str) -> None:
    with mmdb.connect(duckdb_url) as db:
        fill(db)
        for name in ("calm", "r"):
            db.create_run(name, dataset="d", architecture="mlp(dropout=0.2)", search=NOW, epochs=2)
        db.run("calm").train(workers=2)
        IDLE.close()  # so that those that are killed are at work
        killed = []

        def kill() -> None:
            for pid in worker_processes():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        assert db.run("r").train(workers=2, watch=at(4, kill)).failed == 0
        assert killed and logged(db, "r") == logged(db, "calm")
        IDLE.close()
        assert worker_processes() == []


def test_a_killed_session_process_is_replaced_at_the_next_hop(duckdb_url: str) -> None:
    with mmdb.connect(duckdb_url) as db:
        fill(db)
        db.create_run("r", dataset="d", architecture="linear", epochs=2)
        (row,) = db.sql("SELECT candidate_id FROM mmdb.leaderboard")
        hop = "SELECT * FROM mmdb.train_hop($part, $candidate)"
        killed: list[int] = []
        for part in next_parts(db, row["candidate_id"]):
            db.sql(hop, {"part": part, "candidate": row["candidate_id"]})
            for pid in worker_processes() if len(killed) < 2 else ():
                os.kill(pid, signal.SIGKILL)
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                killed.append(pid)
        assert len(logged(db, "r")) == 6 and len(killed) == 2


class Ended:
    """A server that ends a session once, before a statement of its own."""

    def __init__(self, patch: pytest.MonkeyPatch, session: PostgresConnection) -> None:
        self.at: int | str = 0  # the statement's number from 1, or what stands in it; 0: none
        self.count = 0
        self._session, self._select = session, PostgresConnection.select
        patch.setattr(PostgresConnection, "select", lambda *given: self._counted(*given))

    def _counted(self, session: PostgresConnection, sql: str, *given: Any) -> list[Row]:
        if session is self._session and self.at:
            self.count += 1
            if self.count == self.at or (isinstance(self.at, str) and self.at in sql):
                self.at = 0
                with psycopg.connect(session.url, autocommit=True) as other:
                    pid = session.raw.info.backend_pid
                    other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        return self._select(session, sql, *given)


def test_a_driver_whose_session_ends_before_or_after_its_loop_trains_on(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db)
        assert isinstance(db.connection, PostgresConnection)
        ended = Ended(monkeypatch, db.connection)
        db.create_run("calm", dataset="d", architecture="linear", epochs=1).train(workers=1)
        best = load("runs").find_best
        verdict = best.sql if db.connection._as_they_are else best.call
        places: tuple[int | str, ...] = (1, 4, 9, verdict)
        for k, place in enumerate(places):
            run = db.create_run(f"r{k}", dataset="d", architecture="linear", epochs=1)
            ended.at, ended.count = place, 0
            assert run.train(workers=1).failed == 0
            assert ended.at == 0, "the session was not ended"
            assert logged(db, run.name) == logged(db, "calm")


def next_parts(db: Database, candidate: int) -> Iterator[int]:
    """Yield the partition whose turn it is, as the hint of a refusal names it, to the end."""
    parts = db.sql("SELECT part_id FROM mmdb.partition_overview ORDER BY part_id")
    wrong = [int(row["part_id"]) for row in parts]
    while True:
        for part in wrong:
            try:
                db.sql(f"SELECT * FROM mmdb.train_hop({part}, {candidate}, 77)")
            except errors.OutOfTurn as error:
                if "all its" in error.message:
                    return
                yield int(error.hint.split()[-1].rstrip("."))
                break


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_hop_that_is_stopped_leaves_nothing_and_gives_the_same_bits_later(
    postgres_url: str, how: str
) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db, rows=3_000)
        slow = {"space": {"batch_size": [1]}}
        for name in ("calm", "r"):
            db.create_run(name, dataset="d", architecture="mlp(dropout=0.2)", search=slow)
        db.sql("SELECT mmdb.warm_up()")
        calm, r = (row["candidate_id"] for row in db.sql("SELECT candidate_id FROM mmdb.candidate"))
        first = next(next_parts(db, calm))
        db.sql(f"SELECT * FROM mmdb.train_hop({first}, {calm})")
        if how == "timeout":
            db.sql("SET statement_timeout = '100ms'")
        else:
            threading.Thread(target=cancel_hop, args=(postgres_url,), daemon=True).start()
        with pytest.raises(errors.Cancelled):
            db.sql(f"SELECT * FROM mmdb.train_hop({first}, {r})")
        db.sql("SET statement_timeout = 0")
        assert logged(db, "r") == []
        db.sql(f"SELECT * FROM mmdb.train_hop({first}, {r})")
        assert [hop[1:] for hop in logged(db, "r")] == [hop[1:] for hop in logged(db, "calm")]
        assert db.run("r").train(workers=1).hops == 2


def cancel_hop(url: str) -> None:
    """Cancel the session that runs `train_hop`, as soon as there is one."""
    with psycopg.connect(url, autocommit=True) as connection:
        while not connection.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE state = 'active' "
            "AND query LIKE '%mmdb.train_hop%' AND pid <> pg_backend_pid()"
        ).fetchall():
            pass


def test_a_stored_hop_called_again_returns_its_row_and_trains_nothing(db: Database) -> None:
    db.create_run("r", dataset="d", architecture="linear", epochs=2)
    (row,) = db.sql("SELECT candidate_id FROM mmdb.leaderboard")
    candidate = row["candidate_id"]
    rows = [
        db.sql(f"SELECT * FROM mmdb.train_hop({part}, {candidate})")
        for part in next_parts(db, candidate)
    ]
    before = logged(db, "r")
    assert len(before) == 6
    for (found,) in rows:
        again = f"SELECT * FROM mmdb.train_hop({found['part_id']}, {candidate}, {found['epoch']})"
        assert db.sql(again) == [found]
    assert logged(db, "r") == before


def test_an_error_of_a_connection_is_no_lost_node_where_there_are_none(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db, pytest.raises(errors.ConnectionLost):
        db.sql("DO $$ BEGIN RAISE 'gone' USING ERRCODE = '08006'; END $$")


class LateCancel:
    """A worker whose first hop is reported only when it has been cancelled: too late."""

    def __init__(self, worker: PoolWorker, cancel: Callable[[int], None]) -> None:
        self._worker, self._ask = worker, cancel  # by a candidate's number
        self._was_cancelled = threading.Event()
        self.name, self.node, self.device = worker.name, worker.node, worker.device

    def open(self) -> None:
        self._worker.open()
        self.node = self._worker.node

    def do(self, order: Order) -> Sequence[Row]:
        rows = self._worker.do(order)
        if not self._was_cancelled.is_set():
            self._ask(order.candidate_id)
            assert self._was_cancelled.wait(30)
        return rows

    def cancel(self) -> None:
        self._worker.cancel()
        self._was_cancelled.set()

    def close(self) -> None:
        self._worker.close()


def test_a_cancel_that_comes_too_late_for_its_hop_ends_no_other_run(postgres_url: str) -> None:
    def cancel(candidate_id: int) -> None:
        with mmdb.connect(postgres_url) as user:
            find = "SELECT run FROM mmdb.leaderboard WHERE candidate_id = %(id)s"
            (row,) = user.sql(find, {"id": candidate_id})
            user.run(row["run"]).cancel()

    with mmdb.connect(postgres_url) as db:
        fill(db)
        for name in ("r1", "r2"):
            db.create_run(name, dataset="d", architecture="linear", epochs=1)
        driver = Driver(db.connection)
        for worker in workers_of(db.connection, 1, mode="client"):
            driver.add_worker(LateCancel(worker, cancel))
        for name in ("r1", "r2"):
            driver.add_run(name)
        driver.drive()
        outcomes = sorted(type(outcome).__name__ for outcome in driver.outcomes.values())
        assert outcomes == ["Cancelled", "Summary"]
