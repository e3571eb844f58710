"""A row of JSON as a model's input: the numbers of `assemble`, in a hundredth of its time.

A plan takes rows as they mostly are; for any other it raises one of UNUSUAL.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import asinh, copysign, cos, hypot, isfinite, log1p, pi, sin
from typing import Any

import numpy as np

from mmdb.data.decoding import Column, Decoding
from mmdb.data.inputs import seconds_of
from mmdb.data.transform.transform import ROUNDS, FittedTransform
from mmdb.errors import InvalidInput

UNUSUAL = (KeyError, TypeError, ValueError, OverflowError, RecursionError, InvalidInput)
Plan = Callable[[Mapping[str, Any]], np.ndarray]
#: The greatest float32, and how many numbers of its texts a column remembers.
_MOST, _REMEMBERED = float(np.finfo(np.float32).max), 2**17


def row_plan(decoding: Decoding) -> Plan | None:
    """Return what makes the only input of a row, float32 (1, *shape); None if it has other columns.

    Numbers differ from those of `assemble` by rounding of float64, before they become float32.
    """
    given = decoding.inputs[0]
    parts = [(column.name, _part(column)) for column, _ in decoding.spans(given)]
    if not decoding.is_one_input or not all(part for _, part in parts):
        return None

    def plan(row: Mapping[str, Any]) -> np.ndarray:
        numbers: list[float] = []
        for name, part in parts:
            numbers += part(row[name])  # type: ignore[misc]
        if not hypot(*numbers) < _MOST:  # as it is not where one is NaN
            raise ValueError
        return np.array(numbers, np.float32).reshape(1, *given.shape)

    return plan


def _part(column: Column) -> Callable[[Any], Sequence[float]] | None:
    """Return what makes the numbers of a column from a value of JSON."""
    transform, known = column.transform, dict[str | None, list[float]]()
    if transform is None or transform.kind == "picture":
        is_number = transform is None and column.kind == "numeric" and column.width == 1
        return (lambda value: (value,) if isfinite(value) else (np.nan,)) if is_number else None
    numbers = _numbers(transform)
    is_time, flag = transform.source != "number", (0.0,) if transform.flags_missing else ()
    null = [] if transform.source == "text" else transform.apply(np.array([np.nan]))[0].tolist()

    def of_number(value: Any) -> Sequence[float]:
        if value is None:
            return null
        if is_time and (type(value) is str or transform.source != "span"):
            value = seconds_of(column, transform.source, value)
        if not isfinite(value):
            raise ValueError
        if numbers is None:
            return transform.apply(np.array([value]))[0].tolist()  # type: ignore[no-any-return]
        return (*numbers(value), *flag)

    def of_text(value: Any) -> Sequence[float]:
        if type(value) is int:  # that names something; true and false are no such numbers
            value = str(value)
        found = known.get(value)
        if found is None:
            if value is not None and type(value) is not str:
                raise TypeError
            found = transform.apply([value])[0].tolist()
            if len(known) * len(found) < _REMEMBERED:
                known[value] = found
        return found

    return of_text if transform.source == "text" else of_number


def _numbers(transform: FittedTransform) -> Callable[[float], tuple[float, ...]] | None:
    """Return what `FittedTransform.apply` makes of one number, for kinds that do so quickly."""
    of = transform.statistics
    match transform.kind:
        case "standardize" | "log1p":
            mean, deviation = of["mean"], of["deviation"] or 1.0
            if transform.kind == "standardize":
                return lambda x: ((x - mean) / deviation,)
            return lambda x: ((copysign(log1p(abs(x)), x) - mean) / deviation,)
        case "robust":
            median, scale = of["median"], of["scale"] or 1.0
            return lambda x: (3.0 * asinh((x - median) / scale / 3.0),)
        case "quantile":
            shares = of["quantiles"]
            return lambda x: (_share(x, shares),)
        case "cyclic":
            trend = of.get("quantiles")
            found = [one for one in ROUNDS[transform.source] if one[0] in of["rounds"]]
            turns = [(length, offset, 2 * pi / length) for _, length, offset in found]

            def waves(x: float) -> tuple[float, ...]:
                angles = [(x + offset) % length * turn for length, offset, turn in turns]
                circled = [wave(angle) for angle in angles for wave in (sin, cos)]
                return (*circled,) if trend is None else (_share(x, trend), *circled)

            return waves
    return None


def _share(x: float, quantiles: Sequence[float]) -> float:
    """Return what `quantile_share` does of one number."""
    last, low, high = len(quantiles) - 1, bisect_left(quantiles, x), bisect_right(quantiles, x)
    if x <= quantiles[0] or high > last:
        return float(x > quantiles[0])
    if low < high:  # the middle of those that it is
        return (low + high - 1) / (2 * last)
    before = quantiles[low - 1]
    return (low - 1 + (x - before) / (quantiles[low] - before)) / last
