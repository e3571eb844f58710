from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from mmdb.plan import notes
from mmdb.plan.machine_history import DAY_S, LEAST_TO_DRIFT, drifted
from mmdb.plan.profile.machine_profile import profile_of
from mmdb.plan.profile.measurements import Machine, Measurement, Stamp, Versions

MEASURED_S = 1_700_000_000.0
STAMP = Stamp(
    machine=Machine(node="a", cpu="b", capability="AVX2", cores=2, memory_bytes=2**34),
    versions=Versions(torch="2.9", python="3.11", engine="duckdb"),
    measured_at=datetime.fromtimestamp(MEASURED_S, UTC),
)
PROFILE = profile_of([Measurement(kind="product", size=1e6, value=1e-4, deviation=0.02)], STAMP)
CONFIG = {"lr": 0.1, "batch_size": 10}


def hops(
    day: float, step_s: float, count: int = LEAST_TO_DRIFT, **given: Any
) -> list[dict[str, Any]]:
    """Return hops of ten steps that ended so many days after the calibration."""
    row = {
        "architecture_hash": b"a",
        "config": json.dumps(CONFIG),
        "role": "train",
        "row_count": 100,
        "steps": 10,
        "compute_s": 10 * step_s,
        "workers": 1,
        "group_size": None,
        "finished": MEASURED_S + day * DAY_S,
    }
    return [row | given for _ in range(count)]


def said(rows: list[dict[str, Any]], day: float, ought_s: float | None = None) -> list[str]:
    return drifted(
        rows,
        PROFILE,
        (1.0, 1.5),
        predicted=lambda like, rows: ought_s,
        now_s=MEASURED_S + day * DAY_S,
    )


def test_hops_are_compared_with_those_of_the_calibration() -> None:
    assert said([*hops(0.5, 0.01), *hops(9, 0.0105)], 10) == []
    (note,) = said([*hops(0.5, 0.01), *hops(9, 0.013)], 10)
    assert note.startswith("Steps of 5 hops since a few days ago took 30% more than this profile")
    assert "mmdb.calibrate" in note
    (note,) = said([*hops(0.5, 0.01), *hops(9, 0.008)], 10)
    assert "20% less" in note


def test_without_hops_of_then_only_a_large_difference_counts() -> None:
    assert said(hops(9, 0.013), 10, ought_s=0.01) == []
    (note,) = said(hops(9, 0.02), 10, ought_s=0.01)
    assert "100% more" in note
    assert said(hops(0.1, 0.02), 0.2, ought_s=0.01)[0].startswith("Steps of 5 hops since the cal")
    assert said(hops(9, 0.02), 10) == []


@pytest.mark.parametrize(
    "rows",
    [
        [],
        hops(9, 0.02, LEAST_TO_DRIFT - 1),  # too few
        hops(-1, 0.02),  # before it was measured
        hops(2, 0.02),  # long ago
        hops(9, 0.02, role="validation"),
        hops(9, 0.02, role="steps", finished=None),
        hops(9, 0.015, workers=2),  # as slow as busy workers are
        hops(9, 0.02, steps=0),
        hops(9, 0.02, group_size=2),  # which exchange gradients, too
        [*hops(0.5, 0.01), *hops(9, 0.01), *hops(9, 0.02, architecture_hash=b"b")],
    ],
)
def test_what_says_nothing_of_a_change(rows: list[dict[str, Any]]) -> None:
    assert said(rows, 10, ought_s=0.01) == []


def test_hops_that_vary_much_tell_less() -> None:
    wild = [hop for k in range(5) for hop in hops(0.5, 0.01 * (1 + k / 2), 1)]
    assert said([*wild, *hops(9, 0.024)], 10) == []


def test_an_assumed_profile_cannot_have_changed() -> None:
    assert drifted(hops(9, 1.0), profile_of([]), (1.0,), predicted=lambda *_: 0.01) == []


def progress(**given: int) -> dict[str, int]:
    return {"candidates": 4, "left_out": 0, "untouched": 0, "hops": 0} | given


def test_what_of_a_run_has_changed_is_said() -> None:
    assert notes.progress_notes(progress()) == []
    assert notes.progress_notes(progress(left_out=1)) == [
        "1 of 4 candidates has failed or was stopped: not planned."
    ]
    (note,) = notes.progress_notes(progress(hops=7))
    assert note.startswith("7 hops of the run are done already")


@pytest.mark.parametrize(
    ("hops", "done", "left_out", "said"),
    [(8, 8, 0, "was interrupted"), (8, 4, 1, "1 failed"), (8, 9, 0, "8 hops were planned, 9 were")],
)
def test_what_was_not_trained_as_planned_is_said(
    hops: int, done: int, left_out: int, said: str
) -> None:
    outcome = {"is_comparable": False, "hops": hops, "actual_hops": done}
    (note,) = notes.outcome_notes(outcome, progress(left_out=left_out))
    assert said in note
    assert notes.outcome_notes(outcome | {"is_comparable": True}, progress()) == []
