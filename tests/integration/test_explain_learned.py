"""What plans learn from hops of other models, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import mmdb
from mmdb.api import Database, Run
from mmdb.db.check import shown
from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
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


def measured(db: Database) -> int:
    (row,) = db.sql("SELECT measured FROM mmdb.plan ORDER BY plan_id DESC LIMIT 1")
    return int(row["measured"])


def stacked(db: Database, name: str, stack: object) -> Run:
    """Create a run of four candidates of one shape."""
    space = {"space": {"architecture.hidden": [[8]], "lr": [0.1, 0.2, 0.3, 0.4]}}
    options = {"stack": stack}
    return db.create_run(name, dataset="points", architecture="mlp", search=space, options=options)


def test_hops_in_stacks_say_nothing_of_those_without(db: Database) -> None:
    calibrate(db)
    stacked(db, "many", 4).train(workers=1)
    alone = stacked(db, "alone", "never")
    alone.explain({"workers": 1})
    assert measured(db) == 0
    stacked(db, "like", 4).explain({"workers": 1})
    assert measured(db) == 4
    stacked(db, "fewer", 2).explain({"workers": 1})
    assert measured(db) == 0
    # The profile knows nothing of stacks: its predictions of them teach nothing.
    assert {row["run"] for row in predicted(db)} == {"alone"}


def predicted(db: Database) -> list[Row]:
    return db.sql(
        "SELECT r.name AS run FROM mmdb.step_prediction AS p "
        "INNER JOIN mmdb.candidate AS c ON p.candidate_id = c.candidate_id "
        "INNER JOIN mmdb.run AS r ON c.run_id = r.run_id"
    )


def test_what_auto_measures_and_what_a_probe_times_is_planned_by(db: Database) -> None:
    stacked(db, "chosen", "auto").explain({"workers": 1})
    assert measured(db) == 4
    (kept,) = db.sql("SELECT * FROM mmdb.step_time")
    if isinstance(db.connection, PostgresConnection):
        dsn = {"dsn": shown(db.connection.url)}
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
    stacked(db, "probed", 3).explain({"workers": 1, "probe_s": 0.2})
    assert measured(db) == 4
    (_, timed) = db.sql("SELECT * FROM mmdb.step_time ORDER BY candidate_id")
    for column in ("node", "device", "environment", "state_bytes"):
        assert kept[column] == timed[column]


def test_on_a_machine_that_was_never_measured_steps_are_timed_first(db: Database) -> None:
    def band(name: str, **asked: Any) -> float:
        plan = create(db, name, [[8]]).explain({"workers": 1, "strategies": ["mop"], **asked})
        (best, *_) = plan.estimates
        assert best["assumed"]
        return float(best["t_p90"] / best["t_p10"])

    wide = band("assumed", probe_s=0)
    assert measured(db) == 0 and wide > 6
    narrow = band("first")
    if isinstance(db.connection, PostgresConnection):  # nobody has set a login for the probe
        assert measured(db) == 0 and narrow == wide
    else:
        assert measured(db) == 2 and narrow < wide / 2
