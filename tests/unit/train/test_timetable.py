"""When a schedule is due: once for all that was missed, after pauses that grow."""

from __future__ import annotations

import pytest

from mmdb.train.drive.timetable import FIRST_PAUSE_S, LastRun, NextRun, next_run, pause_s

START, EVERY = 1_000.0, 60.0


def last(due_s: float, outcome: str | None = "done", failures: int = 0, retry_s: float = 0.0):  # type: ignore[no-untyped-def]
    return LastRun(due_s=due_s, outcome=outcome, failures=failures, retry_s=retry_s)  # type: ignore[arg-type]


def test_nothing_is_due_before_the_first_time() -> None:
    assert next_run(START, EVERY, None, START - 0.1) is None
    assert next_run(START, EVERY, None, START) == NextRun(due_s=START, failures=0, retry_s=START)


@pytest.mark.parametrize(("now", "due"), [(0, None), (59.9, None), (60, 60), (61, 60), (600, 600)])
def test_a_due_time_runs_once_and_what_was_missed_is_caught_up_once(
    now: float, due: float | None
) -> None:
    found = next_run(START, EVERY, last(START), START + now)
    assert (None if found is None else found.due_s - START) == due


def test_what_failed_is_tried_again_after_its_pause_for_the_latest_due_time() -> None:
    failed = last(START, "failed", failures=3, retry_s=START + 70)
    assert next_run(START, EVERY, failed, START + 69) is None
    found = next_run(START, EVERY, failed, START + 130)
    assert found == NextRun(due_s=START + 120, failures=3, retry_s=START + 130)


def test_a_lost_run_is_taken_over_at_once_and_then_after_pauses() -> None:
    begun = next_run(START, EVERY, None, START)
    assert begun
    failures, retry_s, now, taken_at = begun.failures, begun.retry_s, START, []
    for _ in range(3):
        while (found := next_run(START, 1e6, last(START, None, failures, retry_s), now)) is None:
            now += 1
        taken_at.append(now - START)
        failures, retry_s = found.failures, found.retry_s
    assert taken_at == [0, FIRST_PAUSE_S, 3 * FIRST_PAUSE_S]


def test_pauses_grow_up_to_the_interval() -> None:
    assert [pause_s(n, 25.0) for n in (1, 2, 3)] == [10.0, 20.0, 25.0]
    assert pause_s(10**9, 5.0) == 5.0


def test_due_times_of_fractions_are_told_apart() -> None:
    starts, every = 1.7e9 + 1 / 3, 1.1
    due, now = None, starts
    for step in range(10_000):
        found = next_run(starts, every, due, now)
        assert found, step
        due = last(round(found.due_s, 6))  # as a database keeps it
        assert next_run(starts, every, due, now) is None
        now = starts + (step + 1.001) * every
