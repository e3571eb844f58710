"""Threads work ahead by a bounded number of items and keep their order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from mmdb.store.tensors.pipeline import pipeline

THREADS = [0, 1, 2, 5]


def same(n: int) -> int:
    """Return an item as it is."""
    return n


class Odd(Exception):
    """What the work of these tests raises."""


@pytest.mark.parametrize("threads", THREADS)
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    def square(n: int) -> int:
        return n * n

    with pipeline(square, threads) as squares:
        assert list(squares.map(range(500))) == [n * n for n in range(500)]
        assert list(squares.map([])) == []


@pytest.mark.parametrize("threads", THREADS)
def test_feeding_applies_the_work_to_every_item(threads: int) -> None:
    seen: list[int] = []
    with pipeline(seen.append, threads) as work:
        for n in range(300):
            work.feed(n)
        work.finish()
        assert sorted(seen) == list(range(300))


@pytest.mark.parametrize("threads", [0, 2])
def test_few_items_are_taken_ahead_of_the_results(threads: int) -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        while taken < 1000:
            yield taken
            taken += 1

    most = 0
    with pipeline(same, threads) as work:
        for result in work.map(items()):
            most = max(most, taken - result)
    assert most <= 8 * threads


def test_feeding_waits_while_too_many_items_are_under_way() -> None:
    gate = threading.Event()
    fed = 0

    def work(_: int) -> None:
        assert gate.wait(120)

    def feed() -> None:
        nonlocal fed
        with pipeline(work, 2) as waiting:
            for n in range(100):
                waiting.feed(n)
                fed = n + 1
            waiting.finish()

    feeder = threading.Thread(target=feed)
    feeder.start()
    while fed < 16:
        pass
    time.sleep(0.05)
    held = fed
    gate.set()
    assert held == 16
    feeder.join(120)
    assert fed == 100


@pytest.mark.parametrize("threads", THREADS)
def test_the_first_error_comes_out(threads: int) -> None:
    done: list[int] = []

    def work(n: int) -> int:
        if n >= 40:
            raise Odd(n)
        done.append(n)
        return n

    with pytest.raises(Odd) as caught, pipeline(work, threads) as failing:
        list(failing.map(range(10_000)))
    assert caught.value.args == (40,)
    assert sorted(done) == list(range(40))
    with pytest.raises(Odd), pipeline(work, threads) as failing:
        for n in range(10_000):
            failing.feed(n)
        failing.finish()


def test_an_error_of_the_caller_drops_what_has_not_begun() -> None:
    begun: list[int] = []
    gate = threading.Event()

    def work(n: int) -> None:
        begun.append(n)
        assert gate.wait(120)

    with pytest.raises(KeyboardInterrupt), pipeline(work, 1) as working:
        for n in range(8):
            working.feed(n)
        while not begun:
            pass
        threading.Timer(0.05, gate.set).start()
        raise KeyboardInterrupt
    assert len(begun) < 8


def test_an_error_of_the_source_of_items_comes_out() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise Odd

    with pytest.raises(Odd), pipeline(same, 2) as work:
        list(work.map(items()))


def test_without_threads_the_work_is_done_by_the_caller() -> None:
    def worker(_: int) -> int:
        return threading.get_ident()

    with pipeline(worker, 0) as work:
        assert set(work.map(range(3))) == {threading.get_ident()}


def test_work_that_has_work_of_its_own_does_not_wait_for_itself() -> None:
    def outer(n: int) -> list[int]:
        with pipeline(same, 2) as inner:
            return list(inner.map(range(n)))

    with pipeline(outer, 2) as work:
        assert [len(found) for found in work.map(range(50))] == list(range(50))
