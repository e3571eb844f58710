"""PgBouncer in transaction mode: what needs no session works, what does is refused by name."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator

import psycopg
import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.cli import main
from tests.network.pooler import PROGRAM, pooled

pytestmark = pytest.mark.skipif(not PROGRAM, reason="There is no program `pgbouncer`")


@pytest.fixture
def pooled_url(postgres_url: str) -> Iterator[str]:
    """Yield the URL by which a pooler leads to a database."""
    with pooled(postgres_url) as url:
        yield url


QUERY = (
    "SELECT i AS id, i * 0.01 AS a, i % 7 AS b, i % 3 AS y FROM generate_series(1, 600) AS g (i)"
)


def make(db: mmdb.Database) -> None:
    """Create a dataset and a run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `id` is taken for a key
        db.create_dataset("d", QUERY, partitions=2)
    db.create_run("r", dataset="d", architecture="mlp(hidden=[4])", epochs=1)


def test_all_but_training_goes_through_a_pooler(pooled_url: str, postgres_url: str) -> None:
    with mmdb.connect(pooled_url) as db:
        make(db)
        assert db.run("r").explain().estimates
        with mmdb.connect(postgres_url) as beside:
            beside.run("r").train(workers=1)
        assert len(db.predict_query("r", QUERY, key="id")) == 600
        assert db.predict_into("r", QUERY, "predicted", key="id") == 600
        module = torch.nn.Linear(200, 200)
        db.save("kept", module)
        assert torch.equal(db.tensor("kept", "weight"), module.weight)
        db.gc()
    failed: list[BaseException] = []

    def client() -> None:
        try:
            with mmdb.connect(pooled_url) as db:
                for _ in range(3):
                    assert len(db.predict_query("r", QUERY, key="id")) == 600
                    db.recover("r")
        except BaseException as error:
            failed.append(error)

    # More clients than the pool has sessions: each statement is another session's.
    clients = [threading.Thread(target=client) for _ in range(6)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert not failed
    with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as plain:
        for _ in range(6):  # no client's setting is left to the next
            assert plain.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_what_keeps_a_session_is_refused(
    pooled_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with mmdb.connect(pooled_url) as db:
        make(db)
        with pytest.raises(errors.SessionNeeded, match="pooler"):
            db.run("r").train(workers=1)
        assert db.sql("SELECT 1 FROM mmdb.hop") == []
    assert main(["worker", pooled_url, "--once"]) == 1
    assert "MM419" in capsys.readouterr().err
    monkeypatch.setenv("MMDB_POOLER", "session")  # as its owner says of one that keeps sessions
    with mmdb.connect(pooled_url) as db:
        assert db.sql("SHOW lock_timeout")[0]["lock_timeout"] != "0"
