"""What plans learn from hops of other models, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import mmdb
from mmdb.api import Database, Run
from mmdb.db.connection import Row
from mmdb.plan.hop_history import residual_of
from mmdb.plan.profile import machine_profile
from mmdb.plan.profile.measurements import KINDS, Stamp, assumed_rows, stamp_here
from mmdb.plan.step.corrections import LEAST

QUERY = "SELECT i * 0.01 AS a, i % 7 AS b, i % 3 AS y FROM generate_series(1, 400) AS g (i)"
WIDTHS = [[4], [8], [16], [32]]


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as opened:
        opened.create_dataset("points", QUERY, partitions=2)
        yield opened


def create(db: Database, name: str, widths: list[list[int]], **given: list[Any]) -> Run:
    space = {"architecture.hidden": widths, "batch_size": [16, 32]} | given
    return db.create_run(
        name, dataset="points", architecture="mlp", search={"space": space}, epochs=2
    )


def calibrate(db: Database) -> Stamp:
    """Keep a profile as if it had been measured now."""
    stamp = stamp_here(db.connection.engine, datetime.now(UTC))
    rows = [replace(row, assumed=False) for kind in KINDS for row in assumed_rows(kind)]
    machine_profile.keep_profile(db.connection, stamp, rows)
    found = machine_profile.known_profile(db.connection, stamp).profile.stamp
    assert found is not None
    return found


def predictions(db: Database) -> list[Row]:
    return db.sql("SELECT * FROM mmdb.step_prediction ORDER BY candidate_id, profiled_at")


def corrections(rows: Any) -> list[str]:
    return [note for note in rows.notes if "never ran here" in note]


def compute_s(rows: Any) -> float:
    return float(next(row["compute_s"] for row in rows.estimates if row["strategy"] == "mop"))


def test_steps_of_a_new_model_are_corrected_by_what_hops_took(db: Database) -> None:
    stamp = calibrate(db)
    run = create(db, "first", WIDTHS)
    assert corrections(run.explain({"workers": 1})) == []
    run.train(workers=1)
    assert len(predictions(db)) == LEAST
    new = create(db, "new", [[24, 24]])
    plan = new.explain({"workers": 1})
    (note,) = corrections(plan)
    assert f"{LEAST} others" in note
    residual = residual_of(db.connection, stamp, [1.0])
    assert residual is not None and len(residual.known) == LEAST
    kept = predictions(db)
    assert len(kept) == LEAST + 2
    new.explain({"workers": 1})
    assert predictions(db) == kept
    # What another profile missed is not comparable.
    assert residual_of(db.connection, calibrate(db), [1.0]) is None
    later = new.explain({"workers": 1})
    assert corrections(later) == []
    assert compute_s(plan) != pytest.approx(compute_s(later), rel=1e-3)


def test_steps_with_more_than_the_profile_knows_teach_nothing(db: Database) -> None:
    calibrate(db)
    create(db, "summed", [[4]], accumulate=[2]).explain({"workers": 1})
    assert predictions(db) == []


def test_without_a_profile_nothing_is_kept(db: Database) -> None:
    create(db, "first", [[4]]).explain({"workers": 1})
    assert predictions(db) == []
