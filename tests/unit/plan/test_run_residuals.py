"""What hops took beside what a profile had said, as rows of the database."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mmdb.plan.hop_history import FEW_HOPS, ProfilePrediction, learned, residual_notes
from mmdb.plan.step import CandidateCost
from mmdb.plan.step.corrections import FEATURES, LEAST


def point(first: float) -> NDArray[np.float64]:
    """Return features that differ in the first one alone."""
    return np.array([first, 0.5, *[0.0] * (FEATURES - 2)])


def hops(candidate_id: int, factor: float, count: int = FEW_HOPS, **given: Any) -> list[Any]:
    """Return hops of ten steps of 16 rows that take a factor of 1 ms + 0.1 ms a row."""
    row = {
        "candidate_id": candidate_id, "step_s": 1e-3, "row_s": 1e-4, "compute_s": 0.026 * factor,
        "steps": 10, "row_count": 160, "workers": 1,
        "features": json.dumps(point(candidate_id / 100).tolist()),
    }  # fmt: skip
    return [row | given for _ in range(count)]


def test_hops_teach_what_the_profile_misses() -> None:
    rows = [row for one in range(LEAST) for row in hops(one, 1.1)]
    residual = learned(rows, [1.0, 1.5])
    assert residual is not None and len(residual.known) == LEAST
    assert residual.factor(point(0.0)) == pytest.approx(1.1, rel=0.02)


def test_other_workers_and_smaller_last_batches_are_no_error() -> None:
    rows = [row for one in range(LEAST) for row in hops(one, 1.5, workers=2)]
    rows += hops(LEAST, 1.0, row_count=80, compute_s=0.018)
    residual = learned(rows, [1.0, 1.5])
    assert residual is not None
    assert residual.factor(point(0.0)) == pytest.approx(1.0, abs=0.01)


def test_the_first_hop_of_a_process_counts_little() -> None:
    rows = []
    for one in range(LEAST):
        rows += [*hops(one, 30.0, count=1), *hops(one, 1.0)]
    residual = learned(rows, [1.0])
    assert residual is not None
    assert residual.factor(point(0.0)) == pytest.approx(1.0, abs=0.01)


def test_candidates_with_few_hops_teach_nothing() -> None:
    rows = [row for one in range(LEAST) for row in hops(one, 1.1)]
    assert learned(rows[:-1], [1.0]) is None
    assert learned([], [1.0]) is None


def test_a_plan_says_by_how_much_candidates_were_corrected() -> None:
    rows = [row for one in range(LEAST) for row in hops(one, 1.1)]
    residual = learned(rows, [1.0])
    cost = CandidateCost(step_s=1e-3, row_s=1e-4)
    said = ProfilePrediction(candidate_id=99, cost=cost, features=point(0.0), is_plain=True)
    (note,) = residual_notes(residual, {"new": [said], "known": [said]}, {"known"})
    assert "+10%" in note and f"{LEAST} others" in note
    assert residual_notes(residual, {"known": [said]}, {"known"}) == []
    assert residual_notes(None, {"new": [said]}, set()) == []


@pytest.mark.parametrize("features", ['"x"', "[1, 2]", "{}", "null", json.dumps(["a"] * FEATURES)])
def test_rows_that_are_something_else_teach_nothing(features: str) -> None:
    rows = [row for one in range(LEAST) for row in hops(one, 1.1, features=features)]
    assert learned(rows, [1.0]) is None


def test_predictions_of_nothing_teach_nothing() -> None:
    rows = [row for one in range(LEAST) for row in hops(one, 1.1, step_s=0.0, row_s=0.0)]
    assert learned(rows, [1.0]) is None
