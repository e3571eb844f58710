"""The hops of each worker on a line of time, and the axes of time of all charts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from mmdb.messages import seconds_text
from mmdb.report.parts import LEADERS, Chart, Rows, Spec, legend_columns

#: Seconds between ticks; below and beyond, powers of ten.
_STEPS = (
    *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800),
    *(3600, 7200, 14400, 21600, 43200, 86400),
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


#: Bars that a chart has at most, about.
BARS = 6000
#: A bar of this share of the time has room for its candidate's number.
ROOM = 0.035
OTHERS = "others"


def timeline(hops: Rows, leaders: Mapping[int, str]) -> Chart | None:
    """Return the chart, or None where no hop was done.

    Args:
        hops: by worker and time: worker, candidate_id, epoch, role, begun, total_s.
        leaders: names of the candidates that have a colour.
    """
    if not hops:
        return None
    begin = min(hop["begun"] for hop in hops)
    span = max(hop["begun"] + hop["total_s"] for hop in hops) - begin
    workers = list(dict.fromkeys(hop["worker"] for hop in hops))
    slices = max(BARS // len(workers), 40)
    shortest = span / slices if len(hops) > BARS else 0.0
    names = {c: name for place, (c, name) in enumerate(leaders.items()) if place < LEADERS}
    values = [
        _bar(group, begin, span, names)
        for _, some in groupby(hops, key=lambda hop: hop["worker"])
        for group in _groups(some, shortest)
    ]
    spec = _spec(values, workers, [*names.values(), OTHERS], span)
    together = " Hops too short to be seen are drawn together." if shortest else ""
    return Chart(
        title="Hops of each worker",
        alt=f"{len(hops)} hops of {len(workers)} workers in {seconds_text(span)}, as bars on a "
        "line of time for each worker; gaps are idle time.",
        spec=spec,
        note="One bar a hop, in the colour of its candidate; validations are pale, and gaps are "
        f"idle time.{together}",
    )


def _groups(hops: Any, shortest: float) -> Iterator[list[Mapping[str, Any]]]:
    """Yield one worker's hops, those of a slice of time together."""
    group: list[Mapping[str, Any]] = []
    for hop in hops:
        if group and hop["begun"] + hop["total_s"] - group[0]["begun"] > shortest:
            yield group
            group = []
        group.append(hop)
    if group:
        yield group


def _bar(
    group: list[Mapping[str, Any]], begin: float, span: float, names: Mapping[int, str]
) -> dict[str, Any]:
    first, last = group[0], group[-1]
    length = last["begun"] + last["total_s"] - first["begun"]
    longest = max(group, key=lambda hop: hop["total_s"])
    candidates = {hop["candidate_id"] for hop in group}
    found = {
        "worker": first["worker"],
        "from": round(first["begun"] - begin, 4),
        "to": round(first["begun"] - begin + length, 4),
        "name": names.get(longest["candidate_id"], OTHERS),
    }
    if len(group) > 1:
        return found | {"what": f"{len(group)} hops of {len(candidates)} candidates"}
    kind = "validation" if first["role"] == "validation" else "hop"
    found["what"] = f"candidate {first['candidate_id']}, epoch {first['epoch'] + 1}, {kind}"
    if kind == "validation":
        found["pale"] = 1
    elif length > ROOM * span:
        found["label"] = str(first["candidate_id"])
    return found


def _spec(values: list[dict[str, Any]], workers: list[str], names: list[str], span: float) -> Spec:
    used = {value["name"] for value in values}
    shown = [name for name in names if name in used]
    # names for the colours that no leader has, so that the grey one is for the others
    unused = [f"({place})" for place in range(len(names) - 1, LEADERS)]
    color = {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": [*names[:-1], *unused, OTHERS], "range": "category"},
        "legend": {"title": "candidate", "values": shown, "columns": legend_columns(shown)},
    }
    y = {"field": "worker", "type": "nominal", "sort": workers, "title": None,
         "axis": {"domain": False, "ticks": False}}  # fmt: skip
    x = {
        "field": "from",
        "type": "quantitative",
        "title": "time since the first hop",
        "scale": {"domain": [0, span], "nice": False},
        "axis": {**linear("", span)["axis"], "grid": False},
    }
    return {
        "height": len(workers) * (34 if len(workers) <= 8 else 20),
        "data": {"values": values},
        "encoding": {"y": y},
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.72}},
                "encoding": {
                    "x": x,
                    "x2": {"field": "to"},
                    "color": color,
                    "opacity": {"condition": {"test": "datum.pale", "value": 0.45}, "value": 1},
                    "tooltip": [{"field": "worker"}, {"field": "what"}],
                },
            },
            {
                "transform": [
                    {"filter": "isValid(datum.label)"},
                    {"calculate": "(datum.from + datum.to) / 2", "as": "middle"},
                ],
                "mark": {"type": "text", "style": "inside", "baseline": "middle"},
                "encoding": {
                    "x": {"field": "middle", "type": "quantitative"},
                    "text": {"field": "label"},
                },
            },
        ],
    }
