"""Plans of runs: before, beside and after training, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mmdb
from mmdb.api import Database, Run
from mmdb.errors import DatasetDropped, InvalidOption, RunNotFound
from mmdb.plan.cost import EXECUTED, PHASES

QUERY = "SELECT i * 0.01 AS a, i % 7 AS b, i % 3 AS y FROM generate_series(1, 600) AS g (i)"
GRID = {"space": {"lr": [0.1, 0.01], "batch_size": [16, 32]}}


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as opened:
        opened.create_dataset("points", QUERY, partitions=3)
        yield opened


def create(db: Database, name: str = "search", **given: Any) -> Run:
    options: dict[str, Any] = {"search": GRID, "epochs": 2} | given
    return db.create_run(name, dataset="points", architecture="mlp(hidden=[8])", **options)


def test_a_plan_ranks_every_way_of_training(db: Database) -> None:
    plan = create(db).explain()
    assert [row["rank"] for row in plan.estimates] == [*range(1, len(plan.estimates) + 1)]
    assert {row["strategy"] for row in plan.estimates if row["executed"]} >= {"mop", "task"}
    assert all(row["executed"] == (row["strategy"] in EXECUTED) for row in plan.estimates)
    places = [(not r["feasible"], not r["executed"], r["t_p50"]) for r in plan.estimates]
    assert places == sorted(places) and plan.estimates[0]["executed"]
    possible = [row for row in plan.estimates if row["feasible"]]
    for row in possible:
        assert 0 < row["lower_bound"] <= row["t_p50"] * 1.001
        assert row["t_p10"] < row["t_p50"] < row["t_p90"]
        phases = sum(row[f"{phase}_s"] for phase in PHASES)
        assert phases == pytest.approx(row["workers"] * row["t_p50"], rel=0.01)
    assert plan.chosen is not None and plan.chosen["strategy"] == "mop"
    assert all(row["why_not"] for row in plan.estimates if not row["feasible"])


def test_without_a_profile_a_plan_says_so(db: Database) -> None:
    plan = create(db).explain()
    assert all(row["assumed"] for row in plan.estimates)
    assert any("mmdb.calibrate" in note for note in plan.notes)
    assert "mmdb.calibrate" in str(plan) and "Plan of run search" in str(plan)


def test_a_plan_is_kept_and_joined_with_what_the_run_took(db: Database) -> None:
    run = create(db)
    run.explain({"workers": 2})
    assert db.sql("SELECT * FROM mmdb.plan_outcome") == []
    run.train(workers=2)
    (outcome,) = db.sql("SELECT * FROM mmdb.plan_outcome")
    foreseen = db.sql("SELECT * FROM mmdb.estimate WHERE plan_id > 1")  # made before the first hop
    (row,) = [row for row in foreseen if row["rank"] == outcome["rank"]]
    assert outcome["plan_id"] == row["plan_id"] and outcome["t_p50"] == row["t_p50"]
    assert row["chosen"]
    assert (outcome["strategy"], outcome["workers"]) == ("mop", 2)
    assert outcome["hops"] == outcome["actual_hops"] == 4 * 2 * 4
    assert outcome["is_comparable"]
    spent = ("compute", "read", "hop", "validation", "idle")
    actual = sum(outcome[f"actual_{phase}_s"] for phase in spent)
    assert actual == pytest.approx(2 * outcome["actual_s"], rel=0.01)
    (score,) = db.sql("SELECT * FROM mmdb.plan_accuracy")
    assert score["runs"] == 1 and score["mean_error"] == pytest.approx(abs(score["error"]))
    after = run.explain()
    took = [row for row in after if row["actual_s"] is not None]
    assert [row["rank"] for row in took] == [outcome["rank"]]
    assert "it took" in str(after)


def test_hops_that_were_measured_are_what_a_plan_rests_on(db: Database) -> None:
    create(db).train(workers=1)
    for name, hop_s in (("quick", 0.5), ("slow", 2.0)):  # as if each hop had taken so long
        db.sql(f"UPDATE mmdb.hop SET compute_s = {hop_s}, total_s = {hop_s}, read_s = 0")
        plan = create(db, name, seed=1).explain({"workers": 1})
        *_, kept = db.sql("SELECT candidates, measured FROM mmdb.plan ORDER BY plan_id")
        assert (kept["candidates"], kept["measured"]) == (4, 4)
        (mop,) = [row for row in plan.estimates if row["strategy"] == "mop"]
        # Four candidates, two epochs, three partitions and the rows that validate.
        assert mop["compute_s"] == pytest.approx(4 * 2 * 3 * hop_s, rel=0.01)
        assert mop["validation_s"] == pytest.approx(4 * 2 * hop_s, rel=0.05)
        assert mop["t_p50"] == pytest.approx(4 * 2 * 4 * hop_s, rel=0.05)


def test_a_run_under_way_rests_on_its_own_hops(db: Database) -> None:
    given: dict[str, Any] = {"search": {"space": {"lr": [0.1, 0.01], "batch_size": 16}}}
    create(db, "before", **given).train(workers=1)
    db.sql("UPDATE mmdb.hop SET compute_s = 0.5, total_s = 0.5, read_s = 0")
    run = create(db, seed=1, options={"order": "free"}, **given)
    slow = "UPDATE mmdb.hop SET compute_s = 2, total_s = 2, read_s = 0 WHERE candidate_id > 2"

    def hop_s() -> float:
        (mop,) = run.explain({"workers": 1, "strategies": ["mop"]}).estimates
        return float(mop["compute_s"]) / (2 * 2 * 3)

    assert hop_s() == pytest.approx(0.5, rel=0.01)
    for part in db.sql("SELECT part_id FROM mmdb.partition WHERE role = 'train'"):
        db.sql(f"SELECT loss FROM mmdb.train_hop({part['part_id']}, 3)")
    db.sql(slow)
    assert hop_s() == pytest.approx(2.0, rel=0.01)
    run.train(workers=1)
    db.sql(slow)
    assert 0.5 < hop_s() < 1.5  # of runs that have ended, the median counts


def test_a_cluster_that_does_not_exist_is_simulated(db: Database) -> None:
    cluster = {"nodes": 1000, "slots": 8, "link": {"latency_s": 5e-5, "bytes_per_s": 1e10}}
    plan = create(db).explain({"cluster": cluster, "rows": 20})
    assert all(row["simulated"] for row in plan.estimates)
    assert any("described" in note for note in plan.notes)
    assert max(row["workers"] for row in plan.estimates) > 2


def test_in_sql_a_plan_is_a_table(db: Database) -> None:
    create(db)
    rows = db.sql(
        "SELECT strategy, workers, t_p50 FROM mmdb.explain_train('search') "
        "WHERE rank = 1 AND feasible"
    )
    assert len(rows) == 1
    asked = """SELECT count(*) AS n FROM mmdb.explain_train(
        'search', options => '{"strategies": ["mop"]}') WHERE strategy <> 'mop'"""
    assert db.sql(asked)[0]["n"] == 0


def test_what_cannot_be_planned_is_refused(db: Database) -> None:
    run = create(db)
    with pytest.raises(InvalidOption, match="no option 'nodes'"):
        run.explain({"nodes": 3})
    with pytest.raises(InvalidOption, match="more than 1000 nodes"):
        run.explain({"cluster": {"nodes": 1001}})
    with pytest.raises(InvalidOption, match="slots"):
        run.explain({"cluster": {"slots": 0}})
    with pytest.raises(RunNotFound):
        Run(db, "nothing").explain()
    assert db.sql("SELECT * FROM mmdb.plan") == []
    db.drop_dataset("points", force=True)
    with pytest.raises(DatasetDropped):
        run.explain()


def test_a_machine_that_is_too_small_says_why_not(db: Database) -> None:
    plan = create(db).explain({"cluster": {"nodes": 2, "slots": 1, "memory_bytes": 1e6}})
    assert not any(row["feasible"] for row in plan.estimates)
    assert "need" in plan.estimates[0]["why_not"]
    assert any("Nothing that mmdb executes is possible" in note for note in plan.notes)
