"""Charts of a plan: time against workers, and what the time of each strategy goes into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mmdb.messages import seconds_text
from mmdb.plan.cost import EXECUTED, PHASES
from mmdb.report import hop_chart
from mmdb.report.explanation import shares_text
from mmdb.report.parts import STRATEGIES, Chart, Rows, Spec, legend_columns, strategy_text

Way = Mapping[str, Any]


def possible(rows: Rows) -> list[Way]:
    """Return the ways that can be done, the fastest first; notes of a plan have no rank."""
    found = [row for row in rows if row["rank"] is not None and row["feasible"]]
    return sorted(found, key=lambda row: (row["t_p50"], row["rank"]))


def name_of(row: Way) -> str:
    """Return a way's name without its workers."""
    return strategy_text(row["strategy"], row["group_size"], row["executed"])


def fastest(ways: Iterable[Way], *keys: str) -> list[Way]:
    """Return the first way of each combination of these columns."""
    found: dict[tuple[Any, ...], Way] = {}
    for row in ways:
        found.setdefault(tuple(row[key] for key in keys), row)
    return list(found.values())


def chosen(rows: Rows) -> Way | None:
    """Return what `train` would do, or has done."""
    return next((row for row in possible(rows) if row["chosen"]), None)


#: Beyond this ratio the axis of workers is logarithmic.
WIDE_WORKERS = 8
#: Names as charts show them, whatever the workers of a group.
NAMES = {strategy: strategy_text(strategy, 1, strategy in EXECUTED) for strategy in STRATEGIES}


def scaling(rows: Rows, actual: tuple[int, float] | None = None) -> Chart | None:
    """Return the scaling curve of a plan, or None where nothing is possible.

    Args:
        rows: of explain_train or of plan_overview.
        actual: workers and seconds of the run that was trained.
    """
    ways = fastest(possible(rows), "strategy", "workers")
    if not ways:
        return None
    plan = chosen(rows)
    took = [] if actual is None else [actual]
    seconds = [t for row in ways for t in (row["t_p10"], row["t_p90"])] + [s for _, s in took]
    workers = sorted({row["workers"] for row in ways} | {w for w, _ in took})
    y = {"type": "quantitative", **hop_chart.fitting("time", seconds)}
    layers = [
        *_lines(ways, y),
        *([_ring(plan, y)] if plan is not None else []),
        *(_cross(count, took_s, y) for count, took_s in took),
    ]
    spec: Spec = {
        "height": 320,
        "data": {"values": _points(ways)},
        "encoding": {"x": {"field": "workers", "type": "quantitative", **_worker_axis(workers)}},
        "layer": layers,
    }
    return Chart(
        title="Time against workers",
        alt=_alt(ways, plan, actual),
        spec=spec,
        note=" ".join(_notes(ways, plan, actual)),
    )


def _points(ways: Iterable[Way]) -> list[dict[str, Any]]:
    return [
        {
            "name": NAMES.get(row["strategy"], row["strategy"]),
            "workers": row["workers"],
            "low": row["t_p10"],
            "middle": row["t_p50"],
            "high": row["t_p90"],
            "way": name_of(row),
            "time": seconds_text(row["t_p50"]),
            "range": f"{seconds_text(row['t_p10'])} to {seconds_text(row['t_p90'])}",
        }
        for row in sorted(ways, key=lambda row: row["workers"])
    ]


