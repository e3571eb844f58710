"""Steps saved against a cold start: medians over seeds, then over pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import mean, median, stdev

from tests.bench.warm.campaign import PARENT_ARM
from tests.bench.warm.trial import COLD, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSaving:
    """The steps that one arm saved for one pair.

    Attributes:
        target: the mean final score of the cold trainings.
        parent_score: the parent's, on the same held-out data.
        cold_steps, warm_steps: to the target, the median over the seeds; a training that does not
            reach it counts with all its steps.
        reached: of the arm's trainings, the fraction that reached the target.
        final_gain: mean final score minus the target; None where a training was stopped early.
        noise: two standard errors of the difference of two mean final scores, each over as many
            seeds, from the deviation of the cold trainings' final scores; infinite with one seed.
        refused: why the arm left the child as it was, in its first training; "" if it did not.
    """

    pair: str
    arm: str
    target: float
    parent_score: float
    cold_steps: float
    warm_steps: float
    reached: float
    final_gain: float | None
    noise: float
    setup_s: float
    refused: str

    @property
    def saved(self) -> float:
        """The fraction of the cold start's steps that were not needed."""
        return (self.cold_steps - self.warm_steps) / max(self.cold_steps, 1)

    @property
    def counts(self) -> bool:
        """Whether the target is above the parent's score."""
        return self.target > self.parent_score

    @property
    def is_worse(self) -> bool:
        """Whether the final score is below cold start's by more than the noise, or no number."""
        return self.final_gain is not None and not self.final_gain >= -self.noise


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSaving:
    """Medians over the pairs that count."""

    arm: str
    pairs: int
    saved: float
    sooner: float
    reached: float
    final_gain: float | None
    worse: int


def pair_savings(trials: Iterable[Trial]) -> list[PairSaving]:
    """Return a row for each pair and arm but the cold one."""
    by_pair: dict[str, dict[str, list[Trial]]] = {}
    for trial in trials:
        by_pair.setdefault(trial.pair, {}).setdefault(trial.arm, []).append(trial)
    return [
        _saving(arms[COLD], arms[PARENT_ARM], warm)
        for arms in by_pair.values()
        for arm, warm in arms.items()
        if arm not in (COLD, PARENT_ARM)
    ]


def arm_savings(savings: Sequence[PairSaving]) -> list[ArmSaving]:
    """Return each arm's medians over the pairs whose target is above the parent's score."""
    by_arm: dict[str, list[PairSaving]] = {}
    for saving in savings:
        if saving.counts:
            by_arm.setdefault(saving.arm, []).append(saving)
    return [_medians(arm, rows) for arm, rows in by_arm.items()]


def _saving(cold: list[Trial], parent: list[Trial], warm: list[Trial]) -> PairSaving:
    finals = [trial.curve.final for trial in cold]
    target, last = mean(finals), cold[0].curve.steps[-1]
    steps = [trial.curve.steps_to(target) for trial in warm]
    whole = all(trial.curve.steps[-1] == last for trial in warm)
    return PairSaving(
        pair=warm[0].pair,
        arm=warm[0].arm,
        target=target,
        parent_score=parent[0].curve.final,
        cold_steps=_median_steps([trial.curve.steps_to(target) for trial in cold], last),
        warm_steps=_median_steps(steps, last),
        reached=mean(step is not None for step in steps),
        final_gain=mean(trial.curve.final for trial in warm) - target if whole else None,
        noise=2 * stdev(finals) * sqrt(2 / len(finals)) if len(finals) > 1 else inf,
        setup_s=median(trial.setup_s for trial in warm),
        refused=warm[0].refused,
    )


def _median_steps(steps: Sequence[int | None], last: int) -> float:
    return median(last if step is None else step for step in steps)


def _medians(arm: str, rows: Sequence[PairSaving]) -> ArmSaving:
    gains = [row.final_gain for row in rows if row.final_gain is not None]
    saved = median(row.saved for row in rows)
    return ArmSaving(
        arm=arm,
        pairs=len(rows),
        saved=saved,
        sooner=median(row.cold_steps / max(row.warm_steps, 1) for row in rows),
        reached=mean(row.reached for row in rows),
        final_gain=median(gains) if gains else None,
        worse=sum(row.is_worse for row in rows),
    )
