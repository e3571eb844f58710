"""Handing runs to worker processes: requests, their errors, and the command's wrong uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.cli import main
from mmdb.store.states import in_flight
from mmdb.train.drive.run_requests import (
    add_outcome,
    last_request,
    open_requests,
    priority_of,
    requests_since,
)
from mmdb.train.drive.slot_registry import Pulse, live_workers, register, unregister
from tests.cluster import Cluster


@pytest.fixture(scope="module")
def url(cluster: Cluster, template: str) -> Iterator[str]:
    """Return the URL of a database that no test trains in."""
    yield cluster.create_database("mmdb_service", template)
    cluster.drop_database("mmdb_service")


@pytest.fixture(scope="module")
def shared(url: str) -> Iterator[Database]:
    with mmdb.connect(url) as database:
        fill(database)
        yield database


@pytest.fixture
def postgres(shared: Database) -> Database:
    """Return the database without requests."""
    for table in ("run_outcome", "run_request", "worker", "worker_beat"):
        shared.sql(f"TRUNCATE mmdb.{table} RESTART IDENTITY CASCADE")
    return shared


def fill(db: Database) -> None:
    """Make a dataset and the runs r and s of it."""
    db.sql(
        "CREATE TABLE points AS SELECT (i % 7 - 3)::real AS a, (i % 11 - 5)::real AS b, "
        "(i % 2)::integer AS y FROM generate_series(1, 120) AS g (i)"
    )
    db.create_dataset("d", "SELECT * FROM points", partitions=2, seed=1)
    for name in ("r", "s"):
        db.create_run(name, dataset="d", architecture="linear")


# -- requests -----------------------------------------------------------------


def test_the_last_request_of_a_run_holds(postgres: Database) -> None:
    connection = postgres.connection
    first, second = postgres.run("r").submit(priority=2), postgres.run("s").submit()
    assert [first["request"], first["priority"], first["status"]] == ["submit", 2, "created"]
    assert (first["hops_done"], first["hops_total"]) == (0, 3)
    assert [row["run"] for row in open_requests(connection)] == ["r", "s"]
    assert postgres.run("r").cancel()["request"] == "cancel"
    assert [row["run"] for row in open_requests(connection)] == ["s"]
    assert postgres.run("r").resume()["priority"] == 2  # as before
    assert [row["run"] for row in open_requests(connection)] == ["s", "r"]
    since = requests_since(connection, second["request_id"])
    assert [(row["run"], row["request"]) for row in since] == [("r", "cancel"), ("r", "resume")]
    assert last_request(connection) == since[-1]["request_id"]


def test_a_request_with_an_outcome_is_open_no_more(postgres: Database) -> None:
    asked = postgres.run("r").submit()
    (row,) = open_requests(postgres.connection)
    add_outcome(postgres.connection, asked["request_id"], row["run_id"], errors.RunFailed("all"))
    assert open_requests(postgres.connection) == []
    with pytest.raises(errors.RunFailed, match="all"):
        postgres.run("r").wait()
    postgres.run("r").resume()
    assert postgres.run("r").wait(timeout_s=0) is False


def test_sql_says_the_same(postgres: Database) -> None:
    (row,) = postgres.sql("SELECT * FROM mmdb.submit('r', priority => -1)")
    assert dict(row) == {
        "request_id": 1,
        "run": "r",
        "request": "submit",
        "priority": -1,
        "status": "created",
        "hops_done": 0,
        "hops_total": 3,
    }
    (cancelled,) = postgres.sql("SELECT request, priority FROM mmdb.cancel_run('r')")
    (resumed,) = postgres.sql("SELECT request, priority FROM mmdb.resume_run('r')")
    assert [dict(row) for row in (cancelled, resumed)] == [
        {"request": "cancel", "priority": -1},
        {"request": "resume", "priority": -1},
    ]


def test_a_cancelled_run_is_not_waited_for(postgres: Database) -> None:
    postgres.run("r").submit()
    postgres.run("r").cancel()
    with pytest.raises(errors.Cancelled, match="'r'"):
        postgres.run("r").wait()


def test_a_run_has_the_priority_it_was_asked_for_with_or_that_of_its_options(
    postgres: Database,
) -> None:
    assert priority_of(postgres.connection, "r") == 0
    postgres.run("r").submit(priority=3)
    assert priority_of(postgres.connection, "r") == 3


@pytest.mark.parametrize("priority", [6, -6, 1.5, True, "high"])
def test_a_priority_out_of_range_is_refused(postgres: Database, priority: object) -> None:
    with pytest.raises(errors.InvalidOption, match="priority"):
        postgres.run("r").submit(priority=priority)  # type: ignore[arg-type]
    assert open_requests(postgres.connection) == []


@pytest.mark.parametrize("call", ["submit", "cancel_run", "resume_run"])
def test_an_unknown_run_is_refused(postgres: Database, call: str) -> None:
    with pytest.raises(errors.RunNotFound, match="'nope'"):
        postgres.sql(f"SELECT * FROM mmdb.{call}('nope')")


def test_a_finished_run_is_refused(postgres: Database) -> None:
    run = postgres.create_run("done", dataset="d", architecture="linear")
    run.train(workers=1)
    for ask in (run.submit, run.cancel, run.resume):
        with pytest.raises(errors.RunEnded, match="'done' is finished"):
            ask()
    assert run.wait() is True  # it has no request at all


def test_duckdb_has_no_worker_processes(duckdb_url: str) -> None:
    with mmdb.connect(duckdb_url) as db:
        fill(db)
        for call in ("submit", "resume_run"):
            with pytest.raises(errors.NoWorkers, match="one process"):
                db.sql(f"SELECT * FROM mmdb.{call}('r')")
        (row,) = db.sql("SELECT * FROM mmdb.cancel_run('r')")
        assert row["request"] == "cancel"
        assert live_workers(db.connection) == []


# -- slots --------------------------------------------------------------------


def test_a_slot_lives_while_its_process_holds_its_name_and_beats(
    postgres: Database, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = register(postgres.connection, [slot("box 0", "a")], "box", "server")
    assert live_workers(postgres.connection) == []  # nobody holds the name
    pulse = Pulse(url, "box", lambda: None)
    try:
        assert [row["name"] for row in live_workers(postgres.connection)] == ["box 0"]
        monkeypatch.setattr("mmdb.train.drive.slot_registry.LEASE_S", 0.0)
        assert live_workers(postgres.connection) == []
        monkeypatch.undo()
        unregister(postgres.connection, list(slots))
        assert live_workers(postgres.connection) == []
    finally:
        pulse.stop()


def test_states_in_flight_reach_workers_that_share_no_cache(
    postgres: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = postgres.connection
    for nodes, found in ((["a"], None), (["a", "b"], b"state")):
        slots = register(connection, [slot(n, n) for n in nodes], "box", "client")
        monkeypatch.setenv("MMDB_CACHE_DIR", str(tmp_path / "a"))
        here = in_flight(connection)
        here.write(1, 1, "ab", b"state")
        assert here.read(1, 1, "ab") == b"state"
        monkeypatch.setenv("MMDB_CACHE_DIR", str(tmp_path / "b"))
        assert in_flight(connection).read(1, 1, "ab") == found
        unregister(connection, list(slots))
        here.keep_only(1, ())
        assert in_flight(connection).read(1, 1, "ab") is None


def slot(name: str, node: str) -> Any:
    """Return what the registry wants of a worker."""
    return SimpleNamespace(name=name, node=node, device="cpu")


# -- the command --------------------------------------------------------------


def run_command(*arguments: str) -> int:
    return main(["worker", *arguments])


def test_the_name_of_a_worker_process_is_its_own(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pulse = Pulse(url, "one", lambda: None)
    try:
        assert run_command(url, "--name", "one", "--slots", "1", "--once") == 1
        assert "named 'one' serves" in capsys.readouterr().err
    finally:
        pulse.stop()


@pytest.mark.parametrize(("device", "mode"), [("cuda:7", "server"), ("cuda:7", "client")])
def test_a_device_that_is_not_there_is_wrong_use(
    postgres: Database, url: str, capsys: pytest.CaptureFixture[str], device: str, mode: str
) -> None:
    assert run_command(url, "--device", device, "--mode", mode, "--once") == 2
    assert device in capsys.readouterr().err
    assert postgres.sql("SELECT * FROM mmdb.worker") == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--slots", "0"], "--slots"),
        (["--device", "cuda:0", "--slots", "2"], "--slots"),
        (["--device", "cpu", "--device", "cpu"], "twice"),
        (["--grace", "-1"], "--grace"),
        (["--grace", "nan"], "--grace"),
        (["--grace", "inf"], "--grace"),
        (["--name", "a b"], "a b"),
        (["--device", "abacus", "--once"], "abacus"),
    ],
)
def test_wrong_options_are_wrong_use(
    url: str, capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    assert run_command(url, *arguments) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("duckdb:///zoo.duckdb", "one process"),
        ("shop", "not PostgreSQL"),
        ("postgresql://nobody@127.0.0.1:1/none", "Cannot connect"),
    ],
)
def test_a_wrong_url_is_refused(capsys: pytest.CaptureFixture[str], wrong: str, named: str) -> None:
    assert run_command(wrong) == 1
    assert named in capsys.readouterr().err.replace("\n", " ")


def test_a_database_without_mmdb_is_refused(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = cluster.create_database("service_bare", "template0")
    assert run_command(bare) == 1
    assert "MM404" in capsys.readouterr().err
    cluster.drop_database("service_bare")
