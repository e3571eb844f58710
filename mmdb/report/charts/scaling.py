"""The scaling curve: the time of a run against its workers, a line for each strategy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mmdb.messages import seconds_text
from mmdb.plan.cost import EXECUTED
from mmdb.report.charts import axes
from mmdb.report.charts.ways import Way, chosen, fastest, name_of, possible
from mmdb.report.parts import Chart, Rows, Spec
from mmdb.report.texts import strategy_text
from mmdb.report.theme import STRATEGIES, legend_columns

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
    y = {"type": "quantitative", **axes.fitting("time", seconds)}
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
        {
            "mark": {"type": "area", "opacity": 0.14},
            "encoding": {**color, **ends},
        },
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
        "mark": {
            "type": "point",
            "size": 320,
            "strokeWidth": 2.5,
            "filled": False,
            "style": "ring",
        },
        "encoding": {"y": {**y, "field": "at"}},
    }


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
