"""Who did what when: hops on a line of time, and what each worker's time went into."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from mmdb.messages import seconds_text
from mmdb.plan.cost import PHASES
from mmdb.report.charts.hops import timeline
from mmdb.report.charts.phases import stacked
from mmdb.report.explanation import shares_text
from mmdb.report.parts import Chart, Column, Rows, Section, Table
from mmdb.report.run.reading import RunFacts


def section(facts: RunFacts) -> Section | None:
    """Return the section, or None where no hop was done."""
    chart = timeline(facts.hops, facts.leaders)
    if chart is None:
        return None
    rows = spent(facts.hops)
    seconds = tuple(
        Column(key=f"{phase}_s", label=phase, show=seconds_text, right=True)
        for phase in PHASES
        if any(row[f"{phase}_s"] for row in rows)
    )
    table = Table(
        key="workers",
        title="The workers as numbers",
        columns=(
            Column(key="worker", label="worker"),
            Column(key="node", label="node"),
            Column(key="hops", label="hops", right=True),
            *seconds,
        ),
        rows=rows,
        folded=True,
    )
    return Section(key="workers", title="Workers", charts=(chart, _phases(rows)), tables=(table,))


def spent(hops: Rows) -> list[dict[str, Any]]:
    """Return each worker's seconds by phase, as plans count them; idle up to the run's last hop."""
    begin = min(hop["begun"] for hop in hops)
    span = max(hop["begun"] + hop["total_s"] for hop in hops) - begin
    found = []
    for worker, some in groupby(hops, key=lambda hop: hop["worker"]):
        done = list(some)
        row = dict.fromkeys((f"{phase}_s" for phase in PHASES), 0.0)
        for hop in done:
            rest = hop["total_s"] - hop["read_s"]
            row["read_s"] += hop["read_s"]
            if hop["role"] == "validation":
                row["hop_s"] += hop["load_s"]
                row["validation_s"] += rest - hop["load_s"]
            else:
                row["compute_s"] += hop["compute_s"]
                row["hop_s"] += rest - hop["compute_s"]
        row["idle_s"] = max(0.0, span - sum(hop["total_s"] for hop in done))
        found.append({"worker": worker, "node": done[0]["node"], "hops": len(done), **row})
    return found


def _phases(rows: Rows) -> Chart:
    bars = {row["worker"]: {phase: row[f"{phase}_s"] for phase in PHASES} for row in rows}
    busy = {
        row["worker"]: f"{1 - row['idle_s'] / (sum(bars[row['worker']].values()) or 1):.0%} busy"
        for row in rows
    }
    told = "; ".join(f"{worker}: {shares_text(bar.items())}" for worker, bar in bars.items())
    return Chart(
        title="What each worker's time went into",
        alt=f"Seconds of each worker by phase. {told}.",
        spec=stacked(bars, {w: text.replace("%", " %") for w, text in busy.items()}),
    )
