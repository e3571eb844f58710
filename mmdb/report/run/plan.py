"""What the plan says: time against workers, phases, and every way of training as numbers."""

from __future__ import annotations

import json

from mmdb.messages import bytes_text, seconds_text
from mmdb.plan.cost import FEATURES
from mmdb.report.charts.phases import planned_phases
from mmdb.report.charts.scaling import scaling
from mmdb.report.charts.ways import name_of
from mmdb.report.parts import Column, Section, Table
from mmdb.report.run.reading import RunFacts
from mmdb.report.texts import time_text

TIMES = (("t_p10", "10 %"), ("t_p50", "median"), ("t_p90", "90 %"), ("lower_bound", "at least"))


def section(facts: RunFacts) -> Section:
    """Return the section; where no plan was made, it says how to make one."""
    if not facts.plan:
        hint = f"No plan was made of this run; to make one: mmdb explain {facts.run['run']}"
        return Section(key="plan", title="Plan", texts=(hint,))
    first = facts.plan[0]
    actual = None
    if facts.outcome is not None:
        actual = (facts.outcome["workers"], facts.outcome["actual_s"])
    charts = (scaling(facts.plan, actual), planned_phases(facts.plan))
    marks = [
        text
        for key, text in (
            ("simulated", "It is for a cluster that was described, not for this machine."),
            ("assumed", "The machine was never measured: costs are assumed, and high."),
        )
        if first[key]
    ]
    notes = [note for note in json.loads(first["notes"]) if note not in marks]
    return Section(
        key="plan",
        title="Plan",
        texts=(
            f"Made on {time_text(first['planned'])}.",
            *(note for note in notes if note.startswith(FEATURES)),
        ),
        warnings=(*marks, *(note for note in notes if not note.startswith(FEATURES))),
        charts=tuple(chart for chart in charts if chart is not None),
        tables=(_table(facts),),
    )


def _table(facts: RunFacts) -> Table:
    rows = [
        {
            "way": name_of(row),
            **{k: row[k] for k in row if k not in ("notes", "planned", "plan_id")},
        }
        for row in facts.plan
    ]
    columns = (
        Column(key="rank", label="rank", right=True),
        Column(key="way", label="strategy"),
        Column(key="workers", label="workers", right=True),
        *(Column(key=key, label=label, show=seconds_text, right=True) for key, label in TIMES),
        Column(key="peak_memory", label="memory", show=bytes_text, right=True),
        Column(key="bytes_moved", label="moves", show=bytes_text, right=True),
        Column(key="chosen", label="train does it", show=lambda value: "yes" if value else ""),
        Column(key="why_not", label="why not"),
    )
    shown = tuple(c for c in columns if c.key != "why_not" or any(r["why_not"] for r in rows))
    return Table(key="ways", title="Every way as numbers", columns=shown, rows=rows, folded=True)
