"""What the time of workers goes into: predicted for each strategy, measured for each worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmdb.messages import seconds_text
from mmdb.plan.cost import PHASES
from mmdb.report.charts import axes
from mmdb.report.charts.ways import Way, fastest, name_of, possible
from mmdb.report.explanation import shares_text
from mmdb.report.parts import Chart, Rows, Spec
from mmdb.report.theme import legend_columns

#: Times the longest way that mmdb executes: what-ifs beyond are left out.
TOO_LONG = 4
#: Between the lines of a label.
LINE = "\n"
#: Phases whose actual seconds are known; those of communication are within computing.
COMPARED = ("compute", "read", "hop", "validation", "idle")


def planned_phases(rows: Rows) -> Chart | None:
    """Return the phases of the fastest way of each strategy, or None where nothing is possible."""
    best = fastest(possible(rows), "strategy")
    if not best:
        return None
    ways, beyond = _comparable(best)
    bars = {_label(row): {phase: row[f"{phase}_s"] for phase in PHASES} for row in ways}
    ends = {_label(row): seconds_text(row["t_p50"]) for row in ways}
    told = "; ".join(f"{name}: {shares_text(bar.items())}" for name, bar in bars.items())
    return Chart(
        title="What the workers' time goes into",
        alt=f"Predicted worker-seconds by phase, of the fastest way of each strategy. "
        f"{told.replace(LINE, ', ')}.",
        spec=stacked(bars, ends),
        note=" ".join(
            ["The fastest way of each strategy, with its time at the end of the bar.", *beyond]
        ),
    )


def _comparable(best: list[Way]) -> tuple[list[Way], list[str]]:
    """Return the ways to be drawn, and a remark on what-ifs that would leave no room for them."""
    longest = max((_total(row) for row in best if row["executed"]), default=float("inf"))
    ways = [row for row in best if row["executed"] or _total(row) <= TOO_LONG * longest]
    left = [
        f"{name_of(row)}, which takes {seconds_text(row['t_p50'])}"
        for row in best
        if row not in ways
    ]
    return ways, [f"Left out: {'; '.join(left)}."] if left else []


def _total(row: Way) -> float:
    return sum(float(row[f"{phase}_s"]) for phase in PHASES)


def _label(row: Way) -> str:
    workers = f"{row['workers']} worker" + ("s" if row["workers"] != 1 else "")
    kind = "" if row["executed"] else "what-if, "
    return f"{name_of({**row, 'executed': True})}{LINE}{kind}{workers}"


def stacked(bars: Mapping[str, Mapping[str, float]], ends: Mapping[str, str]) -> Spec:
    """Return bars of worker-seconds, cut into phases, each with a text at its end."""
    totals = {name: sum(phases.values()) for name, phases in bars.items()}
    axis = axes.beside_texts("worker time", max(totals.values()))
    values = [
        {
            "name": name,
            "phase": phase,
            "place": place,
            "value": phases.get(phase, 0.0),
            "time": seconds_text(phases.get(phase, 0.0)),
        }
        for name, phases in bars.items()
        for place, phase in enumerate(PHASES)
    ]
    tooltip = [{"field": "name"}, {"field": "phase"}, {"field": "time", "title": "worker time"}]
    texts = [{"name": name, "value": totals[name], "text": text} for name, text in ends.items()]
    order = list(bars)
    shown = [p for p in PHASES if any(phases.get(p, 0.0) > 0 for phases in bars.values())]
    color = {
        "field": "phase",
        "scale": {"domain": list(PHASES), "range": "phase"},
        "legend": {"title": None, "values": shown, "columns": legend_columns(shown)},
    }
    labels: Spec = {}
    if any(LINE in name for name in order):  # Vega centres the first of two lines, not both
        labels = {"labelExpr": "split(datum.label, '\\n')", "labelOffset": -7}
    return {
        "height": len(order) * (40 if labels else 30),
        "encoding": {
            "y": {"field": "name", "type": "nominal", "sort": order, "title": None,
                  "axis": {"domain": False, "ticks": False, "labelPadding": 8, **labels}},
        },
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar", "height": {"band": 0.66}, "strokeWidth": 1, "style": "gap"},
                "encoding": {
                    "x": {"field": "value", "type": "quantitative", "stack": "zero", **axis},
                    "color": color,
                    "order": {"field": "place"},
                    "tooltip": tooltip,
                },
            },
            {
                "data": {"values": texts},
                "mark": {"type": "text", "align": "left", "dx": 6, "style": "label"},
                "encoding": {"text": {"field": "text"},
                             "x": {"field": "value", "type": "quantitative"}},
            },
        ],
    }  # fmt: skip


def compared_phases(outcome: Mapping[str, Any]) -> Chart:
    """Return the phases of a run as its plan had them beside what they took.

    Args:
        outcome: a row of plan_outcome, or the row of explain_train that has actual figures.
    """
    # explain_train has the exchange of gradients apart, plan_outcome within computing
    extra = {"compute": outcome.get("communication_s") or 0.0}
    said = {p: (outcome[f"{p}_s"] or 0.0) + extra.get(p, 0.0) for p in COMPARED}
    took = {p: outcome[f"actual_{p}_s"] or 0.0 for p in COMPARED}
    axis = axes.beside_texts("worker time", max([*said.values(), *took.values()]))
    kinds = ("planned", "took")
    values = [
        {"phase": phase, "kind": kind, "value": spent[phase],
         "time": seconds_text(spent[phase])}
        for kind, spent in zip(kinds, (said, took), strict=True)
        for phase in COMPARED
    ]  # fmt: skip
    y = {
        "y": {"field": "phase", "type": "nominal", "sort": list(COMPARED), "title": None,
              "axis": {"domain": False, "ticks": False}},
        "yOffset": {"field": "kind", "type": "nominal", "sort": list(kinds)},
        "x": {"field": "value", "type": "quantitative", **axis},
    }  # fmt: skip
    color = {
        "field": "kind",
        "scale": {"domain": list(kinds), "range": "pair"},
        "legend": {"title": None, "columns": legend_columns(kinds)},
    }
    tooltip = [{"field": "phase"}, {"field": "kind"}, {"field": "time", "title": "worker time"}]
    text = {"type": "text", "align": "left", "dx": 5, "style": "label"}
    return Chart(
        title="Planned and taken, by phase",
        alt="Worker-seconds by phase, planned and taken. " + _pairs(said, took, COMPARED),
        spec={
            "height": 44 * len(COMPARED),
            "data": {"values": values},
            "encoding": y,
            "layer": [
                {"mark": "bar", "encoding": {"color": color, "tooltip": tooltip}},
                {"mark": text, "encoding": {"text": {"field": "time"}}},
            ],
        },
    )


def _pairs(said: Mapping[str, float], took: Mapping[str, float], phases: Sequence[str]) -> str:
    return "; ".join(
        f"{phase}: {seconds_text(said[phase])} planned, {seconds_text(took[phase])} taken"
        for phase in phases
    )
