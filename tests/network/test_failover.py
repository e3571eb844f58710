"""A server dies in the middle of a run and its standby is promoted: the run goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import mmdb
from mmdb import errors
from mmdb.cli import main
from mmdb.db import postgres
from mmdb.db.postgres import PostgresConnection
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
        with pytest.raises(errors.DatabaseFailed, match="The server is a standby"):
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
    with closing(PostgresConnection(pair.url("any"))) as writer:
        with closing(PostgresConnection(pair.url("standby"))) as reader:
            pair.primary.kill()
            monkeypatch.setattr(postgres, "RECONNECT_S", 0.0)
            with pytest.raises(errors.ConnectionLost, match="not promoted"):
                writer.reconnect()
            reader.reconnect()
            pair.follower.promote()
            writer.reconnect()
            writer.script("CREATE TABLE written ()")
            with pytest.raises(errors.WrongUrl, match="No server of the URL is a standby"):
                PostgresConnection(pair.url("standby"))
