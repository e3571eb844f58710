"""Worker processes that one run leaves to the next, and those that it does not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import mmdb
from mmdb import errors
from mmdb.train.drive.child import ChildProcess
from mmdb.train.drive.idle_children import IDLE


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    IDLE.close()
    yield
    IDLE.close()


def started() -> ChildProcess:
    child = ChildProcess()
    child.warm_up()
    return child


def kept() -> set[int]:
    """Return the process ids of those that are kept, which are taken from where they are."""
    found = set()
    for kind in [*IDLE._kept]:
        while process := IDLE.take(kind):
            found.add(process.pid)
            process.kill()
            process.communicate()
    return found


def test_a_process_serves_the_next_run_of_any_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = started()
    first.close()
    assert first.alive
    for name in "ab":
        # Where the process did not have this process's environment, it would look elsewhere.
        monkeypatch.setenv("MMDB_CACHE_DIR", str(tmp_path / f"cache-{name}"))
        with mmdb.connect(f"duckdb:///{tmp_path}/{name}.duckdb") as db:
            db.sql(
                "CREATE TABLE t AS SELECT i AS a, i % 2 AS y FROM generate_series(1, 40) AS g (i)"
            )
            db.create_dataset("t", "SELECT * FROM t", partitions=2)
            db.create_run("r", dataset="t", architecture="linear").train(workers=1)
    assert kept() == {first.pid}


def test_all_workers_of_a_run_are_kept_that_are_more_than_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    pair = started(), started()
    third = started()
    for child in (*pair, third):
        child.close()
    assert kept() == {child.pid for child in pair}
    assert not third.alive


def test_code_that_people_may_change_is_loaded_anew(tmp_path: Path) -> None:
    with mmdb.connect(f"duckdb:///{tmp_path}/a.duckdb") as db:
        db.register_factory("small", "tests.slow:slow")
        db.sql("CREATE TABLE t AS SELECT i AS a, i % 2 AS y FROM generate_series(1, 40) AS g (i)")
        db.create_dataset("t", "SELECT * FROM t", partitions=2)
        db.create_run("r", dataset="t", architecture="small").train(workers=1)
    assert kept() == set()


def test_what_cannot_serve_again_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    killed = started()
    killed.kill()
    with pytest.raises(errors.WorkerLost):
        killed.warm_up()
    killed.close()
    died = started()
    died.close()
    os.kill(died.pid, signal.SIGKILL)
    os.waitid(os.P_PID, died.pid, os.WEXITED | os.WNOWAIT)
    cold = ChildProcess()  # which has not answered yet
    assert cold.pid not in (killed.pid, died.pid)
    cold.close()
    assert not cold.alive
    first = started()
    first.close()
    monkeypatch.chdir(tmp_path)  # another folder, where imports find other modules
    second = started()
    assert second.pid != first.pid
    second.close()
    assert kept() == {first.pid, second.pid}
