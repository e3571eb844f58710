"""Cancels: of planning, of what computes, and at random moments of everything that takes long."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.db.check import shown
from mmdb.db.scan_duckdb import is_interrupt
from mmdb.plan.auto_strategy import decider
from tests.bench.search.cancels import search
from tests.cluster import Cluster
from tests.points import fill


class Cancel(Exception):
    """What PL/Python raises for a cancel: an Exception like any other, but for its SQLSTATE."""

    sqlstate = "57014"


def cancel() -> None:
    raise Cancel


def test_a_cancel_ends_planning(duckdb_url: str, tmp_path: Path) -> None:
    said: list[str] = []
    flag = tmp_path / "wait"
    with mmdb.connect(duckdb_url) as db:
        fill(db)
        db.register_factory("waits", "tests.slow:waits")
        db.create_run("r", dataset="d", architecture=f"waits(flag='{flag}')", strategy="auto")
        flag.touch()
        with pytest.raises(Cancel):
            decider(say=said.append, on_wait=cancel)(db.connection, "r", None)
    assert not said


def test_a_cancel_ends_a_train_whose_plan_waits(postgres_url: str, cluster: Cluster) -> None:
    flag = cluster.directory / "wait"  # where the server's user may look
    with mmdb.connect(postgres_url) as db:
        fill(db)
        dsn = {"dsn": shown(postgres_url)}
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
        db.register_factory("waits", "tests.slow:waits")
        db.create_run("r", dataset="d", architecture=f"waits(flag='{flag}')", strategy="auto")
    flag.touch()
    with psycopg.connect(postgres_url, autocommit=True) as session:
        raised: list[BaseException] = []

        def train() -> None:
            try:
                session.execute("CALL mmdb.train('r')")
            except psycopg.Error as error:
                raised.append(error)

        thread = threading.Thread(target=train)
        thread.start()
        with psycopg.connect(postgres_url, autocommit=True) as other:
            while not other.execute(
                "SELECT FROM pg_stat_activity WHERE query LIKE '%explain_train(%' "
                "AND state = 'active' AND pid <> pg_backend_pid()"
            ).fetchall():
                assert thread.is_alive(), raised
            other.execute("SELECT pg_cancel_backend(%s)", (session.info.backend_pid,))
        thread.join()
        assert isinstance(raised[0], psycopg.errors.QueryCanceled), raised
        flag.unlink()
        (row,) = session.execute("SELECT count(*) FROM mmdb.hop").fetchall()
    assert row == (0,)


def test_the_next_call_works_after_one_that_did_not_heed_its_cancel(
    postgres_url: str, cluster: Cluster
) -> None:
    flag = cluster.directory / "stays"
    flag.touch()
    with mmdb.connect(postgres_url) as db:
        fill(db)
        db.create_run("r", dataset="d", architecture="linear")
        db.register_factory("waits", "tests.slow:waits")
        parts = db.sql("SELECT part_id FROM mmdb.partition_overview WHERE role = 'train' LIMIT 2")
        db.sql("SELECT mmdb.warm_up()")
        for row in parts:
            db.sql("SET statement_timeout = '500ms'")
            with pytest.raises(errors.Cancelled):
                db.sql(f"SELECT mmdb.create_run('w', 'd', $a$waits(flag='{flag}')$a$)")
            db.sql("RESET statement_timeout")
            assert db.sql("SELECT mmdb.node() IS NOT NULL AS works") == [{"works": True}]
            hop = f"SELECT loss FROM mmdb.train_hop({row['part_id']}, 1)"
            assert db.sql(hop)[0]["loss"] > 0
        assert db.sql("SELECT run FROM mmdb.run_progress") == [{"run": "r"}]


def test_a_thread_left_behind_ends_no_server(postgres_url: str) -> None:
    """What it loads is taken down under it when its session ends: here that is a plain abort."""
    left = """
DO $$
import ctypes, time
from mmdb.server.apart import interruptible

def load_and_stay(stopped):
    library = ctypes.CDLL(None)
    library.__cxa_atexit(ctypes.cast(library.abort, ctypes.c_void_p), None, None)
    time.sleep(60)

interruptible(plpy, load_and_stay)
$$ LANGUAGE plpython3u"""
    with psycopg.connect(postgres_url, autocommit=True) as other:
        with psycopg.connect(postgres_url, autocommit=True) as session:
            pid = session.info.backend_pid
            session.execute("SET statement_timeout = '200ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                session.execute(left)
        while other.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall():
            pass
        other.execute("SELECT 1")  # its server has not ended it


@pytest.mark.parametrize(
    "text",
    [
        "Query interrupted",
        "Invalid Input Error: Python exception occurred while executing the UDF: "
        "RuntimeError: Query interrupted\n",
        "Invalid Input Error: reading the object registered as 'mmdb_batch' as Arrow data failed: "
        "KeyboardInterrupt: ",
    ],
)
def test_a_ctrl_c_is_known_in_what_duckdb_makes_of_it(text: str) -> None:
    assert is_interrupt(duckdb.InvalidInputException(text))
    assert not is_interrupt(duckdb.InvalidInputException(f"{text} is no function"))


def test_statements_cancelled_at_random_leave_nothing_half_done() -> None:
    figures = search(seed=0, cases=5)
    wrong = [f.name for f in figures if f.holds is False and "answered later" not in f.name]
    assert not wrong and len(figures) == 8
