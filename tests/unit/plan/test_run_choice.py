"""Which of a plan's ways `train` takes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mmdb.plan.auto_strategy import _probe_s, _reason
from mmdb.plan.cost import Estimate, Knobs, StrategyName
from mmdb.plan.estimates import chosen

ROWS = (100, 100)


def way(
    strategy: StrategyName, seconds: float, *, workers: int = 2, group: int = 1,
    spread: float = 0.05, why_not: str = "",
) -> Estimate:  # fmt: skip
    knobs = Knobs(
        strategy=strategy,
        workers=workers,
        per_node=workers,
        partitions=len(ROWS),
        group=group,
    )
    return Estimate(
        knobs=knobs,
        p10_s=seconds * (1 - 1.2816 * spread),
        p50_s=seconds,
        p90_s=seconds * (1 + 1.2816 * spread),
        why_not=why_not,
    )


def run(
    strategy: str = "auto",
    allowed: Sequence[str] = ("mop", "task"),
    group: int | None = None,
    workers: int | None = None,
) -> Any:
    return SimpleNamespace(
        strategy=strategy,
        workers=workers,
        rows=ROWS,
        candidates=(0, 1),
        options=SimpleNamespace(strategies=tuple(allowed), group=group),
        workload=SimpleNamespace(strategy=strategy, group=group or 1),
    )


def taken(run: Any, *ways: Estimate, slots: int = 2) -> tuple[str, int, int] | None:
    place = chosen(ways, run, slots)
    if place is None:
        return None
    knobs = ways[place].knobs
    return knobs.strategy, knobs.workers, knobs.group


def test_mop_is_taken_where_nothing_is_better_for_sure() -> None:
    assert taken(run(), way("task", 10.0), way("mop", 10.4)) == ("mop", 2, 1)
    assert taken(run(), way("task", 10.0), way("mop", 10.6)) == ("task", 2, 1)
    assert taken(run(), way("task", 10.0, spread=0.4), way("mop", 13)) == ("mop", 2, 1)


def test_what_trains_otherwise_is_taken_if_it_is_allowed() -> None:
    ways = way("data_parallel", 5, group=2), way("data_parallel", 6, group=4), way("mop", 10)
    assert taken(run(), *ways) == ("mop", 2, 1)
    wide = ("mop", "task", "data_parallel")
    assert taken(run(allowed=wide), *ways) == ("data_parallel", 2, 2)
    assert taken(run(allowed=wide, group=4), *ways) == ("data_parallel", 2, 4)


def test_as_many_workers_are_taken_as_do_no_harm() -> None:
    assert taken(run(), way("mop", 10, workers=3), way("mop", 10.3, workers=4)) == ("mop", 4, 1)
    assert taken(run(), way("mop", 10, workers=3), way("mop", 12, workers=4)) == ("mop", 3, 1)


def test_what_is_not_possible_is_not_taken() -> None:
    assert taken(run(), way("task", 12), way("mop", 10, why_not="no room")) == ("task", 2, 1)
    assert taken(run(), way("mop", 10, why_not="no room")) is None


def test_a_run_that_names_its_strategy_is_trained_so() -> None:
    ways = way("task", 5), way("mop", 20, workers=1), way("mop", 10)
    assert taken(run("mop"), *ways) == ("mop", 2, 1)
    assert taken(run("mop"), *ways, slots=1) == ("mop", 1, 1)
    assert taken(run("mop", workers=1), *ways) == ("mop", 1, 1)
    assert taken(run("data_parallel", group=2), *ways) is None


def row(strategy: str, seconds: float, **given: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"strategy": strategy, "workers": 2, "group_size": 1, "rank": 1}
    base |= {"t_p10": seconds * 0.9, "t_p50": seconds, "t_p90": seconds * 1.1, "feasible": True}
    return base | {"assumed": False, "measured": 0, "candidates": 4} | given


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [
        ([row("data_parallel", 200), row("mop", 205)], 10),
        ([row("data_parallel", 5000), row("mop", 5000)], 60),
        ([row("data_parallel", 20), row("mop", 20)], 0),  # too short a run
        ([row("task", 200), row("mop", 200)], 0),  # the steps are the same
        ([row("data_parallel", 200), row("mop", 300)], 0),  # clear enough
        ([row("data_parallel", 200, measured=4), row("mop", 205)], 0),
        ([row("data_parallel", 200, assumed=True), row("mop", 205)], 0),
        ([row("mop", 200, feasible=False)], 0),
        ([], 0),
    ],
)
def test_steps_are_timed_where_that_may_change_what_is_taken(
    rows: list[dict[str, Any]], seconds: float
) -> None:
    assert _probe_s(rows) == pytest.approx(seconds)


def test_a_decision_says_why() -> None:
    best, other = row("task", 10), row("mop", 10.2, rank=2)
    text = "mop with 2 workers is predicted to take 10.2 s; task with 2 workers, 10 s, is no better"
    assert _reason(other, [best, other]) == f"{text} for sure."
    assert _reason(best, [best, other]).endswith("10 s; mop with 2 workers, 10.2 s.")
