"""Charts and tables of a model's evaluations: metrics, slices, curves, errors, importance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmdb.report.facts import ModelFacts
from mmdb.report.parts import (
    Chart,
    Rows,
    Section,
    Spec,
    Table,
    TableColumn,
    finite,
    legend_columns,
    short,
    telling,
    time_text,
    value_text,
)

#: Values of a column, or columns, that have a bar.
_BARS = 20
_SHARE = {"scale": {"domain": [0, 1], "nice": False}, "axis": {"tickCount": 5}}


def judging_section(facts: ModelFacts) -> Section | None:
    """Return the section, or None where nobody asked how good the model is."""
    errors, importance = facts.figures.get("errors"), facts.figures.get("importance")
    tables: list[Table] = []
    charts: list[Chart] = []
    texts: list[str] = []
    if facts.evaluations:
        tables.append(_evaluations(facts.evaluations))
        charts += _slices(facts.evaluations)
    if errors is not None:
        texts.append(f"Errors are those of {errors['row_count']:,} rows of {errors['of']}.")
        charts += _errors(errors)
        tables += _error_tables(errors)
    if importance is not None:
        rows = importance["importance"]
        charts += _importance(rows)
        tables.append(_importance_table(rows))
    if not tables:
        return None
    return Section(
        key="evaluations",
        title="Evaluations",
        texts=tuple(texts),
        charts=tuple(charts),
        tables=tuple(tables),
    )


def _evaluations(measured: Rows) -> Table:
    rows = []
    for row in measured:
        of = row["query"] or " ".join(filter(None, (row["dataset"], row["slice"])))
        ends = (row["low"], row["high"])
        sure = " to ".join(map(value_text, ends)) if row["low"] is not None else None
        part = None if row["by_name"] is None else f"{row['by_name']}: {_value_of(row)}"
        rows.append({**row, "of": of, "part": part, "interval": sure})
    columns = (
        TableColumn(key="metric", label="metric"),
        TableColumn(key="part", label="where"),
        TableColumn(key="value", label="value", right=True),
        TableColumn(key="interval", label="95 % interval", right=True),
        TableColumn(key="row_count", label="rows", right=True),
        TableColumn(key="of", label="measured on"),
        TableColumn(key="evaluated", label="when", show=time_text),
        TableColumn(key="author", label="by"),
    )
    told = telling(columns, rows)
    return Table(key="evaluations", title="Metrics", columns=told, rows=rows)


def _value_of(row: Mapping[str, Any]) -> str:
    return "NULL" if row["by_value"] is None else str(row["by_value"])


def _slices(measured: Rows) -> Iterator[Chart]:
    """Yield the first metric by the values of a column, as it was told apart last."""
    first = next((row for row in measured if row["by_name"] is not None), None)
    if first is None:
        return
    same = [
        row
        for row in measured
        if all(row[k] == first[k] for k in ("metric", "by_name", "evaluated"))
    ]
    bars = [
        {"name": short(_value_of(row)), "value": value, "low": row["low"], "high": row["high"]}
        for row in same[:_BARS]
        if (value := finite(row["value"])) is not None
    ]
    if bars:
        what = f"{first['metric']} by {first['by_name']}"
        yield bars_chart(what[0].upper() + what[1:], str(first["metric"]), bars)


def _importance(rows: Rows) -> Iterator[Chart]:
    bars = [
        {"name": short(row["column_name"]), "value": value, "low": row["low"], "high": row["high"]}
        for row in rows[:_BARS]
        if (value := finite(row["importance"])) is not None
    ]
    if bars:
        metric = rows[0]["metric_name"]
        note = f"What {metric} loses where the values of a column are shuffled among the rows."
        yield bars_chart("Importance of columns", f"loss of {metric}", bars, note)


def _errors(figures: Mapping[str, Any]) -> Iterator[Chart]:
    if figures.get("confusion"):
        yield _confusion(**figures["confusion"])
    curves = figures.get("curves")
    if curves:
        yield _curve(curves, "roc", "ROC curve", "share of other rows", "share of the class's rows")
        yield _curve(curves, "recall", "Precision and recall", "recall", "precision")
        yield _curve(
            curves, "calibration", "Calibration", "probability said", "share of the class",
            "Below the dashed line a class is less frequent than is said.",
        )  # fmt: skip
    if figures.get("residuals"):
        yield _residuals(figures["residuals"])


def _curve(curves: Rows, kind: str, title: str, x: str, y: str, note: str = "") -> Chart:
    """Return a line for each class over shares of 0 to 1, and the diagonal where it says much."""
    names = [short(str(one["class"])) for one in curves]
    points = [
        {"name": name, "x": point[0], "y": point[1], "place": place}
        for name, one in zip(names, curves, strict=True)
        for place, point in enumerate(one[kind])
    ]
    marks: list[Spec] = [
        {
            "data": {"values": points},
            "mark": {"type": "line", "strokeWidth": 2, "point": kind == "calibration"},
            "encoding": {
                "order": {"field": "place"},
                "color": {
                    "field": "name",
                    "type": "nominal",
                    "scale": {"domain": names, "range": "category"},
                    "legend": {"title": "class", "columns": legend_columns(names)},
                },
                "tooltip": [
                    {"field": "name", "title": "class"},
                    {"field": "x", "title": x, "format": ".4"},
                    {"field": "y", "title": y, "format": ".4"},
                ],
            },
        }
    ]
    if kind != "recall":
        diagonal = [{"x": 0, "y": 0}, {"x": 1, "y": 1}]
        line = {"type": "line", "strokeDash": [4, 3], "style": "middle"}
        marks.insert(0, {"data": {"values": diagonal}, "mark": line})
    told = "; ".join(f"{name}: {_told(one[kind])}" for name, one in zip(names, curves, strict=True))
    return Chart(
        title=title,
        alt=f"{title}: {y} against {x}. {told}.",
        spec={
            "height": 300,
            "encoding": {
                "x": {"field": "x", "type": "quantitative", "title": x, **_SHARE},
                "y": {"field": "y", "type": "quantitative", "title": y, **_SHARE},
            },
            "layer": marks,
        },
        note=note,
    )


def _told(points: Sequence[Sequence[float]]) -> str:
    """Return some five points of a curve in words."""
    some = points[:: max(len(points) // 4, 1)]
    return ", ".join(f"{value_text(y)} at {value_text(x)}" for x, y, *_ in some)


def _confusion(classes: Sequence[str], rows: Sequence[Sequence[float]]) -> Chart:
    names = [short(name, 16) for name in classes]
    cells = [
        {"label": label, "guess": guess, "text": value_text(count), "share": count / (sum(of) or 1)}
        for label, of in zip(names, rows, strict=True)
        for guess, count in zip(names, of, strict=True)
    ]
    axis = {"type": "nominal", "sort": names}
    right = [f"{n}: {value_text(of[k])} of {value_text(float(sum(of)))}" for k, (n, of) in
             enumerate(zip(names, rows, strict=True))]  # fmt: skip
    return Chart(
        title="Confusion matrix",
        alt=f"Rows by label and prediction. Right are, by label, {'; '.join(right)}.",
        spec={
            "height": max(32 * len(names), 96),
            "data": {"values": cells},
            "encoding": {
                "y": {"field": "label", "title": "label", **axis},
                "x": {"field": "guess", "title": "predicted", "axis": {"labelAngle": 0}, **axis},
            },
            "layer": [
                {
                    "mark": {"type": "rect", "style": "band"},
                    "encoding": {
                        "opacity": {
                            "field": "share", "type": "quantitative", "legend": None,
                            "scale": {"domain": [0, 1], "range": [0, 0.45]},
                        }
                    },
                },
                {
                    "mark": {"type": "text", "style": "label"},
                    "encoding": {"text": {"field": "text"}},
                },
            ],
        },
        note="The darker a cell, the more of its label's rows it has.",
    )  # fmt: skip


def _residuals(bins: Sequence[Sequence[float]]) -> Chart:
    values: list[dict[str, Any]] = [
        {"low": low, "high": high, "rows": rows, "text": f"{value_text(low)} to {value_text(high)}"}
        for low, high, rows in bins
    ]
    most = max(values, key=lambda one: one["rows"])
    return Chart(
        title="Residuals",
        alt=f"Rows by label less prediction; most of them, {most['rows']:,}, {most['text']}.",
        spec={
            "height": 220,
            "data": {"values": values},
            "mark": {"type": "bar", "style": "gap"},
            "encoding": {
                "x": {"field": "low", "type": "quantitative", "title": "label less prediction",
                      "bin": {"binned": True}, "axis": {"tickCount": 5}},
                "x2": {"field": "high"},
                "y": {"field": "rows", "type": "quantitative", "title": "rows"},
                "tooltip": [{"field": "text", "title": "residual"}, {"field": "rows"}],
            },
        },
    )  # fmt: skip


def bars_chart(title: str, x: str, bars: list[dict[str, Any]], note: str = "") -> Chart:
    """Return horizontal bars with their intervals, where these are known."""
    names = [bar["name"] for bar in bars]
    y = {"field": "name", "type": "nominal", "sort": names, "title": None}
    marks: list[Spec] = [{"mark": "bar", "encoding": {
        "x": {"field": "value", "type": "quantitative", "title": x, "axis": {"tickCount": 5}},
        "tooltip": [{"field": "name"}, {"field": "value", "title": x, "format": ".4"}],
    }}]  # fmt: skip
    if any(bar["low"] is not None for bar in bars):
        marks.append({"mark": {"type": "rule", "strokeWidth": 2, "style": "ring"}, "encoding": {
            "x": {"field": "low", "type": "quantitative", "title": x}, "x2": {"field": "high"},
        }})  # fmt: skip
    told = "; ".join(f"{bar['name']}: {value_text(bar['value'])}" for bar in bars)
    return Chart(
        title=title,
        alt=f"{title}. {told}.",
        spec={
            "height": max(26 * len(bars), 60),
            "data": {"values": bars},
            "encoding": {"y": y},
            "layer": marks,
        },
        note=note,
    )


def _error_tables(figures: Mapping[str, Any]) -> Iterator[Table]:
    confusion = figures.get("confusion")
    if confusion:
        classes = confusion["classes"]
        yield Table(
            key="confusion",
            title="Confusion matrix: rows by label and prediction",
            folded=True,
            columns=(
                TableColumn(key="label", label="label"),
                *(TableColumn(key=f"c{k}", label=n, right=True) for k, n in enumerate(classes)),
            ),
            rows=[
                {"label": name, **{f"c{k}": count for k, count in enumerate(counts)}}
                for name, counts in zip(classes, confusion["rows"], strict=True)
            ],
        )
    points = [
        {"class": one["class"], "kind": title, "x": point[0], "y": point[1]}
        for one in figures.get("curves") or ()
        for kind, title in _KINDS.items()
        for point in one[kind]
    ]
    if points:
        yield Table(
            key="curves",
            title="Curves",
            folded=True,
            columns=(
                TableColumn(key="class", label="class"),
                TableColumn(key="kind", label="curve"),
                TableColumn(key="x", label="across", right=True),
                TableColumn(key="y", label="up", right=True),
            ),
            rows=points,
        )
    if figures.get("worst"):
        columns = (
            TableColumn(key="key", label="row"),
            TableColumn(key="label", label="label"),
            TableColumn(key="prediction", label="prediction"),
            TableColumn(key="probability", label="probability of the label", right=True),
            TableColumn(key="residual", label="residual", right=True),
        )
        rows = [{c.key: row.get(c.key) for c in columns} for row in figures["worst"]]
        told = telling(columns, rows)
        yield Table(key="worst", title="The rows that are most wrong", columns=told, rows=rows)


_KINDS = {
    "roc": "ROC",
    "recall": "precision by recall",
    "calibration": "share by probability",
}


def _importance_table(rows: Rows) -> Table:
    columns = (
        TableColumn(key="column_name", label="column"),
        TableColumn(key="tables", label="table"),
        TableColumn(key="importance", label="importance", right=True),
        TableColumn(key="low", label="from", right=True),
        TableColumn(key="high", label="to", right=True),
        TableColumn(key="metric_name", label="loss of"),
    )
    return Table(key="importance", title="Importance of columns", columns=columns, rows=rows)
