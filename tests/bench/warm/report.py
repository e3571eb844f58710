"""Figures of trials: what an arm saved, and whether unfit parents did harm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median

from mmdb.bench.figures import Figure
from tests.bench.warm.savings import ArmSaving, PairSaving, arm_savings, pair_savings
from tests.bench.warm.trial import COLD, Trial

#: The arm whose figures have bars.
OWN = "mmdb"
COLD_BAR_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """What OWN has to reach: fraction of the steps, times sooner, pairs that count."""

    saved: float
    sooner: float | None = None
    pairs: int | None = None


BARS = {
    "nasbench": Bars(saved=0.65, sooner=2.9, pairs=30),
    "ensemble": Bars(saved=0.41),
    "language": Bars(saved=0.45),
}


def saving_figures(part: str, trials: Sequence[Trial], is_whole: bool) -> Iterator[Figure]:
    """Yield the medians of each arm.

    Args:
        is_whole: whether all pairs were trained; a share has no bar on their number.
    """
    bars, savings = BARS[part], pair_savings(trials)
    arms = {arm.arm: arm for arm in arm_savings(savings)}
    counted = max((arm.pairs for arm in arms.values()), default=0)
    least = bars.pairs if is_whole else None
    name = f"{part}: pairs whose target is above the parent's score"
    yield _at_least(name, counted, "", least)
    cold = [trial.curve.seconds for trial in trials if trial.arm == COLD]
    yield Figure(
        name=f"{part}: the longest cold training",
        value=round(max(cold), 1),
        unit="s",
        bar=f"<= {COLD_BAR_S:g}" if bars.pairs else "",
        holds=max(cold) <= COLD_BAR_S if bars.pairs else None,
    )
    for arm, medians in arms.items():
        rows = [row for row in savings if row.arm == arm and row.counts]
        own = bars if arm == OWN else None
        yield from _arm_figures(f"{part}, {arm}", medians, rows, own)


def safety_figures(trials: Sequence[Trial]) -> Iterator[Figure]:
    """Yield for each unfit parent how much its child's final score differs from cold start's."""
    for saving in pair_savings(trials):
        if saving.final_gain is None:
            continue
        what = f"{saving.pair.partition(',')[0]}, {saving.arm}, {_answer(saving)}"
        name = f"{what}: final score - cold start's"
        yield _at_least(name, saving.final_gain, "", _noise_bar(saving.arm, saving.noise))


def _answer(saving: PairSaving) -> str:
    return f"refused as {saving.refused}" if saving.refused else "taken"


def _arm_figures(
    name: str, medians: ArmSaving, rows: Sequence[PairSaving], bars: Bars | None
) -> Iterator[Figure]:
    saved = [round(100 * row.saved, 2) for row in rows]
    least = None if bars is None else 100 * bars.saved
    yield _at_least(f"{name}: steps saved, median", 100 * medians.saved, "%", least, saved)
    sooner = None if bars is None else bars.sooner
    yield _at_least(f"{name}: times sooner, median", medians.sooner, "", sooner)
    yield Figure(
        name=f"{name}: trainings that reached the target",
        value=round(100 * medians.reached, 1),
        unit="%",
    )
    gains = [row.final_gain for row in rows if row.final_gain is not None]
    if medians.final_gain is not None:
        noise = median(row.noise for row in rows)
        yield _at_least(
            f"{name}: final score - cold start's, median",
            medians.final_gain,
            "",
            _noise_bar(rows[0].arm, noise),
            gains,
        )
        yield Figure(
            name=f"{name}: pairs with a final score below cold start's, beyond noise",
            value=medians.worse,
            unit=f"of {len(gains)}",
        )
    setup = median(row.setup_s for row in rows)
    yield Figure(name=f"{name}: setting the first weights, median", value=round(setup, 3), unit="s")


def _noise_bar(arm: str, noise: float) -> float | None:
    """Return how far a final score may be below cold start's; None where nothing is known."""
    return -noise if arm == OWN and isfinite(noise) else None


def _at_least(
    name: str, value: float, unit: str, bar: float | None, runs: Sequence[float] = ()
) -> Figure:
    return Figure(
        name=name,
        value=round(value, 4),
        unit=unit,
        bar="" if bar is None else f">= {bar:.4g}",
        holds=None if bar is None else value >= bar,
        runs=list(runs),
    )
