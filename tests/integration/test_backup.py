"""What was backed up comes back whole: rows, bytes, numbers and rights; and it trains on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import torch

import mmdb
from mmdb.db.check import Check
from mmdb.db.doctor_schema import broken_objects, orphans, sequences
from mmdb.db.doctor_server import server
from mmdb.db.install import install, is_up_to_date
from mmdb.db.postgres import PostgresConnection
from mmdb.store.verify import verify
from tests import trained
from tests.backups import ArchivingCluster, RestoredCluster, contents, run
from tests.catalogs import described
from tests.cluster import Cluster
from tests.integration.test_privileges import listing

DATABASE = "backed_up"
BEFORE, AFTER = torch.arange(40_000.0).reshape(200, 200), torch.ones(3)
STATE = (
    "INSERT INTO mmdb.state_chunk (part_id, candidate_id, state_hash, ordinal, data)"
    " VALUES (1, 1, 'x', 0, 'y')"
)


@pytest.fixture(scope="module")
def home() -> Iterator[ArchivingCluster]:
    """Yield a server with a database that has a trained run, models and a state in flight."""
    with ArchivingCluster() as running:
        url = running.create_database(DATABASE, "template0")
        install(url)
        with mmdb.connect(url) as db:
            trained.fill(db)
            db.save("before", {"weight": BEFORE})
            db.sql(STATE)
        yield running


def wrong(url: str) -> list[Check]:
    """Return what is wrong with a database's rows, numbers and bytes."""
    connection = PostgresConnection(url)
    try:
        assert is_up_to_date(connection)
        looks = [*orphans(connection), *sequences(connection), *broken_objects(connection)]
        return [check for check in (*looks, *verify(connection)) if not check.ok]
    finally:
        connection.close()


def add_one_of_each(url: str) -> list[int]:
    """Save a model and make a run, as the next numbers come; return the numbers."""
    with mmdb.connect(url) as db:
        db.save("next", {"weight": AFTER})
        db.create_run("next", dataset="points", architecture="linear")
        (row,) = db.sql(
            "SELECT (SELECT max(model_id) FROM mmdb.model) AS model,"
            " (SELECT max(tensor_id) FROM mmdb.tensor) AS tensor,"
            " (SELECT max(run_id) FROM mmdb.run) AS run"
        )
        return list(row.values())


@pytest.mark.parametrize("form", ["custom", "directory"])
def test_a_dump_comes_back_whole_on_another_server(
    form: str, home: ArchivingCluster, cluster: Cluster, template: str, tmp_path: Path
) -> None:
    origin, file = home.url(DATABASE), tmp_path / "dump"
    jobs = ["-j", "2"] if form == "directory" else []
    run(home.server.bin / "pg_dump", "-F", form[0], *jobs, "-f", file, "-d", origin)
    url = cluster.create_database(f"restored_{form}", "template0")
    command: list[str | Path] = [
        home.server.bin / "pg_restore",
        "--exit-on-error",
        "-j",
        "2",
        "-d",
        url,
        file,
    ]
    run(*command)
    assert contents(url) == contents(origin)
    assert described(url) == described(origin)
    assert listing(url) == listing(origin)
    assert wrong(url) == []
    if form == "custom":
        with mmdb.connect(url) as db:
            assert torch.equal(db.tensor("before", "weight"), BEFORE)
        (newest,) = _newest_model(origin)
        assert add_one_of_each(url)[0] == newest + 1
    cluster.drop_database(f"restored_{form}")


def _newest_model(url: str) -> tuple[int]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT max(model_id) FROM mmdb.model").fetchall()
    return (rows[0][0],)


def test_a_base_backup_and_the_log_lead_to_a_moment(home: ArchivingCluster, tmp_path: Path) -> None:
    origin, backup = home.url(DATABASE), home.directory / "backup"
    home.back_up(backup)
    with mmdb.connect(origin) as db:
        db.save("between", {"weight": BEFORE * 2})
        before = contents(origin)
        db.sql("SELECT pg_create_restore_point('between')::text AS lsn")
        db.save("after", {"weight": AFTER})
    home.archive_all()
    with RestoredCluster(home, backup, "between") as restored:
        url = restored.url(DATABASE)
        _is_a_replica(url)
        restored.promote()
        found = contents(url)
        # A table that is not logged is empty after it: hops since the last checkpoint are replayed.
        assert found.pop("mmdb.state_chunk") == "" != before.pop("mmdb.state_chunk")
        assert found == before
        assert wrong(url) == []
        _goes_on(url)


def _is_a_replica(url: str) -> None:
    """Check what can be read before the end of a recovery, and what the doctor says there."""
    connection = PostgresConnection(url)
    try:
        checks = {check.name: check for check in server(connection)}
        assert checks["replica"].detail == "it receives nothing; its replay is paused"
        assert [check for check in verify(connection) if not check.ok] == []
        with pytest.raises(mmdb.MmdbError, match="unlogged"):
            connection.select("SELECT count(*) AS n FROM mmdb.state_chunk")
    finally:
        connection.close()


def _goes_on(url: str) -> None:
    """Check that models are read, runs trained and models saved."""
    with mmdb.connect(url) as db:
        assert torch.equal(db.tensor("between", "weight"), BEFORE * 2)
        assert isinstance(db.recover("search"), torch.nn.Module)
        db.run("later").train(workers=1)
        (row,) = db.sql("SELECT status FROM mmdb.run_progress WHERE run = 'later'")
        assert row["status"] == "finished"
        with pytest.raises(mmdb.errors.ModelNotFound):
            db.tensor("after", "weight")
