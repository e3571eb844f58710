"""The metrics of a model's versions, as lines from version to version."""

from __future__ import annotations

from mmdb.report.parts import Chart, Rows, Spec
from mmdb.report.texts import finite, value_text
from mmdb.report.theme import legend_columns

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
