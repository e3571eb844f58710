"""Axes of time: values are seconds, ticks are round in the unit that people would use."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

from mmdb.report.parts import Spec

#: Seconds between ticks; below and beyond, powers of ten.
_STEPS = (
    1,
    2,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
    600,
    1200,
    1800,
    3600,
    7200,
    14400,
    21600,
    43200,
    86400,
)
_UNITS = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
#: Beyond this ratio of the longest to the shortest an axis is logarithmic.
WIDE = 8.0


def linear(title: str, longest: float, ticks: int = 6) -> Spec:
    """Return the title, scale and axis of durations from 0 on."""
    scale = {"domain": [0, longest or 1.0], "nice": False}
    step = _step(longest / ticks)
    values = [round(step * k, 9) for k in range(int(longest / step + 1e-6) + 1)]
    texts = [_text(value, step) for value in values]
    return {"title": title, "scale": scale, "axis": _axis(values, texts)}


def beside_texts(title: str, longest: float) -> Spec:
    """Return the same for bars with texts at their ends, which need room."""
    axis = linear(title, longest)
    return axis | {"scale": {"domain": [0, (longest or 1.0) * 1.3], "nice": False}}


def logarithmic(title: str, shortest: float, longest: float) -> Spec:
    """Return the title, scale and axis of durations, of which none is 0."""
    low, high = shortest * 0.8, longest * 1.25
    values = [value for value in _round_values(low, high) if low <= value <= high]
    every = -(-len(values) // 9)
    shown = values[::every]
    scale = {"type": "log", "domain": [low, high], "nice": False}
    return {"title": title, "scale": scale, "axis": _axis(shown, [_text(v, v) for v in shown])}


def fitting(title: str, seconds: Iterable[float]) -> Spec:
    """Return the one of both that suits the durations."""
    known = list(seconds)
    shortest, longest = min(known), max(known)
    if 0 < shortest and longest / shortest > WIDE:
        return logarithmic(title, shortest, longest)
    return linear(title, longest * 1.05)


def _axis(values: Sequence[float], texts: Sequence[str]) -> Spec:
    # The places of values, not the values: how JavaScript writes a number is its own affair.
    lookup = f"{json.dumps(list(texts))}[indexof({json.dumps(list(values))}, datum.value)]"
    overlap = {"labelOverlap": True, "labelSeparation": 8}
    return {"values": list(values), "labelExpr": lookup, **overlap}


def _step(least: float) -> float:
    if least <= 0:
        return 1.0
    if _STEPS[0] <= least <= _STEPS[-1]:
        return float(next(step for step in _STEPS if step >= least))
    unit = 86400.0 if least > _STEPS[-1] else 1.0
    power = 10.0 ** math.floor(math.log10(least / unit))
    return float(next(unit * power * k for k in (1, 2, 5, 10) if unit * power * k >= least * 0.999))


def _round_values(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of every power of ten below a second, the usual steps, and days."""
    fractions = [float(f"{k}e{e}") for e in range(-6, 0) for k in (1, 2, 5)]
    days = [86400.0 * k * 10**e for e in range(6) for k in (1, 2, 5)]
    middle = [float(step) for step in _STEPS[:-1] if step not in (14400, 1200)]
    found = [*fractions, *middle, *days]
    inside = [value for value in found if low <= value <= high]
    return inside or [low, high]


def _text(value: float, unit_of: float) -> str:
    """Return a tick's text, in the unit of the step.

    >>> _text(90.0, 30.0), _text(0.02, 0.02), _text(0.0, 60.0)
    ('90 s', '20 ms', '0')
    """
    if value == 0:
        return "0"
    size, name = next((u for u in _UNITS if unit_of >= u[0] * 0.999), _UNITS[-1])
    if name == "days" and round(value / size, 4) == 1:
        name = "day"
    return f"{value / size:.4g} {name}"
