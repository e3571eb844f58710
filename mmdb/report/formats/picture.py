"""Charts below each other as one picture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mmdb.report import vega
from mmdb.report.parts import Chart, Report, Spec
from mmdb.report.theme import LIGHT, ROOM, config

#: Points that a chart is wide, axes and legend not counted.
WIDTH = 680


def stack(title: str, subtitle: str, charts: Iterable[Chart]) -> Spec:
    """Return one specification of several charts, each with its own scales and its title."""
    parts = [_titled(chart) for chart in charts]
    scales = dict.fromkeys(("color", "shape", "strokeDash", "x", "y"), "independent")
    head: dict[str, Any] = {"text": title, "fontSize": 20, "offset": 20}
    if subtitle:
        head["subtitle"] = subtitle
    return {
        "title": head,
        "params": ROOM,
        "vconcat": parts,
        "spacing": 36,
        "padding": 20,
        "resolve": {"scale": scales},
    }


def report_picture(report: Report) -> bytes:
    """Return all charts of a report as PNG, on light.

    Raises:
        EngineError: vl-convert is not installed.
    """
    charts = [chart for section in report.sections for chart in section.charts]
    facts = " · ".join(f"{fact.label} {fact.text}" for fact in report.facts[:6])
    return vega.png(stack(report.title, facts, charts), config(LIGHT))


def _titled(chart: Chart) -> Spec:
    title: dict[str, Any] = {"text": chart.title, "frame": "group"}
    if chart.note:
        title["subtitle"] = _lines(chart.note)
    return {"width": WIDTH, "title": title, **chart.spec}


def _lines(text: str, most: int = 100) -> list[str]:
    """Return a text as lines of at most so many characters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
