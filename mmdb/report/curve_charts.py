"""Charts of metrics: learning curves of candidates, and lines from a model's version to version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmdb.report.parts import Chart, Rows, Spec, finite, value_text
from mmdb.report.theme import legend_columns


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
