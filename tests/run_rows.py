"""Rows of runs, written by hand, to look at through views and exports."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from mmdb.api import Database

START = datetime(2026, 1, 1, tzinfo=UTC)


def insert(db: Database, table: str, **values: Any) -> None:
    """Insert one row."""
    postgres = db.connection.engine == "postgres"
    marks = [f"%({name})s" if postgres else f"${name}" for name in values]
    columns, places = ", ".join(values), ", ".join(marks)
    db.sql(f"INSERT INTO mmdb.{table} ({columns}) VALUES ({places})", values)


def ids(db: Database, table: str, column: str) -> list[int]:
    """Return the ids of a table's rows, in order."""
    return [r[column] for r in db.sql(f"SELECT {column} FROM mmdb.{table} ORDER BY {column}")]


def add_run(db: Database, name: str, dataset_id: int, **columns: Any) -> None:
    """Insert a run with its metric, direction, epochs and strategy."""
    insert(
        db,
        "run",
        name=name,
        dataset_id=dataset_id,
        architecture="{}",
        search="{}",
        warm_start="off",
        seed=0,
        options="{}",
        created_at=START,
        **columns,
    )


class Writer:
    """Writes candidates of a run and their hops, which take a second each, and keeps the ids."""

    def __init__(self, db: Database, run: str) -> None:
        self.db = db
        (row,) = db.sql(f"SELECT run_id, dataset_id, metric FROM mmdb.run WHERE name = '{run}'")
        self.run_id, self.metric = row["run_id"], row["metric"]
        self.parts = db.sql(
            "SELECT part_id, role FROM mmdb.partition "
            f"WHERE dataset_id = {row['dataset_id']} ORDER BY part_id"
        )
        self.candidates: list[int] = []
        self.seconds = 0

    def candidate(self, config: dict[str, Any], parent: int | None = None) -> int:
        """Write a candidate and return its ordinal; a clone has its parent's first epoch."""
        ordinal = len(self.candidates)
        insert(
            self.db,
            "candidate",
            run_id=self.run_id,
            ordinal=ordinal,
            config=json.dumps(config),
            seed=ordinal,
            parent_id=None if parent is None else self.candidates[parent],
            parent_state=None if parent is None else b"0",
        )
        self.candidates.append(ids(self.db, "candidate", "candidate_id")[-1])
        return ordinal

    def epoch(self, candidate: int, epoch: int, value: float | None, hop_s: float = 1.0) -> None:
        """Write an epoch, its validation too unless `value` is None."""
        for part in self.parts:
            trains = part["role"] == "train"
            if trains or value is not None:
                self.hop(candidate, epoch, part["part_id"], None if trains else value, hop_s)

    def hop(
        self, candidate: int, epoch: int, part_id: int, value: float | None, hop_s: float
    ) -> None:
        """Write a hop of ten rows and two steps; a validation if there is a value."""
        self.seconds += 1
        metrics = {} if value is None or math.isnan(value) else {self.metric: value}
        insert(
            self.db,
            "hop",
            part_id=part_id,
            candidate_id=self.candidates[candidate],
            epoch=epoch,
            ordinal=self.seconds,
            seed=0,
            row_count=10,
            steps=2,
            loss=1.0 / (candidate + 1) + epoch,
            metrics=json.dumps(metrics),
            read_s=0.0,
            load_s=0.0,
            compute_s=hop_s * 0.75,
            store_s=0.0,
            total_s=hop_s,
            state_in=b"",
            state_out=str(epoch).encode(),
            state_bytes=8,
            worker="w",
            node="here",
            device="cpu",
            environment="e",
            started_at=START + timedelta(seconds=self.seconds - 1),
            finished_at=START + timedelta(seconds=self.seconds),
            objective=value,
        )

    def decide(self, *rows: tuple[str, int | None, int | None]) -> None:
        """Append to the run's log (kind, candidate, epoch)."""
        for ordinal, (kind, candidate, epoch) in enumerate(rows):
            insert(
                self.db,
                "decision",
                run_id=self.run_id,
                ordinal=ordinal,
                kind=kind,
                candidate=candidate,
                epoch=epoch,
            )
