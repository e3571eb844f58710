"""Charts of metrics, and of the bytes that models have and take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmdb.messages import bytes_text
from mmdb.report.parts import Chart, Rows, Spec, finite, legend_columns, short, value_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Values of each candidate after each epoch, which count from 1."""

    measure: str
    by_candidate: Mapping[int, Mapping[int, float]]


def curves_of(rows: Rows, metric: str | None) -> Curves:
    """Return the validation metric of each epoch; the training loss where nothing is validated."""
    column = "training_loss" if all(row["objective"] is None for row in rows) else "objective"
    found: dict[int, dict[int, float]] = {}
    for row in rows:
        value = finite(row[column])
        if value is not None:
            found.setdefault(row["candidate_id"], {})[row["epoch"] + 1] = value
    measure = "training loss" if column == "training_loss" else f"validation {metric or 'value'}"
    return Curves(measure=measure, by_candidate=found)


def learning(curves: Curves, leaders: Mapping[int, str], candidates: int) -> Chart | None:
    """Return the chart, or None where no epoch has ended.

    Args:
        leaders: names of the candidates that have a line, the best first.
        candidates: of the run.
    """
    names = list(leaders.values())
    lines: list[dict[str, Any]] = [
        {"name": name, "epoch": epoch, "value": value, "text": value_text(value)}
        for candidate, name in leaders.items()
        for epoch, value in sorted(curves.by_candidate.get(candidate, {}).items())
    ]
    if not lines:
        return None
    bands = _bands(curves) if candidates > len(leaders) else []
    values = [line["value"] for line in lines] + [band["middle"] for band in bands]
    last = max(row["epoch"] for row in (*lines, *bands))
    y: Spec = {
        "type": "quantitative",
        "title": curves.measure,
        "scale": {"zero": False, "domain": _domain(values), "nice": True},
        "axis": {"tickCount": 6},
    }
    color = {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": names, "range": "category"},
        "legend": {"title": "candidate", "columns": legend_columns(names)},
    }
    tooltip = [
        {"field": "name", "title": "candidate"},
        {"field": "epoch"},
        {"field": "text", "title": curves.measure},
    ]
    spec: Spec = {
        "height": 320,
        "encoding": {
            "x": {
                "field": "epoch",
                "type": "quantitative",
                "title": "epoch",
                "scale": {"domain": [1, last], "nice": False, "padding": 12},
                "axis": {"values": _epochs(last), "format": "d", "grid": False},
            }
        },
        "layer": [
            *(_band_layers(bands, y) if bands else []),
            {
                "data": {"values": lines},
                "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 36}, "clip": True},
                "encoding": {"y": {**y, "field": "value"}, "color": color, "tooltip": tooltip},
            },
        ],
    }
    others = f" Grey: the middle eight tenths of all {candidates} candidates and their median."
    return Chart(
        title=f"{curves.measure.capitalize()} by epoch",
        alt=_alt(curves, leaders),
        spec=spec,
        note="The leading candidates, the best first." + (others if bands else ""),
    )


