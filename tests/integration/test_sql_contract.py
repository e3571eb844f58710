"""What a user sees of training, on both engines: failures, resumption, and the shapes of data."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.train.schedule import Schedule

NOW = {"space": {"optimizer": ["sgd"], "lr": [0.1, 0.05, 0.01]}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMDB_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as database:
        fill(database)
        yield database


def fill(db: Database, rows: int = 240) -> None:
    """Make a table of two separable classes with all kinds of column, and dataset `d` of it."""
    postgres = db.connection.engine == "postgres"
    raw = "decode(lpad(to_hex(i), 32, '0'), 'hex')" if postgres else None
    db.sql(
        f"""
        CREATE TABLE points AS
        SELECT
            i AS id, (i % 7 - 3)::real AS a, (i % 11 - 5)::real AS b,
            (i % 2)::integer AS y, (i % 7 - 3)::real * 2 + 1 AS price,
            CASE i % 3 WHEN 0 THEN 'red' WHEN 1 THEN 'grün' ELSE 'blue' END AS color,
            CASE WHEN i % 7 > 3 THEN 'high' ELSE 'low' END AS level,
            ARRAY[i % 5, i % 3]::real[] AS v,
            {raw or "unhex(lpad(lower(hex(i)), 32, '0'))"} AS picture
        FROM generate_series(1, {rows}) AS g (i)
        """
    )
    db.create_dataset("d", "SELECT a, b, y FROM points", partitions=2, seed=1)


def logged(db: Database, run: str) -> list[tuple[Any, ...]]:
    """Return every hop of a run in each candidate's order, with the state it left."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, h.part_id, h.loss, h.state_out FROM mmdb.hop h "
        "JOIN mmdb.candidate c ON c.candidate_id = h.candidate_id JOIN mmdb.run r "
        f"ON r.run_id = c.run_id WHERE r.name = '{run}' ORDER BY c.ordinal, h.ordinal"
    )
    return [(*list(row.values())[:-1], bytes(row["state_out"])) for row in rows]


def board(db: Database, run: str) -> dict[Any, Any]:
    """Return each candidate's error by its configuration."""
    return {json.dumps(row["config"]): row["error"] for row in db.run(run).leaderboard()}


def hops_of(schedule: Schedule) -> int:
    visits = schedule.workload.partitions + schedule.workload.validates
    return sum(p.epoch * visits + len(p.visited) for p in schedule.progress)


def at(count: int, action: Callable[[], None]) -> Callable[[Schedule], None]:
    """Return an `on_change` that acts once, when `count` hops are done."""
    acted: list[bool] = []

    def on_change(schedule: Schedule) -> None:
        if hops_of(schedule) >= count and not acted:
            acted.append(True)
            action()

    return on_change


# -- candidates that fail -----------------------------------------------------


def test_a_candidate_whose_loss_is_no_number_fails_and_the_others_go_on(db: Database) -> None:
    search = {"space": {"optimizer": ["sgd"], "lr": [1e30, 0.01]}}
    run = db.create_run("r", dataset="d", architecture="mlp", search=search, epochs=2)
    summary = run.train(workers=2)
    assert (summary.candidates, summary.failed) == (2, 1)
    good, bad = run.leaderboard()
    assert good["config"]["lr"] == 0.01 and good["error"] is None and good["hops"] == 4
    assert float(bad["config"]["lr"]) == 1e30 and "nan" in bad["error"] and bad["rank"] == 2
    (event,) = db.sql("SELECT sqlstate FROM mmdb.candidate_event")
    assert event["sqlstate"] == errors.NotANumber.sqlstate
    (part, *_) = db.sql("SELECT part_id FROM mmdb.partition_overview ORDER BY part_id DESC")
    hop = f"SELECT * FROM mmdb.train_hop({part['part_id']}, {bad['candidate_id']}, 1)"
    with pytest.raises(errors.CandidateStopped, match="nan"):
        db.sql(hop)


