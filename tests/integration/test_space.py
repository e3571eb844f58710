"""What a long run leaves behind while it goes on: bounded, however many hops it has done."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import mmdb
from mmdb.api import Database
from mmdb.db.queries import load
from mmdb.train.watch import Watch
from tests.cluster import Cluster
from tests.points import fill

HOPS = 1000
#: Two hidden layers that make a state of 0.5 MB with Adam's moments.
ARCHITECTURE = "mlp(hidden=[200, 200])"


class Measuring(Watch):
    """Calls `measure` every so many hops."""

    def __init__(self, every: int, measure: Any) -> None:
        super().__init__()
        self._every, self._measure, self._hops = every, measure, 0

    def hop_done(self, worker: str, at: float, objective: float | None = None) -> None:
        super().hop_done(worker, at, objective)
        self._hops += 1
        if self._hops % self._every == 0:
            self._measure()


def states_of(cluster: Cluster, db: Database) -> Path:
    """Return the folder in which the server's sessions leave states for each other."""
    (owner,) = db.connection.rows(load("states").find_database)
    (cache,) = cluster.directory.glob("mmdb-cache-*")  # its TMPDIR
    return cache / "states" / str(owner["name"])


def size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder, some of which sessions delete meanwhile."""
    size = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size += file.stat().st_size if file.is_file() else 0
    return size


@pytest.mark.parametrize("checkpoint", ["epoch", "hop"])
def test_states_take_a_bounded_space(cluster: Cluster, postgres_url: str, checkpoint: str) -> None:
    """At most (candidates x 2 + workers) states on their way, files and tables together.

    Durable ones, two live for each candidate and what is dead and not yet vacuumed, stop growing.
    """
    candidates, workers, parts = 3, 2, 2
    hops = HOPS if checkpoint == "epoch" else HOPS // 8
    with mmdb.connect(postgres_url) as db, db.session() as other:
        fill(db)
        run = db.create_run(
            "long",
            dataset="d",
            architecture=ARCHITECTURE,
            search={"space": {"lr": [0.001, 0.002, 0.003], "batch_size": 128}},
            epochs=hops // (candidates * (parts + 1)) + 1,
            options={"checkpoint": checkpoint},
        )
        durable, in_flight, on_disk = [], [], []

        def measure() -> None:
            (row,) = other.sql(
                "SELECT sum(pg_total_relation_size(t)) FILTER (WHERE t::text ~ 'check') AS durable,"
                " sum(pg_total_relation_size(t)) FILTER (WHERE t::text !~ 'check') AS in_flight"
                " FROM unnest(ARRAY['mmdb.state_chunk', 'mmdb.checkpoint',"
                " 'mmdb.checkpoint_chunk']::regclass[]) AS t"
            )
            files = size_of(states_of(cluster, db))
            on_disk.append(files)
            durable.append(int(row["durable"]))
            in_flight.append(int(row["in_flight"]) + files)

        summary = run.train(workers=workers, watch=Measuring(20, measure))
        (row,) = db.sql("SELECT max(state_bytes) AS bytes FROM mmdb.hop_timeline")
    assert summary.hops >= hops
    assert max(in_flight) <= (candidates * 2 + workers) * row["bytes"], in_flight
    assert max(on_disk) > 0  # else this looked in another folder than the server's
    half = len(durable) // 2
    # However late it vacuums: each hop leaves a state, which would be ten times as much.
    assert max(durable[half:]) <= 2 * max(durable[:half]), durable
