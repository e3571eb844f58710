"""The server crashes under a worker process: it comes back by itself, and no bit is another."""

from __future__ import annotations

import signal
from typing import Any

import mmdb
from mmdb.api import Database
from mmdb.db.install import install
from tests.cluster import Cluster
from tests.worker_process import WorkerCommand, until

SEARCH = {"space": {"optimizer": ["sgd"], "lr": [0.1, 0.01], "batch_size": [24]}}


def prepare(db: Database, password: str) -> None:
    """Make two equal runs, and a role that may train and nothing else."""
    db.sql(
        "CREATE TABLE points AS SELECT (i % 7 - 3)::real AS a, (i % 11 - 5)::real AS b, "
        "(i % 2)::integer AS y FROM generate_series(1, 240) AS g (i)"
    )
    db.create_dataset("d", "SELECT * FROM points", partitions=2, seed=1)
    db.register_factory("slow", "tests.slow:slow")
    for name in ("crashed", "calm"):
        db.create_run(name, dataset="d", architecture="slow(seconds=0.05)", search=SEARCH, epochs=2)
    db.sql(f"CREATE ROLE ann LOGIN PASSWORD '{password}'")
    db.sql("GRANT mmdb_trainer TO ann")


def logged(url: str, run: str) -> list[tuple[Any, ...]]:
    """Return a run's hops, which the owner of the database reads."""
    query = (
        "SELECT c.ordinal AS candidate, h.epoch, h.part_id, h.loss, h.state_out FROM mmdb.hop AS h "
        "JOIN mmdb.candidate AS c USING (candidate_id) JOIN mmdb.run AS r USING (run_id) "
        "WHERE r.name = %(run)s ORDER BY 1, h.ordinal"
    )
    with mmdb.connect(url) as owner:
        rows = owner.sql(query, {"run": run})
    return [tuple(row.values()) for row in rows]


def test_a_crash_of_the_server_costs_no_hop_and_changes_no_bit() -> None:
    with Cluster() as cluster:
        install(cluster.url())
        with mmdb.connect(cluster.url()) as db:
            prepare(db, cluster.password)
        url = cluster.url().replace("postgres:", "ann:", 1)
        with WorkerCommand(url, "--slots", "2") as process:
            process.says("dispatches")
            with mmdb.connect(url) as db:
                db.run("crashed").submit()
                until(lambda: len(logged(cluster.url(), "crashed")) >= 3)
            cluster.halt(signal.SIGQUIT)
            cluster.start()
            with mmdb.connect(url) as db:
                assert db.run("crashed").wait(timeout_s=300), process.said
                db.run("calm").submit()
                assert db.run("calm").wait(timeout_s=300), process.said
                assert logged(cluster.url(), "crashed") == logged(cluster.url(), "calm")
                assert len(logged(cluster.url(), "calm")) == 2 * 2 * 3
            process.signal(signal.SIGTERM)
            assert process.ends() == 0, process.said