def _lines(ways: Iterable[Way], y: Spec) -> list[Spec]:
    """Return the layers of the strategies: bands, where there is but one point bars, and lines."""
    shown = {row["strategy"] for row in ways}
    names = [name for strategy, name in NAMES.items() if strategy in shown]
    legend = {"title": None, "values": names, "columns": legend_columns(names), "symbolOpacity": 1}

    def by_name(ranges: Any) -> Spec:
        scale = {"domain": list(NAMES.values()), "range": ranges}
        return {"field": "name", "type": "nominal", "scale": scale, "legend": legend}

    color = {"color": by_name("strategy")}
    ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    middle = {"y": {**y, "field": "middle"}}
    tooltip = [
        {"field": "way", "title": "strategy"},
        {"field": "workers", "title": "workers"},
        {"field": "time", "title": "time"},
        {"field": "range", "title": "eight of ten runs"},
    ]
    return [
        {"mark": {"type": "area", "opacity": 0.14}, "encoding": {**color, **ends}},
        {
            "mark": {"type": "rule", "opacity": 0.35, "strokeWidth": 3},
            "encoding": {**color, **ends},
        },
        {
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {
                **color,
                **middle,
                "strokeDash": by_name([dash or [1, 0] for _, dash, _ in STRATEGIES.values()]),
            },
        },
        {
            "mark": {"type": "point", "size": 55, "filled": True, "opacity": 1},
            "encoding": {
                **color,
                **middle,
                "shape": by_name([symbol for _, _, symbol in STRATEGIES.values()]),
                "tooltip": tooltip,
            },
        },
    ]


def _ring(plan: Way, y: Spec) -> Spec:
    return {
        "data": {"values": [{"workers": plan["workers"], "at": plan["t_p50"]}]},
        "mark": {"type": "point", "size": 320, "strokeWidth": 2.5, "filled": False,
                 "style": "ring"},
        "encoding": {"y": {**y, "field": "at"}},
    }  # fmt: skip


def _cross(workers: int, seconds: float, y: Spec) -> Spec:
    values = [{"workers": workers, "at": seconds, "time": seconds_text(seconds)}]
    return {
        "data": {"values": values},
        "mark": {"type": "point", "shape": "M-1,-1L1,1M-1,1L1,-1", "size": 180, "strokeWidth": 3,
                 "style": "ring"},
        "encoding": {
            "y": {**y, "field": "at"},
            "tooltip": [{"field": "time", "title": "it took"}],
        },
    }  # fmt: skip


def _worker_axis(workers: list[int]) -> Spec:
    """Return the scale and the ticks of numbers of workers."""
    low, high = workers[0], workers[-1]
    if high / low > WIDE_WORKERS:
        powers = [2**k for k in range(low.bit_length() - 1, high.bit_length() + 1)]
        step = -(-len(powers) // 10)
        scale: Spec = {"type": "log", "base": 2, "padding": 16, "nice": False}
        ticks = [power for power in powers[::step] if low <= power <= high]
    else:
        scale = {"zero": False, "nice": False, "padding": 24}
        ticks = workers
    return {
        "title": "workers",
        "scale": scale,
        "axis": {"values": ticks, "format": "d", "grid": False},
    }


def _notes(ways: list[Way], plan: Way | None, actual: tuple[int, float] | None) -> list[str]:
    notes = ["Each strategy at its best setting; the band holds eight runs of ten."]
    if not all(row["executed"] for row in ways):
        notes.append("Dashed lines are what-ifs, which mmdb can only predict.")
    if plan is not None:
        notes.append("The ring is what train does.")
    if actual is not None:
        notes.append("The cross is what it took.")
    return notes


def _alt(ways: list[Way], plan: Way | None, actual: tuple[int, float] | None) -> str:
    def said(row: Way) -> str:
        return f"{name_of(row)} with {row['workers']} workers takes {seconds_text(row['t_p50'])}"

    best = "; ".join(said(row) for row in fastest(ways, "strategy"))
    text = f"The predicted time against the number of workers. The best of each strategy: {best}."
    if plan is not None:
        text += f" Train does the following: {said(plan)}."
    if actual is not None:
        text += f" It took {seconds_text(actual[1])} with {actual[0]} workers."
    return text


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
    axis = hop_chart.beside_texts("worker time", max(totals.values()))
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
    axis = hop_chart.beside_texts("worker time", max([*said.values(), *took.values()]))
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
    told = "; ".join(
        f"{phase}: {seconds_text(said[phase])} planned, {seconds_text(took[phase])} taken"
        for phase in COMPARED
    )
    return Chart(
        title="Planned and taken, by phase",
        alt=f"Worker-seconds by phase, planned and taken. {told}",
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
