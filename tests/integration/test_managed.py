"""A PostgreSQL without PL/Python: everything runs in the clients, with the same rows and bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from sklearn.datasets import load_digits

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.cli import main
from mmdb.db.doctor import examine
from mmdb.db.install import install, install_in, installed_mode
from mmdb.db.postgres import PostgresConnection
from mmdb.db.server_programs import find_server
from mmdb.train.drive.worker import workers_of
from tests.cluster import Cluster
from tests.integration.test_install_cases import copy_without_plpython
from tests.worker_process import WorkerCommand


@pytest.fixture(scope="module")
def managed() -> Iterator[Cluster]:
    """Yield a server that lacks plpython3u."""
    with TemporaryDirectory(prefix="mmdb-server-") as folder, pytest.MonkeyPatch.context() as patch:
        os.chmod(folder, 0o755)  # the server's user is another one
        copied = copy_without_plpython(find_server(), Path(folder))
        patch.setattr("tests.cluster.find_server", lambda: copied)
        with Cluster() as running:
            yield running


@pytest.fixture(scope="module")
def managed_url(managed: Cluster) -> str:
    """Return the URL of the owner of a database on it: no superuser, as providers have it."""
    with psycopg.connect(managed.url(), autocommit=True) as connection:
        secret = managed.password
        connection.execute(f"CREATE ROLE shop LOGIN CREATEROLE PASSWORD '{secret}'".encode())
        connection.execute("CREATE DATABASE shop OWNER shop")
    url = managed.url("shop").replace("postgres:", "shop:", 1)
    assert install(url) == "client"
    return url


@pytest.fixture(scope="module")
def db(managed_url: str) -> Iterator[Database]:
    with mmdb.connect(managed_url) as database:
        fill(database)
        yield database


def fill(db: Database) -> None:
    """Make a dataset."""
    db.sql(
        "CREATE TABLE points AS SELECT i AS id, (i % 7 - 3)::real AS a, (i % 11 - 5)::real AS b, "
        "CASE i % 3 WHEN 0 THEN 'red' ELSE 'blue' END AS color, (i % 7 > 3)::integer AS y "
        "FROM generate_series(1, 240) AS g (i)"
    )
    db.create_dataset("d", "SELECT a, b, color, y FROM points", partitions=2, seed=1)


def create(db: Database, name: str) -> mmdb.Run:
    return db.create_run(
        name,
        dataset="d",
        architecture="mlp(hidden=[8], dropout=0.5)",
        search={"space": {"lr": [0.1, 0.01]}},
        epochs=2,
        seed=3,
    )


def logged(db: Database, run: str) -> list[tuple[Any, ...]]:
    """Return every hop of a run in each candidate's order, with its states and metrics."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, p.ordinal AS part, p.role, h.ordinal AS place, "
        "h.seed, h.row_count, h.steps, h.loss, h.metrics, h.objective, h.state_in, h.state_out, "
        "h.state_bytes, h.node, h.device, h.environment FROM mmdb.hop AS h "
        "JOIN mmdb.candidate AS c USING (candidate_id) JOIN mmdb.run AS r USING (run_id) "
        "JOIN mmdb.partition AS p USING (part_id) WHERE r.name = %(run)s ORDER BY 1, 5",
        {"run": run},
    )
    return [tuple(row.values()) for row in rows]


def answers(db: Database) -> list[object]:
    """Return what the model r says."""
    return [
        db.run("r").leaderboard()[0]["accuracy"],
        db.predict_query("r", "SELECT id, a, b, color FROM points WHERE id < 20"),
        db.evaluate("r", "d"),
    ]


def test_a_run_in_client_mode_has_the_rows_and_bits_of_one_in_the_server(
    db: Database, managed_url: str, postgres_url: str
) -> None:
    summary = create(db, "r").train(workers=2)
    create(db, "served").submit()
    with WorkerCommand(managed_url, "--slots", "1", "--once") as process:
        process.says("mode client")
        assert process.ends() == 0, process.said
    with mmdb.connect(postgres_url) as server:
        fill(server)
        create(server, "r").train(workers=1)
        expected = logged(server, "r")
        assert len(expected) == 2 * 2 * 3  # candidates x epochs x (partitions + validation)
        assert logged(db, "r") == logged(db, "served") == expected
        assert answers(db) == answers(server)
        row = {"a": 1.0, "b": -2.0, "color": "red"}  # alone it goes through numpy in the server
        assert db.predict("r", row) == pytest.approx(server.predict("r", row), abs=1e-6)
    assert summary.hops == 12 and summary.model == "r"


