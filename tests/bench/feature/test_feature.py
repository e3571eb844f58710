"""Experiment `feature` for real, as small as it can be, and how runs are compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from mmdb.bench.workload import bench_database
from mmdb.graph.cut.cut import cuts_of, prefix_of
from tests.bench.feature.alone import Alone
from tests.bench.feature.budgets import feature_bytes
from tests.bench.feature.choice import AUTO, OUTCLASSED, Tried, in_turn, seconds_of
from tests.bench.feature.compare import (
    TOLERANCE,
    equal_bits,
    largest_difference,
    largest_gap,
    swapped,
    within,
)
from tests.bench.feature.fused import Case, measure_fused
from tests.bench.feature.networks import FEATURES, tower
from tests.bench.feature.subject import HEADS, Subject, points, subject_of
from tests.bench.feature.workloads import COLUMNS, WORKLOADS


@pytest.fixture(scope="module")
def subject() -> Iterator[Subject]:
    with bench_database(None) as database, subject_of(database) as made:
        yield made


@pytest.mark.parametrize("choice", ["memory", "stored"])
def test_a_plain_loop_gives_the_bits_of_a_run(subject: Subject, choice: str) -> None:
    dataset = subject.dataset(f"rows_{choice}", (8,), 120)
    factory = subject.factory("tests.bench.feature.networks:tower")
    run = subject.run(
        choice,
        dataset,
        {"factory": factory, "arguments": {"width": 16, "depth": 1, "features": 8}},
        {"freeze_up_to": FEATURES, "head": list(HEADS[:2])},
        epochs=2,
        features={"choice": choice},
    )
    run.train(workers=1)

    assert subject.choices(run) == {choice}
    assert sorted(subject.objectives(run)) == [0, 1]
    alone = Alone(subject, run)
    for head in alone.heads:
        trained = subject.weights(head.spec.candidate_id)
        assert equal_bits(alone.on_features(head), trained)
        assert alone.features(head)[1]
        assert largest_difference(alone.end_to_end(head), trained) <= TOLERANCE


def test_fused_hops_are_timed_beside_what_they_share(subject: Subject) -> None:
    case = Case(width=16, depth=1, features=8, rows=64, heads=HEADS[:2])
    figures = list(measure_fused(subject, [case]))
    assert all(figure.value > 0 for figure in figures)
    assert [figure for figure in figures if figure.bar]


def test_a_pair_changes_places_only_where_it_is_no_tie() -> None:
    ours = {0: 1.0, 1: 2.0, 2: 2.0 + TOLERANCE / 2}
    assert swapped(ours, ours) == 0
    assert swapped(ours, {0: 1.0, 1: 2.0 + TOLERANCE / 2, 2: 2.0}) == 0
    assert swapped(ours, {0: 3.0, 1: 2.0, 2: 2.0}) == 2


def test_a_candidate_that_one_run_lacks_is_a_gap_without_bound() -> None:
    assert largest_gap({0: 1.0, 1: 2.0}, {0: 1.5, 1: 2.0}) == 0.5
    assert largest_gap({0: 1.0}, {0: 1.0, 1: 2.0}) == float("inf")
    assert largest_gap({}, {}) == float("inf")
    assert within("", TOLERANCE).holds
    assert not within("", 2 * TOLERANCE).holds


def test_weights_are_equal_only_to_the_last_bit() -> None:
    ours = {"weight": torch.ones(2)}
    near = {"weight": torch.tensor([1.0, 1.0 + 1e-6])}
    assert equal_bits(ours, {"weight": torch.ones(2)})
    assert not equal_bits(ours, near)
    assert not equal_bits(ours, {})
    assert 0 < largest_difference(ours, near) < 2e-6
    assert largest_difference(ours, {}) == float("inf")


def test_runs_that_came_to_the_same_choices_count_together() -> None:
    tried = [
        Tried(asked="memory", done=("memory",), seconds=[1.0, 5.0]),
        Tried(asked="stored", done=("stored",), seconds=[3.0]),
        Tried(asked="auto", done=("memory",), seconds=[2.0]),
    ]
    assert seconds_of(tried) == {("memory",): 2.0, ("stored",): 3.0}


def test_ways_that_are_far_behind_are_not_tried_again() -> None:
    best = Tried(asked="stored", seconds=[1.0])
    behind = Tried(asked="streamed", seconds=[OUTCLASSED + 0.1])
    chosen = Tried(asked=AUTO, seconds=[OUTCLASSED + 0.2])
    tried = [best, behind, chosen]
    assert in_turn(tried, 0) == tried
    assert in_turn(tried, 1) == [chosen, best]
    assert in_turn(tried, 2) == [best, chosen]


def test_only_arrays_of_features_count_in_a_cache(tmp_path: Path) -> None:
    array = np.zeros(1000, np.float32)
    (tmp_path / "raw.1-a.part").mkdir()
    (tmp_path / "new.1-a.part").mkdir()
    for file in ("raw.x.npy", "old.x.npy", "old.y.npy", "raw.1-a.part/x.npy", "new.1-a.part/x.npy"):
        np.save(tmp_path / file, array)
    assert feature_bytes(tmp_path, frozenset({"raw"})) == 2 * array.nbytes


def test_workloads_are_many_and_their_cuts_are_there() -> None:
    assert len({str(workload) for workload in WORKLOADS}) == len(WORKLOADS) >= 12
    for workload in WORKLOADS:
        module = tower((COLUMNS,), 10, **workload.arguments)
        assert set(workload.cuts) <= set(cuts_of(module))


def test_a_tower_has_its_features_at_the_cut() -> None:
    layers = prefix_of(tower((2, 4), 10, width=16, depth=2, features=5), FEATURES)
    assert layers(torch.zeros(3, 2, 4)).shape == (3, 5)


def test_points_are_the_same_each_time() -> None:
    x, y = points((2, 3), 50)
    again, _ = points((2, 3), 50)
    assert x.shape == (50, 6)
    assert (x == again).all()
    assert set(y) <= set(range(10))
