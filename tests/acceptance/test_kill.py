"""Backends killed all over a run: it ends by itself, with the bits of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import threading

import psycopg
from psycopg.rows import dict_row

import mmdb
from mmdb.api import Database

KILLS, EPOCHS, PARTITIONS = 2, 3, 3
SEARCH = {"space": {"lr": [0.1, 0.05, 0.02, 0.01], "optimizer": [{"name": "sgd", "momentum": 0.9}]}}
HOPS = 4 * EPOCHS * (PARTITIONS + 1)  # candidates x epochs x (partitions + validation)


class Killer(threading.Thread):
    """Kills worker backends in the middle of a hop, all over a run; two shares of it are spare."""

    def __init__(self, url: str, run: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.kills = 0
        self.ended = threading.Event()
        self._url, self._run = url, run
        self._source = random.Random(seed)

    def run(self) -> None:
        while self.kills < KILLS and not self.ended.wait(self._source.uniform(0.01, 0.05)):
            pid = self._busy_worker(after=(self.kills + 1) * HOPS // (KILLS + 2))
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1

    def _busy_worker(self, after: int) -> int | None:
        """Return the process id of a backend that runs `train_hop`, once so many hops are done."""
        try:
            with psycopg.connect(self._url, row_factory=dict_row) as connection:
                rows = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'mmdb worker%%' "
                    "AND state = 'active' AND query LIKE '%%mmdb.train_hop%%' AND %(after)s <= "
                    "(SELECT hops_done FROM mmdb.run_progress WHERE run = %(run)s)",
                    {"after": after, "run": self._run},
                ).fetchall()
        except psycopg.OperationalError:
            return None  # the server is recovering from the last one
        return self._source.choice(rows)["pid"] if rows else None


def make_dataset(db: Database) -> None:
    db.sql(
        "CREATE TABLE points AS SELECT random()::real AS a, random()::real AS b, "
        "random()::real AS c, (random() * 3)::integer AS y FROM generate_series(1, 30000)"
    )
    db.create_dataset("points", "SELECT * FROM points", partitions=PARTITIONS)


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


def test_killed_backends_cost_no_hop_and_change_no_bit(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        make_dataset(db)
        create_run(db, "undisturbed").train(workers=2)
        run = create_run(db, "killed")
        killer = Killer(postgres_url, "killed", seed=1)
        killer.start()
        summary = run.train(workers=2)
        killer.ended.set()
        killer.join()
        assert killer.kills == KILLS
        failures = db.sql("SELECT candidate_id, message FROM mmdb.candidate_event")
        assert summary.failed == 0, failures
        expected, found = logged(db, "undisturbed"), logged(db, "killed")
        assert len(found) == HOPS
        assert found == expected