@pytest.mark.parametrize(
    ("when", "named"), [("training", "KeyError"), ("validation", "AssertionError")]
)
def test_a_module_that_raises_is_marked_failed_and_the_others_go_on(
    db: Database, when: str, named: str
) -> None:
    db.register_factory("fails", "tests.broken:fails")
    search = {"space": {"architecture.when": [when, "never"]}}
    run = db.create_run("r", dataset="d", architecture="fails", search=search)
    tried = []
    summary = run.train(
        workers=2, on_change=lambda s: tried.append(max(p.failures for p in s.progress))
    )
    assert summary.failed == 1
    assert max(tried) == 2  # tried twice
    assert [row["error"] is None for row in run.leaderboard()] == [True, False]
    (event,) = db.sql("SELECT sqlstate, message FROM mmdb.candidate_event")
    assert event["sqlstate"] == errors.TrainingFailed.sqlstate and named in event["message"]


def test_a_hop_that_raised_once_is_done_again_by_a_fresh_session(
    db: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("notes")
    notes = folder / "notes"
    notes.touch()
    for path in (*folder.parents[:2], folder):  # PostgreSQL's user writes into it
        os.chmod(path, 0o777)
    os.chmod(notes, 0o666)
    db.register_factory("flaky", "tests.broken:flaky")
    for name, file in (("r", notes), ("calm", folder / "none")):
        search = {"space": {"architecture.notes": [str(file)]}}
        run = db.create_run(name, dataset="d", architecture="flaky", search=search)
        assert run.train(workers=1).failed == 0
    first, second = notes.read_text().split()
    assert first != second
    assert logged(db, "r") == logged(db, "calm")


def test_a_run_all_of_whose_candidates_fail_is_failed(db: Database) -> None:
    search = {"space": {"optimizer": ["sgd"], "lr": [1e30, 2e30]}}
    run = db.create_run("r", dataset="d", architecture="mlp", search=search, epochs=2)
    for _ in range(2):
        with pytest.raises(errors.RunFailed, match="'r'"):
            run.train(workers=1)
    assert all(row["error"] for row in run.leaderboard())
    assert db.sql("SELECT model FROM mmdb.model_overview") == []


# -- again, interrupted, twice ------------------------------------------------


def test_training_a_finished_run_again_does_nothing_and_returns_the_same_model(
    db: Database,
) -> None:
    run = db.create_run("r", dataset="d", architecture="linear", search=NOW)
    first, before = run.train(workers=2), logged(db, "r")
    again = run.train(workers=2)
    assert (again.model, again.version, again.hops) == (first.model, first.version, 0)
    assert logged(db, "r") == before
    assert len(db.sql("SELECT model FROM mmdb.model_overview")) == 1


@pytest.mark.parametrize("hops", [1, 5, 11])
def test_an_interrupted_run_goes_on_in_another_session_with_the_same_bits(
    database_url: str, hops: int
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with mmdb.connect(database_url) as db:
        fill(db)
        for name in ("calm", "r"):
            db.create_run(name, dataset="d", architecture="mlp(dropout=0.2)", search=NOW, epochs=2)
        db.run("calm").train(workers=2)
        with pytest.raises(KeyboardInterrupt):
            db.run("r").train(workers=2, on_change=at(hops, interrupt))
        (row,) = db.sql("SELECT status FROM mmdb.run_progress WHERE run = 'r'")
        assert row["status"] == "interrupted"
        assert hops <= len(logged(db, "r")) < 18
    with mmdb.connect(database_url) as db:
        summary = db.run("r").train(workers=1)
        assert summary.hops < 18 and summary.failed == 0
        assert logged(db, "r") == logged(db, "calm")
        (row,) = db.sql("SELECT status FROM mmdb.run_progress WHERE run = 'r'")
        assert row["status"] == "finished"


def session(db: Database, url: str) -> AbstractContextManager[Database]:
    """Return another session; a DuckDB file has one in each process."""
    return mmdb.connect(url) if db.connection.engine == "postgres" else nullcontext(db)


def test_a_second_driver_of_a_run_is_refused(db: Database, database_url: str) -> None:
    run = db.create_run("r", dataset="d", architecture="linear", epochs=2)
    refused = []

    def meddle() -> None:
        with session(db, database_url) as other:
            try:
                other.run("r").train(workers=1)
            except errors.RunBusy as error:
                refused.append(error)

    assert run.train(workers=1, on_change=at(1, meddle)).hops == 6
    assert len(refused) == 1 and "'r'" in refused[0].message


def test_what_one_session_creates_another_one_sees(database_url: str) -> None:
    with mmdb.connect(database_url) as db:
        fill(db)
        db.create_run("r", dataset="d", architecture="linear")
    with mmdb.connect(database_url) as db:
        assert db.run("r").train(workers=1).hops == 3
    with mmdb.connect(database_url) as db:
        assert [row["error"] for row in db.run("r").leaderboard()] == [None]
        assert len(db.predict("r", [1.0, 2.0])) == 2


def test_a_file_is_opened_once_in_a_process(duckdb_url: str) -> None:
    with mmdb.connect(duckdb_url):
        with pytest.raises(errors.DatabaseLocked, match="this process") as raised:
            mmdb.connect(duckdb_url)
        assert "close" in raised.value.hint
    mmdb.connect(duckdb_url).close()
    with mmdb.connect("duckdb://"), mmdb.connect("duckdb://"):
        pass


# -- sessions that die or are stopped -----------------------------------------


def worker_processes() -> list[int]:
    """Return the process ids of this process's worker children."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            line = (path.parent / "cmdline").read_text()
        except OSError:
            continue  # it has just ended
        if fields[1] == str(os.getpid()) and "mmdb.train.child" in line:
            found.append(int(path.parent.name))
    return found


def test_a_killed_worker_process_costs_no_hop_and_changes_no_bit(duckdb_url: str) -> None:
    with mmdb.connect(duckdb_url) as db:
        fill(db)
        for name in ("calm", "r"):
            db.create_run(name, dataset="d", architecture="mlp(dropout=0.2)", search=NOW, epochs=2)
        db.run("calm").train(workers=2)
        killed = []

        def kill() -> None:
            for pid in worker_processes():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        assert db.run("r").train(workers=2, on_change=at(4, kill)).failed == 0
        assert killed and logged(db, "r") == logged(db, "calm")
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
        fill(db, rows=8_000)
        slow = {"space": {"batch_size": [1]}}
        for name in ("calm", "r"):
            db.create_run(name, dataset="d", architecture="mlp(dropout=0.2)", search=slow)
        db.sql("SELECT mmdb.warm_up()")
        calm, r = (row["candidate_id"] for row in db.sql("SELECT candidate_id FROM mmdb.candidate"))
        first = next(next_parts(db, calm))
        db.sql(f"SELECT * FROM mmdb.train_hop({first}, {calm})")
        if how == "timeout":
            db.sql("SET statement_timeout = '300ms'")
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


# -- shapes of data -----------------------------------------------------------


def test_a_regression_is_trained_ranked_and_predicted(db: Database) -> None:
    db.create_dataset("prices", "SELECT a, b, price FROM points", label="price", partitions=2)
    search = {"space": {"lr": [0.05, 0.0001], "loss": ["mse", "huber"], "batch_size": [8]}}
    run = db.create_run("prices", dataset="prices", architecture="linear", search=search, epochs=8)
    assert run.train(workers=2).failed == 0
    ranked = [row["rmse"] for row in run.leaderboard()]
    assert ranked == sorted(ranked) and ranked[0] < 0.5
    assert {row["accuracy"] for row in run.leaderboard()} == {None}
    assert db.predict("prices", {"a": 2.0, "b": 1.0}) == pytest.approx([5.0], abs=1.0)
    found = db.evaluate("prices", "prices")
    assert found["rmse"] == pytest.approx(ranked[0], rel=1e-5) and found["mae"] <= found["rmse"]
    rows = db.predict_query("prices", "SELECT id, a, b FROM points")
    assert len(rows) == 240 and {row["probability"] for row in rows} == {None}


def test_text_labels_and_categories_go_in_and_come_out_as_text(db: Database) -> None:
    query = "SELECT a, color, v, level FROM points"
    db.create_dataset("levels", query, label="level", partitions=2)
    run = db.create_run(
        "levels",
        dataset="levels",
        architecture="mlp",
        search={"space": {"lr": [0.02], "batch_size": [8]}},
        epochs=6,
    )
    run.train(workers=1)
    high, low = db.predict("levels", {"a": 3, "color": "grün", "v": [1, 2]})
    assert high + low == pytest.approx(1) and high > 0.8
    order = db.predict("levels", [3, 0, 1, 0, 1, 2])  # blue, grün, red
    assert order == pytest.approx([high, low])
    rows = db.predict_query("levels", "SELECT id, a, color, v, level FROM points")
    assert {row["prediction"] for row in rows} == {"high", "low"}
    with pytest.raises(errors.InvalidInput, match="'pink'"):
        db.predict("levels", {"a": 3, "color": "pink", "v": [1, 2]})


@pytest.mark.parametrize("architecture", ["cnn(width=2)", "resnet(width=2)"])
def test_bytes_are_pictures_for_a_convolution(db: Database, architecture: str) -> None:
    db.create_dataset(
        "pictures", "SELECT picture, y FROM points", partitions=1, options={"shape": [1, 4, 4]}
    )
    db.create_run("r", dataset="pictures", architecture=architecture).train(workers=1)
    by_text = db.predict("r", {"picture": "00" * 15 + "ff"})
    assert by_text == pytest.approx(db.predict("r", [0.0] * 15 + [1.0]))
    assert sum(by_text) == pytest.approx(1)


#: Names that SQL, a driver or a format string could take for something else.
HOSTILE = ["select", "we ird", "a.b", "A", 'q"q', "100%", "%s", "%(id)s", "{x}", "$1", "q", "s",
           "grün", "'; DROP TABLE points; --", "x" * 60, "ids?", ":a", "@b", "\\",
           "row"]  # fmt: skip


def test_columns_may_have_any_name(db: Database) -> None:
    named = ", ".join(
        f"a * {k + 1} AS {quoted}"
        for k, name in enumerate(HOSTILE)
        for quoted in ('"' + name.replace('"', '""') + '"',)
    )
    query = f'SELECT {named}, y AS "%y\' ", id FROM points'
    mark = "%(q)s::text" if db.connection.engine == "postgres" else "$q"
    made = db.create_dataset("python", query, label="%y' ", partitions=1, validation=0.0)
    percent = "%%" if db.connection.engine == "postgres" else "%"
    (row,) = db.sql(
        f"SELECT * FROM mmdb.create_dataset('sql', {mark}, label => '{percent}y'' ', "
        "partitions => 1, validation => 0)",
        {"q": query},
    )
    assert row["content_hash"] == made.content_hash.hex()
    db.create_run("r", dataset="sql", architecture="linear").train(workers=1)
    given = {name: float(k) for k, name in enumerate(HOSTILE)} | {"id": 1}
    assert sum(db.predict("r", given)) == pytest.approx(1)
    with pytest.raises(errors.InvalidInput, match="DROP TABLE"):
        db.predict("r", {name: value for name, value in given.items() if "DROP" not in name})
    rows = db.predict_query("r", query)
    assert len(rows) == 240
    assert db.sql("SELECT count(*) AS n FROM points") == [{"n": 240}]


def test_a_table_of_1600_columns_is_trained_on(db: Database) -> None:
    wide = ", ".join(f"a + {k} AS c{k}" for k in range(1599))
    db.create_dataset("wide", f"SELECT {wide}, y FROM points", partitions=1, validation=0.0)
    db.create_run("r", dataset="wide", architecture="linear").train(workers=1)
    assert len(db.predict("r", {f"c{k}": 0.5 for k in range(1599)})) == 2


def test_partitions_of_one_row_without_validation_are_trained_on(db: Database) -> None:
    query = "SELECT a, y FROM points WHERE id <= 6"
    db.create_dataset("tiny", query, partitions=6, validation=0.0)
    summary = db.create_run("r", dataset="tiny", architecture="linear").train(workers=1)
    assert summary.hops == 6
    assert math.isfinite(sum(db.predict("r", [1.0])))
    norm = db.create_run("norm", dataset="tiny", architecture="mlp(batch_norm=true)")
    with pytest.raises(errors.RunFailed):
        norm.train(workers=1)
    assert "more than 1 value" in norm.leaderboard()[0]["error"]


def test_a_label_may_be_a_feature_too(db: Database) -> None:
    db.create_dataset("both", "SELECT y AS a, y FROM points", partitions=1)
    db.create_run("r", dataset="both", architecture="linear").train(workers=1)
    assert len(db.predict("r", {"a": 1})) == 2
