"""Runs share workers by their weights, whatever their hops cost and whenever they join."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict

import pytest

from mmdb.train.drive.fair_queue import FairQueue


def simulate(
    runs: dict[str, tuple[int, float, float]],
    *,
    workers: int,
    seconds: float,
    width: int | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Return the worker-seconds that each run gets of `workers`.

    Args:
        runs: name -> (priority, seconds of its hops, second at which it joins).
        width: hops that one run can have under way at most.
    """
    source = random.Random(seed)
    shares, used = FairQueue(), defaultdict[str, float](float)
    under_way: dict[str, int] = defaultdict(int)
    events: list[tuple[float, int, str, float]] = []
    waiting = sorted((joins, name) for name, (_, _, joins) in runs.items())
    now, idle, count, present = 0.0, workers, 0, []
    while now < seconds:
        while waiting and waiting[0][0] <= now:
            name = waiting.pop(0)[1]
            shares.add(name, runs[name][0])
            present.append(name)
        while idle:
            ready = [r for r in present if width is None or under_way[r] < width]
            if not ready:
                break
            name = shares.order(ready)[0]
            hop_s = runs[name][1] * source.uniform(0.5, 1.5)
            shares.begin(name)
            under_way[name] += 1
            idle, count = idle - 1, count + 1
            heapq.heappush(events, (now + hop_s, count, name, hop_s))
        now, _, name, hop_s = heapq.heappop(events)
        shares.end(name, hop_s)
        used[name] += hop_s
        under_way[name] -= 1
        idle += 1
    return used


def test_equal_runs_share_equally_whatever_their_hops_cost() -> None:
    used = simulate({"short": (0, 1.0, 0.0), "long": (0, 8.0, 0.0)}, workers=4, seconds=2000)
    assert used["short"] == pytest.approx(used["long"], rel=0.03)


@pytest.mark.parametrize("priority", [1, 2, -1, 5])
def test_each_step_of_priority_doubles_the_share(priority: int) -> None:
    used = simulate({"a": (priority, 1.0, 0.0), "b": (0, 1.0, 0.0)}, workers=3, seconds=4000)
    assert used["a"] / used["b"] == pytest.approx(2.0**priority, rel=0.05)


def test_a_run_of_the_lowest_priority_is_not_starved() -> None:
    runs = {f"high {k}": (5, 1.0, 0.0) for k in range(3)} | {"low": (-5, 1.0, 0.0)}
    assert simulate(runs, workers=2, seconds=6000)["low"] > 0


def test_who_joins_late_gets_no_arrears_and_no_less_than_the_others() -> None:
    used = simulate({"early": (0, 1.0, 0.0), "late": (0, 1.0, 500.0)}, workers=4, seconds=1000)
    assert used["late"] == pytest.approx(4 * 250, rel=0.05)
    assert used["early"] == pytest.approx(4 * 750, rel=0.05)


def test_what_a_narrow_run_leaves_goes_to_the_others() -> None:
    runs = {"narrow": (0, 1.0, 0.0), "wide": (0, 1.0, 0.0)}
    used = simulate(runs, workers=4, seconds=1000, width=3)
    assert sum(used.values()) == pytest.approx(4000, rel=0.01)


def test_hops_under_way_count_before_they_end() -> None:
    shares = FairQueue()
    for run in ("a", "b"):
        shares.add(run)
    turns = []
    for _ in range(4):
        turns.append(shares.order(["a", "b"])[0])
        shares.begin(turns[-1])
    assert turns == ["a", "b", "a", "b"]


def test_a_group_counts_for_each_of_its_workers() -> None:
    shares = FairQueue()
    for run in ("grouped", "alone"):
        shares.add(run)
    shares.begin("grouped", 4)
    shares.end("grouped", 1.0, 4)
    for _ in range(3):
        assert shares.order(["grouped", "alone"])[0] == "alone"
        shares.begin("alone")
        shares.end("alone", 1.0)
    shares.begin("alone")
    assert shares.order(["grouped", "alone"])[0] == "grouped"


def test_a_changed_priority_holds_from_now_on() -> None:
    shares = FairQueue()
    shares.add("a")
    shares.add("b")
    shares.begin("a")
    shares.end("a", 8.0)
    shares.add("b", 3)  # 8 times the share: 8 seconds count as one
    shares.begin("b")
    shares.end("b", 56.0)
    assert shares.order(["a", "b"])[0] == "b"


def test_a_hop_that_ends_after_its_run_has_left_is_no_error() -> None:
    shares = FairQueue()
    shares.add("a")
    shares.begin("a")
    shares.remove("a")
    shares.end("a", 1.0)
    assert shares.order([]) == []
