"""A table that tests train on, and what its runs logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from mmdb.api import Database
from mmdb.train.watch import Watch

#: Three candidates.
NOW = {"space": {"optimizer": ["sgd"], "lr": [0.1, 0.05, 0.01]}}


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


class Acting(Watch):
    """Acts once, when `count` hops of the run are done; notes which candidates' hops failed."""

    def __init__(self, count: int = 0, action: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._count, self._action, self._has_acted = count, action, False
        self._doing: dict[str, tuple[str, int]] = {}
        self.failures: Counter[tuple[str, int]] = Counter()  # by run and candidate's ordinal

    def hop_started(
        self, run: str, worker: str, candidate: int, epoch: int, part: int, at: float
    ) -> None:
        super().hop_started(run, worker, candidate, epoch, part, at)
        self._doing[worker] = run, candidate

    def hop_done(self, worker: str, at: float, objective: float | None = None) -> None:
        super().hop_done(worker, at, objective)
        self._doing.pop(worker)
        done = sum(run.hops_done for run in self.snapshot(at).runs)
        if done >= self._count and not self._has_acted:
            self._has_acted = True
            self._action()

    def hop_failed(self, worker: str, at: float) -> None:
        super().hop_failed(worker, at)
        if worker in self._doing:
            self.failures[self._doing.pop(worker)] += 1


def at(count: int, action: Callable[[], None]) -> Watch:
    """Return a watch that acts once, when `count` hops are done."""
    return Acting(count, action)
