"""Figures of outcomes, beside their bars and beside how much runs vary by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

from mmdb.bench.figures import Figure
from tests.bench.plan.outcome import Outcome
from tests.bench.plan.scores import (
    PLANNER,
    Choice,
    choices,
    coverage,
    deviations,
    errors,
    p90,
)

#: Percent: of the median error, of its 90th percentile, of the largest; None without a bar.
Bars = tuple[float | None, float | None, float | None]
SEEN: Bars = (2.0, 5.0, None)
UNSEEN: Bars = (3.0, None, 10.0)
ITERATIONS: Bars = (4.0, 10.0, None)
NONE: Bars = (None, None, None)
RIGHT_BAR, REGRET_BAR, WORST_BAR, WORKLOADS_BAR = 95.0, 1.0, 5.0, 40
COVERAGE_BARS = (75.0, 85.0)
_MEASURES: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (
    ("median", median),
    ("p90", p90),
    ("largest", max),
)


def mop_figures(outcomes: Sequence[Outcome]) -> Iterator[Figure]:
    """Yield errors of hopping, where the warm-up was of the same kind, and where it was not."""
    seen = [one for one in outcomes if one.seen]
    yield from _of_runs("mop, seen workers and candidates", seen, SEEN)
    others = [one for one in outcomes if not one.seen]
    yield from _of_runs("mop, unseen workers or candidates", others, UNSEEN)


def iteration_figures(outcomes: Sequence[Outcome]) -> Iterator[Figure]:
    """Yield errors of a step of a group, and of an epoch of averaging: those of the runs."""
    for strategy in ("data_parallel", "model_average"):
        some = [one for one in outcomes if one.strategy == strategy]
        yield from _of_runs(strategy, some, ITERATIONS)
        yield from _of_runs(f"{strategy}, seen", [one for one in some if one.seen], NONE)


def error_figures(
    name: str, found: Sequence[float], varied: Sequence[float], bars: Bars
) -> Iterator[Figure]:
    """Yield a median, a 90th percentile and the largest error, and the same of runs' deviations.

    No error can be less than what runs vary by: a bar is at least that.

    Args:
        found: errors with their sign, relative.
        varied: relative deviations from run to run.
    """
    if not found:
        return
    sizes = [abs(one) for one in found]
    for (which, measure), bar in zip(_MEASURES, bars, strict=True):
        value = 100 * measure(sizes)
        floor = 100 * measure(varied) if varied else 0.0
        limit = None if bar is None else max(bar, floor)
        yield Figure(
            name=f"{name}: {which} error of {len(found)}",
            value=round(value, 2),
            unit="%",
            bar="" if limit is None else f"<= {limit:.3g}",
            holds=None if limit is None else value <= limit,
            runs=[round(100 * one, 2) for one in found] if which == "median" else [],
        )
        if varied:
            yield Figure(
                name=f"{name}: {which} deviation, run to run", value=round(floor, 2), unit="%"
            )


def _of_runs(name: str, outcomes: Sequence[Outcome], bars: Bars) -> Iterator[Figure]:
    return error_figures(name, errors(outcomes), deviations(outcomes), bars)


def choice_figures(outcomes: Sequence[Outcome], is_whole: bool) -> Iterator[Figure]:
    """Yield how often each chooser was right, and its regret; only the planner has bars.

    Args:
        is_whole: whether all workloads were trained; a share has no bar on their number.
    """
    if not outcomes:
        return
    found = choices(outcomes)
    count = len(found[PLANNER])
    yield Figure(
        name="choice: workloads",
        value=count,
        unit="",
        bar=f">= {WORKLOADS_BAR}" if is_whole else "",
        holds=count >= WORKLOADS_BAR if is_whole else None,
    )
    for chooser, made in found.items():
        yield from _chooser_figures(chooser, made, has_bars=chooser == PLANNER)
    yield from _of_runs("choice, all ways", outcomes, (ITERATIONS[0], None, None))


def _chooser_figures(chooser: str, made: Sequence[Choice], *, has_bars: bool) -> Iterator[Figure]:
    regrets = [100 * one.regret for one in made]
    right = 100 * fmean(one.is_right for one in made)
    yield Figure(
        name=f"choice, {chooser}: right",
        value=round(right, 1),
        unit="%",
        bar=f">= {RIGHT_BAR:g}" if has_bars else "",
        holds=right >= RIGHT_BAR if has_bars else None,
    )
    for which, value, bar in (
        ("mean", fmean(regrets), REGRET_BAR),
        ("worst", max(regrets), WORST_BAR),
    ):
        yield Figure(
            name=f"choice, {chooser}: {which} regret",
            value=round(value, 2),
            unit="%",
            bar=f"<= {bar:g}" if has_bars else "",
            holds=value <= bar if has_bars else None,
            runs=[round(one, 2) for one in regrets] if which == "mean" else [],
        )


def coverage_figures(outcomes: Sequence[Outcome]) -> Iterator[Figure]:
    """Yield how many runs were between the 10th and the 90th percentile that were said."""
    if not outcomes:
        return
    low, high = COVERAGE_BARS
    value = 100 * coverage(outcomes)
    yield Figure(
        name=f"coverage: of {len(outcomes)} runs, between p10 and p90",
        value=round(value, 1),
        unit="%",
        bar=f"{low:g} to {high:g}",
        holds=low <= value <= high,
    )
