"""ROC and precision-recall curves, calibration, and the threshold that meets a goal.

Scores are float64 (n,), the probability of the class that counts as positive; `positive` is bool
(n,); weights of the rows are float64 (n,), None for equal ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from mmdb.arguments import is_number
from mmdb.errors import InvalidInput, InvalidOption
from mmdb.messages import show
from mmdb.train.candidate.metrics import ranked

_GOAL_HINT = 'Such as {"recall": 0.9}, {"precision": 0.9} or {"cost": {"false_positive": 1, ...}}.'


class RocPoint(NamedTuple):
    """Shares of rows whose score is a threshold or greater."""

    threshold: float
    false_positive_rate: float
    true_positive_rate: float


class RecallPoint(NamedTuple):
    """Of rows whose score is a threshold or greater."""

    threshold: float
    precision: float
    recall: float


class CalibrationBin(NamedTuple):
    """Rows whose score is in a range."""

    low: float
    high: float
    row_count: int
    score: float  # mean
    share: float  # of positive rows


class Threshold(NamedTuple):
    """A threshold, from which on scores count as positive, with the shares and cost it gives."""

    threshold: float
    precision: float
    recall: float
    false_positive_rate: float
    cost: float | None


def roc(
    scores: Tensor, positive: Tensor, weight: Tensor | None = None, *, most: int | None = None
) -> list[RocPoint]:
    """Return the curve from (0, 0), at infinity, to (1, 1), less points in line with both others.

    Args:
        most: of so many points at most, evenly by place, both ends among them; None: all.
    Raises:
        InvalidInput: all rows are positive, or none.
    """
    different, hits, others = _of_both(scores, positive, weight)
    bends = torch.ones(len(different), dtype=torch.bool)
    above, below = hits.cumsum(0), others.cumsum(0)
    if len(different) > 2:
        bends[1:-1] = (above.diff(n=2) != 0) | (below.diff(n=2) != 0)
    some = _evenly(int(bends.sum()), None if most is None else most - 1)
    kept = zip(*(t[bends][some].tolist() for t in (different, below, above)), strict=True)
    whole = float(others.sum()), float(hits.sum())
    points = [RocPoint(at, b / whole[0], a / whole[1]) for at, b, a in kept]
    return [RocPoint(math.inf, 0.0, 0.0), *points]


def precision_recall(
    scores: Tensor, positive: Tensor, weight: Tensor | None = None, *, most: int | None = None
) -> list[RecallPoint]:
    """Return the curve from the greatest score to the least.

    Args:
        most: as of `roc`.
    Raises:
        InvalidInput: all rows are positive, or none.
    """
    different, hits, others = _of_both(scores, positive, weight)
    above, guessed = hits.cumsum(0), (hits + others).cumsum(0)
    precision = torch.where(guessed > 0, above / guessed, 0.0)
    columns = (different, precision, above / hits.sum())
    some = _evenly(len(different), most)
    return [RecallPoint(*p) for p in zip(*(c[some].tolist() for c in columns), strict=True)]


def _evenly(count: int, most: int | None) -> Tensor:
    """Return places of `count` things, so many at most, the first and the last among them."""
    if most is None or count <= most:
        return torch.arange(count)
    return torch.linspace(0, count - 1, most, dtype=torch.float64).round().long()


def calibration(
    scores: Tensor, positive: Tensor, weight: Tensor | None = None, *, bins: int = 10
) -> Iterator[CalibrationBin]:
    """Yield what came of the scores in ranges of equal width, those that have rows."""
    place = (scores * bins).long().clamp(0, bins - 1)
    weight = torch.ones(len(scores), dtype=torch.float64) if weight is None else weight
    sums = [torch.bincount(place, weight * part, bins).tolist() for part in (1.0, scores, positive)]
    rows = torch.bincount(place, minlength=bins).tolist()
    for k, (whole, score, found) in enumerate(zip(*sums, strict=True)):
        if whole > 0:
            yield CalibrationBin(k / bins, (k + 1) / bins, rows[k], score / whole, found / whole)


def threshold_for(
    goal: Mapping[str, object], scores: Tensor, positive: Tensor, weight: Tensor | None = None
) -> Threshold:
    """Return the threshold that meets a goal at the least loss elsewhere.

    Args:
        goal: {"recall": 0.9}: the most precise with this recall; {"precision": 0.9}: the greatest
            recall with this precision; {"cost": {"false_positive": 1, "false_negative": 5}}: the
            least mean cost of a row.
    Raises:
        InvalidOption: it is no such goal. InvalidInput: no threshold meets it; see `roc`.
    """
    kind, wanted = _goal(goal)
    different, hits, others = _of_both(scores, positive, weight)
    above, below = hits.cumsum(0), others.cumsum(0)
    precision = torch.where(above + below > 0, above / (above + below), 0.0)
    recall = above / hits.sum()
    cost: Tensor | None = None
    if kind == "recall":
        fits = precision.masked_fill(recall < wanted["recall"], -1.0)
    elif kind == "precision":
        fits = recall.masked_fill(precision < wanted["precision"], -1.0)
    else:
        missed = wanted["false_negative"] * (hits.sum() - above)
        cost = (wanted["false_positive"] * below + missed) / (hits.sum() + others.sum())
        fits = -cost
    best = int(fits.argmax())
    if kind != "cost" and fits[best] < 0:
        raise InvalidInput(
            f"No threshold gives a {kind} of {show(wanted[kind])}.",
            hint=f"The greatest here is {float(precision.max()):.4g}.",
        )
    return Threshold(
        float(different[best]),
        float(precision[best]),
        float(recall[best]),
        float(below[best] / others.sum()),
        None if cost is None else float(cost[best]),
    )


def _goal(goal: Mapping[str, object]) -> tuple[str, dict[str, float]]:
    kind = next(iter(goal), "")
    value = goal.get(kind)
    if len(goal) == 1 and kind in ("recall", "precision") and is_number(value, 0, 1):
        return kind, {kind: value}
    costs = ("false_positive", "false_negative")
    if len(goal) == 1 and kind == "cost" and isinstance(value, Mapping):
        if set(value) == {*costs} and all(is_number(value[name], 0) for name in costs):
            return kind, dict(value)
    raise InvalidOption(f"The goal is {show(goal)}.", hint=_GOAL_HINT)


def _of_both(scores: Tensor, positive: Tensor, weight: Tensor | None) -> tuple[Tensor, ...]:
    """Return `ranked` of rows of both kinds.

    Raises:
        InvalidInput
    """
    different, hits, others = ranked(scores, positive, weight)
    if not hits.sum() > 0 or not others.sum() > 0:
        what = "all" if hits.sum() > 0 else "none"
        raise InvalidInput(
            f"Of the rows {what} are of the positive class.",
            hint="A curve needs rows of this class, and others: read more, or name another class.",
        )
    return different, hits, others
