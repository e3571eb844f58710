"""A server dies in the middle of a run and its standby is promoted: the run goes on by itself."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.cli import main
from mmdb.db import postgres
from mmdb.db.check import shown
from mmdb.db.postgres import PostgresConnection
from mmdb.train.drive.child_worker import ClientWorker
from mmdb.train.drive.server_worker import PostgresWorker
from tests.bench.servers.failover import Death, bits, create_run, fill, hops
from tests.network.servers import Pair

QUERY = "SELECT 1 AS id, 2.0 AS a, 3.0 AS b"
LABELLED = "SELECT a, b, y FROM points"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Yield two servers with a run that was trained undisturbed."""
    with Pair() as made:
        with mmdb.connect(made.url()) as db:
            fill(db)
            create_run(db, "undisturbed").train(workers=1)
        made.level()
        yield made


def test_a_standby_answers_and_says_that_it_does_not_write(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mmdb.connect(pair.url("standby")) as db:
        assert len(db.predict_query("undisturbed", QUERY)) == 1
        assert db.evaluate("undisturbed", LABELLED)["accuracy"] > 0
        assert db.drift("undisturbed", LABELLED)
        assert db.run("undisturbed").leaderboard()
        assert db.run("undisturbed").explain().estimates
        assert db.lineage("model:undisturbed@1")
        with pytest.raises(errors.ReadOnly, match="The server is a standby"):
            create_run(db, "refused")
    with mmdb.connect(f"duckdb:///{tmp_path / 'zoo.duckdb'}") as db:
        db.pull("undisturbed", from_=pair.url("standby"))
        assert db.recover("undisturbed")
        (origin,) = db.sql("SELECT source FROM mmdb.origin_overview")
        assert pair.primary.password not in origin["source"]
    assert main(["worker", pair.url("standby"), "--once"]) == 1
    assert "The server is a standby" in capsys.readouterr().err
    with pytest.raises(errors.WrongUrl, match="No server of the URL takes writes"):
        mmdb.connect(pair.follower.url("shop") + "?target_session_attrs=read-write")


def test_a_run_outlives_its_server(pair: Pair) -> None:
    with mmdb.connect(pair.url()) as db:
        run = create_run(db, "killed")
        expected = bits(hops(pair.url(), "undisturbed"))
        death = Death(pair, "killed", len(expected) // 2)
        assert run.train(workers=2).failed == 0
    death.join()
    found = hops(pair.url(), "killed")
    assert bits(found) == expected
    assert set(death.seen) <= set(found)


def test_a_session_that_could_write_waits_for_the_promotion(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.renew()
    workers = PostgresWorker("server", pair.url("any")), ClientWorker("client", pair.url("any"))
    for worker in workers:
        worker.open()
    with closing(PostgresConnection(pair.url("any"))) as writer:
        with closing(PostgresConnection(pair.url("standby"))) as reader:
            pair.primary.kill()
            for worker in workers:
                worker.close()
                with pytest.raises(errors.WorkerLost, match="closed"):
                    worker.open()  # as its thread, which is in the midst of it and then closes
                worker.close()
            monkeypatch.setattr(postgres, "RECONNECT_S", 0.0)
            with pytest.raises(errors.ConnectionLost, match="not promoted"):
                writer.reconnect()
            reader.reconnect()
            pair.follower.promote()
            writer.reconnect()
            writer.script("CREATE TABLE written ()")
            with pytest.raises(errors.WrongUrl, match="No server of the URL is a standby"):
                PostgresConnection(pair.url("standby"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "orderly"])
def test_a_call_that_drives_ends_with_its_server_and_another_goes_on(
    pair: Pair, how: signal.Signals
) -> None:
    pair.renew()
    run = f"called_{how.name}"
    with mmdb.connect(pair.url()) as db:
        expected = bits(hops(pair.url(), "undisturbed"))
        create_run(db, run)
        db.sql("DELETE FROM mmdb.setting WHERE name = 'worker_dsn'")
        dsn = {"dsn": shown(pair.url())}
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
    death = Death(pair, run, len(expected) // 2, how=how)
    call = f"CALL mmdb.train('{run}', 2)"
    with psycopg.connect(pair.url(), autocommit=True) as session:
        with pytest.raises(psycopg.OperationalError) as raised:
            session.execute(call)
    assert "terminat" in str(raised.value)
    death.join()
    # An orderly stop waits for the session, which must not wait for a server that takes writes.
    is_shut_down = "database system is shut down" in pair.primary.log_tail()
    assert is_shut_down is (how == signal.SIGINT)
    with psycopg.connect(pair.url(), autocommit=True) as session:
        row = session.execute(call).fetchone()
    assert row is not None and row[-1] == f"{run}@1"
    found = hops(pair.url(), run)
    assert bits(found) == expected
    assert set(death.seen) <= set(found)
