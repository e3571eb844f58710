"""The hops of each worker on a line of time, coloured by candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from mmdb.messages import seconds_text
from mmdb.report import chart_axes
from mmdb.report.parts import Chart, Rows, Spec
from mmdb.report.theme import LEADERS, legend_columns

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
    group: list[Mapping[str, Any]],
    begin: float,
    span: float,
    names: Mapping[int, str],
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
    color = {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": [*names[:-1], *_unused(len(names) - 1), OTHERS], "range": "category"},
        "legend": {"title": "candidate", "values": shown, "columns": legend_columns(shown)},
    }
    y = {"field": "worker", "type": "nominal", "sort": workers, "title": None,
         "axis": {"domain": False, "ticks": False}}  # fmt: skip
    x = {
        "field": "from",
        "type": "quantitative",
        "title": "time since the first hop",
        "scale": {"domain": [0, span], "nice": False},
        "axis": {**chart_axes.linear("", span)["axis"], "grid": False},
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


def _unused(taken: int) -> list[str]:
    """Return names for the colours that no leader has, so that the grey one is for the others."""
    return [f"({place})" for place in range(taken, LEADERS)]
