"""Makespans, bounds and gaps of hand-made hops."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mmdb.bench.train import (
    cost_ratio,
    gaps,
    lower_bound,
    makespan,
)
from tests.bench.schedule.bound import conserving_bound

START = datetime(2026, 1, 1, tzinfo=UTC)


def hop(candidate: int, epoch: int, worker: str, start: float, seconds: float) -> dict[str, Any]:
    return {
        "candidate": candidate,
        "candidate_id": 10 + candidate,
        "part_id": start,
        "epoch": epoch,
        "worker": worker,
        "total_s": seconds,
        "started_at": START + timedelta(seconds=start),
        "finished_at": START + timedelta(seconds=start + seconds),
    }


def told(kind: str, candidate: int | None, epoch: int | None) -> dict[str, Any]:
    return {"kind": kind, "candidate": candidate, "epoch": epoch}


HOPS = [hop(0, 0, "a", 0, 4), hop(1, 0, "b", 0, 1), hop(1, 1, "b", 2, 1), hop(0, 1, "a", 4.5, 2)]


def test_the_makespan_goes_from_the_first_start_to_the_last_end() -> None:
    assert makespan(HOPS) == 6.5


def test_the_lower_bound_is_the_longest_candidate_or_the_fair_share() -> None:
    assert lower_bound(HOPS, 2) == 6
    assert lower_bound(HOPS, 1) == 8


def test_gaps_are_those_of_each_worker() -> None:
    assert sorted(gaps(HOPS)) == [0.5, 1.0]
    assert gaps(HOPS[:2]) == []


def test_the_cost_ratio_is_between_candidates() -> None:
    assert cost_ratio(HOPS) == 3


def test_a_chain_goes_through_the_report_that_a_promotion_waited_for() -> None:
    log = [told("start", None, 1), told("start", None, 1), told("report", 1, 1)]
    log += [told("report", 0, 1), told("goal", 1, 2)]
    # Candidate 1's second epoch waits for candidate 0's first: 4 s and 1 s; the share is 3 s.
    hops = HOPS[:3]
    assert conserving_bound(hops, log, 2) == 5
    assert conserving_bound(hops, log[:3], 2) == 4


def test_a_promotion_upon_a_want_waits_for_no_report() -> None:
    log = [told("start", None, 1), told("start", None, 1), told("report", 0, 1)]
    log += [told("want", None, None), told("goal", 1, 2)]
    assert conserving_bound(HOPS[:3], log, 2) == 4


def test_a_chain_of_a_thousand_epochs_is_walked() -> None:
    hops = [hop(0, epoch, "a", epoch, 1) for epoch in range(3000)]
    log = [told("start", None, 1)]
    for epoch in range(1, 3000):
        log += [told("report", 0, epoch), told("goal", 0, epoch + 1)]
    assert conserving_bound(hops, log, 2) == pytest.approx(3000)
