"""Experiment `plan` for real, as small as it can be, and its workloads."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from mmdb.bench.workload import bench_database
from tests.bench.plan.campaign import Campaign
from tests.bench.plan.outcome import Runs
from tests.bench.plan.report import WORKLOADS_BAR, choice_figures
from tests.bench.plan.sizing import LEAST_EPOCHS, MOST_ROWS, flops_of_row, size_for
from tests.bench.plan.speed import Case, speed_figures
from tests.bench.plan.workloads import (
    FAMILIES,
    WarmUp,
    Way,
    Workload,
    choice_workloads,
    iteration_workloads,
    mop_workloads,
)

SMALL = Workload(
    family="mlp",
    sizes=(0,),
    candidates=2,
    partitions=2,
    batch_size=64,
    validates=True,
    warm_ups=(WarmUp(candidates=2, workers=1),),
    ways=(Way(workers=1), Way(strategy="model_average", workers=1)),
)


def test_a_workload_is_planned_and_trained_in_every_way(tmp_path: Path) -> None:
    with bench_database(None) as db:
        journal = Runs(tmp_path / "runs.jsonl")
        campaign = Campaign(database=db, journal=journal, worker_s=0.05, repeats=1)
        outcomes = campaign.run([SMALL])
        assert {(one.strategy, one.workers) for one in outcomes} == {
            ("mop", 1),
            ("model_average", 1),
        }
        for one in outcomes:
            assert one.p10_s < one.p50_s < one.p90_s and one.actual_s > 0
            assert sum(one.took.values()) == pytest.approx(one.workers * one.actual_s, rel=0.01)
            assert set(one.ratings) == {"Amdahl", "Ernest", "Paleo", "Cerebro's rule"}
        for table in ("run", "dataset", "plan", "estimate", "hop"):
            assert db.sql(f"SELECT count(*) AS n FROM mmdb.{table}") == [{"n": 0}], table
        again = Campaign(database=db, journal=Runs(tmp_path / "runs.jsonl"), worker_s=1.0,
                         repeats=1)  # fmt: skip
        assert again.run([SMALL]) == outcomes  # nothing is trained twice
    figures = list(choice_figures(outcomes, is_whole=False))
    assert {"choice, mmdb: right", "choice, Ernest: worst regret"} <= {f.name for f in figures}


def test_a_plan_is_timed() -> None:
    with bench_database(None) as db:
        first, later = speed_figures(db, Case(20, 2, 60.0))
        assert later.holds and len(later.runs) == 3
        assert "20 candidates x 2 partitions" in first.name


def test_workloads_are_enough_and_differ() -> None:
    parts = [list(made()) for made in (mop_workloads, iteration_workloads, choice_workloads)]
    for workloads in parts:
        assert len({str(one) for one in workloads}) == len(workloads)
        assert {one.family for one in workloads} == set(FAMILIES)
    assert len(parts[2]) >= WORKLOADS_BAR
    for one in chain(*parts):
        space = one.space(one.candidates)
        sizes = space[f"architecture.{FAMILIES[one.family].argument}"]
        assert len(space["lr"]) * len(sizes) == one.candidates
        assert len(set(one.ways)) == len(one.ways)
    mop = parts[0]
    assert {one.is_seen(way) for one in mop for way in one.ways} == {True, False}


def test_rows_follow_the_seconds_that_are_wanted() -> None:
    small, large = size_for(SMALL, 0.001), size_for(SMALL, 1000.0)
    assert (small.rows, small.epochs) == (256, LEAST_EPOCHS)
    assert large.epochs > LEAST_EPOCHS and large.rows <= MOST_ROWS
    assert flops_of_row("mlp", 0, 64) == pytest.approx(4 * 64 * 256 + 6 * 256 * 10, rel=0.05)
