"""Work that takes too long is ended, step by step; other work is left alone."""

from __future__ import annotations

import threading

import pytest

from mmdb.train.values.runtime import TimeLimit


def test_work_within_its_time_is_left_alone() -> None:
    ended: list[str] = []
    with TimeLimit(60.0, lambda: ended.append("ended")) as limit:
        pass
    assert not limit.passed and ended == []


def test_work_without_a_limit_needs_no_thread() -> None:
    before = threading.active_count()
    with TimeLimit(None, lambda: None) as limit:
        assert threading.active_count() == before
    assert not limit.passed


def test_work_that_takes_too_long_is_ended_by_the_first_step_that_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmdb.train.values.runtime.STEP_S", 0.05)
    work_ends, steps = threading.Event(), list[str]()

    def cancel() -> None:
        steps.append("cancel")

    def sever() -> None:
        steps.append("sever")
        work_ends.set()

    def kill() -> None:
        steps.append("kill")

    with TimeLimit(0.01, cancel, sever, kill) as limit:
        assert work_ends.wait(10)
    assert limit.passed
    assert steps == ["cancel", "sever"]


def test_a_step_under_way_ends_before_the_block_does() -> None:
    begun, ended = threading.Event(), list[str]()

    def slow_step() -> None:
        begun.set()
        threading.Event().wait(0.1)
        ended.append("step")

    with TimeLimit(0.01, slow_step):
        begun.wait(10)
    assert ended == ["step"]