def _epochs(last: int) -> list[int]:
    """Return the epochs that have a tick: all, or some ten of them.

    >>> _epochs(3), _epochs(50)
    ([1, 2, 3], [1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50])
    """
    step = -(-last // 10)
    return sorted({1, *range(step, last + 1, step)})


def _bands(curves: Curves) -> list[dict[str, Any]]:
    by_epoch: dict[int, list[float]] = {}
    for values in curves.by_candidate.values():
        for epoch, value in values.items():
            by_epoch.setdefault(epoch, []).append(value)
    found = []
    for epoch, some in sorted(by_epoch.items()):
        low, middle, high = (float(v) for v in np.quantile(some, (0.1, 0.5, 0.9)))
        found.append({"epoch": epoch, "low": low, "middle": middle, "high": high})
    return found


def _band_layers(bands: list[dict[str, Any]], y: Spec) -> list[Spec]:
    data = {"values": bands}
    return [
        {
            "data": data,
            "mark": {"type": "area", "opacity": 0.15, "clip": True, "style": "band"},
            "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "data": data,
            "mark": {"type": "line", "strokeDash": [4, 3], "clip": True, "style": "middle"},
            "encoding": {"y": {**y, "field": "middle"}},
        },
    ]


def _domain(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return [low - room, high + room]


def _alt(curves: Curves, leaders: Mapping[int, str]) -> str:
    ends = []
    for candidate, name in leaders.items():
        epochs = curves.by_candidate.get(candidate)
        if epochs:
            last = max(epochs)
            ends.append(f"{name}: {value_text(epochs[last])} after {last}")
    return f"{curves.measure.capitalize()} after each epoch. {'; '.join(ends)}."


#: Lines that a chart has at most: as many as there are colours.
LINES = 8


def versions_chart(metrics: Rows, version: int) -> Chart | None:
    """Return the chart, or None where no metric has values for two versions.

    Args:
        metrics: version, metric, dataset, value.
        version: the one whose points are larger.
    """
    found: dict[str, list[dict[str, object]]] = {}
    for row in metrics:
        value = finite(row["value"])
        if value is None:
            continue
        name = f"{row['metric']} on {row['dataset']}" if row["dataset"] else row["metric"]
        point = {"name": name, "version": row["version"], "value": value}
        if row["version"] == version:
            point["here"] = 1
        found.setdefault(name, []).append(point | {"text": value_text(value)})
    names = [name for name, points in found.items() if len(points) > 1][:LINES]
    if not names:
        return None
    points = [point for name in names for point in found[name]]
    spec: Spec = {
        "height": 220,
        "data": {"values": points},
        "encoding": {
            "x": {
                "field": "version",
                "type": "ordinal",
                "title": "version",
                "axis": {"labelAngle": 0, "labelOverlap": True},
            },
            "y": {"field": "value", "type": "quantitative", "title": None,
                  "scale": {"zero": False}, "axis": {"tickCount": 5}},
            "color": {
                "field": "name",
                "type": "nominal",
                "scale": {"domain": names, "range": "category"},
                "legend": {"title": None, "columns": legend_columns(names)},
            },
            "tooltip": [
                {"field": "name", "title": "metric"},
                {"field": "version"},
                {"field": "text", "title": "value"},
            ],
        },
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 2}},
            {
                "mark": {"type": "point", "filled": True, "opacity": 1},
                "encoding": {
                    "size": {"condition": {"test": "datum.here", "value": 130}, "value": 40}
                },
            },
        ],
    }  # fmt: skip
    ends = "; ".join(
        f"{name}: {found[name][0]['text']} at version {found[name][0]['version']}, "
        f"{found[name][-1]['text']} at version {found[name][-1]['version']}"
        for name in names
    )
    return Chart(
        title="Metrics by version",
        alt=f"Metrics of the model's versions. {ends}.",
        spec=spec,
        note="The larger points are of this version.",
    )


#: Bars of a chart; what is left is one more.
BARS = 15
KINDS = ("size", "stored")
#: What became of a model's bytes, and where a row has them.
PARTS = {
    "stored": "stored_bytes",
    "shared with other models": "shared_bytes",
    "saved by encoding": "encoded_away_bytes",
}


def tensors_chart(rows: Rows) -> Chart:
    """Return the largest tensors of a model, with what is stored of them."""
    largest = sorted(rows, key=lambda row: -row["byte_count"])
    bars = [(row["path"], row["byte_count"], row["stored_bytes"]) for row in largest[:BARS]]
    rest = largest[BARS:]
    if rest:
        bars.append(
            (f"{len(rest):,} more", sum(r["byte_count"] for r in rest),
             sum(r["stored_bytes"] or 0 for r in rest))
        )  # fmt: skip
    return _pairs("The largest tensors", bars, "A tensor that others have too is stored once.")


