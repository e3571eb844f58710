"""Ten backends killed in one run: it ends by itself, with the bits of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import threading

import psycopg
from psycopg.rows import dict_row

import mmdb
from mmdb.api import Database

KILLS, EPOCHS = 10, 4
SEARCH = {"space": {"lr": [0.1, 0.05, 0.02, 0.01], "optimizer": [{"name": "sgd", "momentum": 0.9}]}}


class Killer(threading.Thread):
    """Kills worker backends that are in the middle of a hop, until it has killed enough."""

    def __init__(self, url: str, kills: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.kills = 0
        self.ended = threading.Event()
        self._url, self._wanted = url, kills
        self._source = random.Random(seed)

    def run(self) -> None:
        while self.kills < self._wanted and not self.ended.wait(self._source.uniform(0.2, 1.0)):
            pid = self._busy_worker()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1

    def _busy_worker(self) -> int | None:
        """Return the process id of a backend that runs `train_hop` now."""
        try:
            with psycopg.connect(self._url, row_factory=dict_row) as connection:
                rows = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'mmdb worker%' "
                    "AND state = 'active' AND query LIKE '%mmdb.train_hop%'"
                ).fetchall()
        except psycopg.OperationalError:
            return None  # the server is recovering from the last one
        return self._source.choice(rows)["pid"] if rows else None


def make_dataset(db: Database) -> None:
    db.sql(
        "CREATE TABLE points AS SELECT random()::real AS a, random()::real AS b, "
        "random()::real AS c, (random() * 3)::integer AS y FROM generate_series(1, 80000)"
    )
    db.create_dataset("points", "SELECT * FROM points", partitions=4)


def create_run(db: Database, name: str) -> mmdb.Run:
    return db.create_run(
        name, dataset="points", architecture="mlp(hidden=[32])", search=SEARCH, epochs=EPOCHS
    )


def logged(db: Database, run: str) -> list[tuple[object, ...]]:
    """Return every hop of a run: what, in which order, and the state it left."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, h.part_id, h.ordinal, h.loss, h.state_in, "
        "h.state_out FROM mmdb.hop h JOIN mmdb.candidate c USING (candidate_id) "
        "JOIN mmdb.run r USING (run_id) WHERE r.name = %(run)s ORDER BY 1, 4",
        {"run": run},
    )
    return [tuple(row.values()) for row in rows]


def test_ten_killed_backends_cost_no_hop_and_change_no_bit(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        make_dataset(db)
        create_run(db, "undisturbed").train(workers=2)
        run = create_run(db, "killed")
        killer = Killer(postgres_url, KILLS, seed=1)
        killer.start()
        summary = run.train(workers=2)
        killer.ended.set()
        killer.join()
        assert killer.kills == KILLS
        failures = db.sql("SELECT candidate_id, message FROM mmdb.candidate_event")
        assert summary.failed == 0, failures
        expected, found = logged(db, "undisturbed"), logged(db, "killed")
        assert len(found) == 4 * EPOCHS * 5  # candidates x epochs x (partitions + validation)
        assert found == expected