def test_the_readmes_session_goes_there_too(db: Database, managed_url: str) -> None:
    """Its functions are methods, its `CALL mmdb.train` is a worker's, its views answer in SQL."""
    given = load_digits()
    db.sql("CREATE TABLE digits (id integer, pixels real[], digit integer)")
    with psycopg.connect(managed_url) as session, session.cursor() as cursor:
        with cursor.copy("COPY digits FROM STDIN") as copy:
            for k, (row, digit) in enumerate(zip(given.data, given.target, strict=True)):
                copy.write_row((k, (row / 16).tolist(), int(digit)))
    db.create_dataset("digits", "SELECT pixels, digit FROM digits", label="digit")
    sgd = {"name": "sgd", "momentum": 0.9}
    space = {"space": {"lr": [0.1, 0.01], "optimizer": ["adam", sgd]}}
    db.create_run("search", dataset="digits", architecture="mlp", epochs=5, search=space).submit()
    with WorkerCommand(managed_url, "--slots", "2", "--once") as process:
        assert process.ends() == 0, process.said
    assert db.predict_into("search", "SELECT id, pixels FROM digits", "guesses") == 1797
    with psycopg.connect(managed_url) as session:
        best = session.execute(
            "SELECT candidate_id, config ->> 'lr', accuracy FROM mmdb.leaderboard"
            " WHERE run = 'search' ORDER BY rank"
        ).fetchall()
        made = session.execute(
            "SELECT candidate_id, table_name, column_name FROM mmdb.model_lineage"
            " WHERE model = 'search' ORDER BY 3"
        ).fetchall()
        right = session.execute(
            "SELECT avg((g.prediction = d.digit::text)::integer)"
            " FROM guesses AS g INNER JOIN digits AS d USING (id)"
        ).fetchone()
    assert len(best) == 4 and best[0][2] > 0.9
    assert made == [(best[0][0], "digits", "digit"), (best[0][0], "digits", "pixels")]
    assert right is not None and right[0] > 0.9
    down = db.lineage("column:public.digits.pixels", "down")
    assert {"model:search@1", "table:public.guesses"} <= {edge["child"] for edge in down}


def test_what_code_comes_in_is_the_owners_choice_there_too(
    db: Database, managed_url: str, managed: Cluster
) -> None:
    db.sql(f"CREATE ROLE ann LOGIN PASSWORD '{managed.password}'")
    db.sql("GRANT mmdb_trainer TO ann")
    with mmdb.connect(managed_url.replace("shop:", "ann:", 1)) as ann:
        with pytest.raises(errors.RightsMissing):
            ann.register_factory("fails", "tests.broken:fails")
        create(ann, "hers")
        with ann.session() as second:
            assert second.run("hers").leaderboard()[0]["hops"] == 0
    with pytest.raises(errors.FactoryFailed):
        db.register_factory("none", "tests.broken:none")
    db.register_factory("fails", "tests.broken:fails")
    with pytest.raises(errors.AlreadyExists):
        db.register_factory("fails", "tests.broken:fails")


def test_a_function_called_in_sql_is_refused_with_a_way_out(db: Database) -> None:
    with pytest.raises(errors.NotInstalled) as caught:
        db.sql("SELECT * FROM mmdb.submit('r')")
    assert "from Python" in caught.value.hint


def test_the_doctor_finds_nothing_amiss(managed_url: str) -> None:
    checks = {check.name: check for check in examine(managed_url)}
    assert {name for name, check in checks.items() if not check.ok} <= {"durability"}
    assert "not used" in checks["plpython3u"].detail
    assert "server Python" not in checks


def test_mode_server_is_refused_where_there_are_no_functions(
    db: Database, managed_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["worker", managed_url, "--mode", "server", "--once"]) == 1
    assert "MM308" in capsys.readouterr().err
    with pytest.raises(errors.NoServerFunctions):
        workers_of(db.connection, 1, mode="server")
    with pytest.raises(errors.ExtensionMissing):
        install(managed_url, mode="server")


def test_a_second_install_changes_nothing(
    managed_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ([managed_url], [managed_url, "--client"]):
        assert main(["install", *arguments]) == 0
        assert "without functions" in capsys.readouterr().out


# -- a server that has PL/Python ----------------------------------------------


def test_a_database_can_do_without_functions_and_get_them_later(cluster: Cluster) -> None:
    url = cluster.create_database("managed_later", "template0")
    assert install(url, mode="client") == "client"
    assert install(url) == "client"  # as it is
    connection = PostgresConnection(url)
    assert connection.select("SELECT 1 FROM pg_extension WHERE extname = 'plpython3u'") == []
    assert install_in(connection, mode="server") == "server" == installed_mode(connection)
    with pytest.raises(errors.AlreadyExists, match="with its functions"):
        install_in(connection, mode="client")
    assert installed_mode(connection) == "server"
    connection.close()
    cluster.drop_database("managed_later")