def models_chart(rows: Rows) -> Chart:
    """Return models as bars of their size: what was stored for them, and what was saved how.

    Args:
        rows: model, version, byte_count, stored_bytes, shared_bytes, encoded_away_bytes.
    """
    names = _distinct([short(f"{row['model']}@{row['version']}", 34) for row in rows[:BARS]])
    values: list[dict[str, Any]] = [
        {"name": name, "part": part, "place": place, "value": value, "text": bytes_text(value)}
        for name, row in zip(names, rows, strict=False)
        for place, (part, key) in enumerate(PARTS.items())
        if (value := max(0, row[key] or 0))
    ]
    ends: list[dict[str, Any]] = [
        {"name": name, "value": sum(v["value"] for v in values if v["name"] == name),
         "text": bytes_text(row["byte_count"] or 0)}
        for name, row in zip(names, rows, strict=False)
    ]  # fmt: skip
    longest = max((end["value"] for end in ends), default=1)
    told = "; ".join(
        f"{name}: " + ", ".join(f"{v['text']} {v['part']}" for v in values if v["name"] == name)
        for name in names
    )
    parts = [part for part in PARTS if any(value["part"] == part for value in values)]
    color = {
        "field": "part",
        "scale": {"domain": list(PARTS), "range": "category"},
        "legend": {"title": None, "values": parts, "columns": legend_columns(parts)},
    }
    x = {"field": "value", "type": "quantitative", **_axis(longest)}
    tooltip = [{"field": "name"}, {"field": "part"}, {"field": "text", "title": "bytes"}]
    text = {"type": "text", "align": "left", "dx": 6, "style": "label"}
    return Chart(
        title="What models take, and what was saved",
        alt=f"Bytes of each model by what became of them. {told}.",
        spec={
            "height": 34 * len(names),
            "encoding": {
                "y": {"field": "name", "type": "nominal", "sort": names, "title": None,
                      "axis": {"domain": False, "ticks": False, "labelPadding": 8}},
            },
            "layer": [
                {
                    "data": {"values": values},
                    "mark": {"type": "bar", "height": {"band": 0.66}, "strokeWidth": 1,
                             "style": "gap"},
                    "encoding": {"x": {**x, "stack": "zero"}, "color": color,
                                 "order": {"field": "place"}, "tooltip": tooltip},
                },
                {
                    "data": {"values": ends},
                    "mark": text,
                    "encoding": {"text": {"field": "text"},
                                 "x": {"field": "value", "type": "quantitative"}},
                },
            ],
        },
        note="A bar is as long as the model is large.",
    )  # fmt: skip


def _pairs(title: str, bars: Sequence[tuple[str, int, int | None]], note: str) -> Chart:
    names = _distinct([short(name, 34) for name, _, _ in bars])
    values = [
        {"name": name, "kind": kind, "value": value, "text": bytes_text(value)}
        for name, (_, size, stored) in zip(names, bars, strict=True)
        for kind, value in zip(KINDS, (size, stored), strict=True)
        if value is not None
    ]
    kinds = list(dict.fromkeys(str(value["kind"]) for value in values))
    longest = max(
        (value["value"] for value in values if isinstance(value["value"], int)), default=1
    )
    x = {"field": "value", "type": "quantitative", **_axis(longest)}
    color = {
        "field": "kind",
        "scale": {"domain": list(KINDS), "range": "pair"},
        "legend": {"title": None, "values": kinds, "columns": legend_columns(kinds)},
    }
    told = "; ".join(
        f"{name}: {bytes_text(size)}, {'unknown' if stored is None else bytes_text(stored)} stored"
        for name, (_, size, stored) in zip(names, bars, strict=True)
    )
    encoding: Mapping[str, Any] = {
        "y": {"field": "name", "type": "nominal", "sort": names, "title": None,
              "axis": {"domain": False, "ticks": False}},
        "yOffset": {"field": "kind", "type": "nominal", "sort": kinds},
        "x": x,
    }  # fmt: skip
    tooltip = [{"field": "name"}, {"field": "kind"}, {"field": "text", "title": "bytes"}]
    text = {"type": "text", "align": "left", "dx": 5, "style": "label"}
    return Chart(
        title=title,
        alt=f"{title}, in bytes. {told}.",
        spec={
            "height": 40 * len(bars),
            "data": {"values": values},
            "encoding": encoding,
            "layer": [
                {"mark": "bar", "encoding": {"color": color, "tooltip": tooltip}},
                {"mark": text, "encoding": {"text": {"field": "text"}}},
            ],
        },
        note=note,
    )


def _axis(longest: float) -> dict[str, Any]:
    """Return an axis of bytes in steps of 1, 2 or 5, with room for texts at the ends of bars."""
    least = max(longest, 1) / 4
    power = 10 ** (len(str(int(least))) - 1)
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= least)
    ticks = [step * k for k in range(int(max(longest, 1) / step) + 1)]
    texts = [bytes_text(tick) for tick in ticks]
    lookup = f"{texts}[indexof({ticks}, datum.value)]"
    return {
        "title": "bytes",
        "scale": {"domain": [0, max(longest, 1) * 1.2], "nice": False},
        "axis": {"values": ticks, "labelExpr": lookup, "labelOverlap": True},
    }


def _distinct(names: list[str]) -> list[str]:
    """Return the names, those that are there already with a number.

    >>> _distinct(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    found: dict[str, None] = {}
    for name in names:
        number, one = 1, name
        while one in found:
            number += 1
            one = f"{name} ({number})"
        found[one] = None
    return list(found)
