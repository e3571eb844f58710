"""The sections of a run's report; each makes nothing where there is nothing to show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from mmdb.db.connection import Row
from mmdb.messages import bytes_text, seconds_text
from mmdb.plan.cost import FEATURES, PHASES
from mmdb.report.explanation import shares_text
from mmdb.report.facts import RunFacts
from mmdb.report.hop_chart import timeline
from mmdb.report.line_charts import curves_of, learning, models_chart
from mmdb.report.parts import Chart, Rows, Section, Table, TableColumn, telling, time_text
from mmdb.report.plan_charts import (
    COMPARED,
    compared_phases,
    name_of,
    planned_phases,
    scaling,
    stacked,
)

#: Rows that are shown at once; the others when they are asked for.
SHOWN = 25


def leaderboard_section(facts: RunFacts) -> Section | None:
    """Return the section, or None where the run has no candidates."""
    if not facts.board:
        return None
    varied = facts.varied  # of all candidates: not once for each
    places = {candidate: place for place, candidate in enumerate(facts.leaders)}
    rows = [
        {
            "rank": row["rank"],
            "candidate": row["candidate_id"],
            **{f"config.{key}": row["config"].get(key) for key in varied},
            **{
                key: row[key]
                for key in ("objective", "validation_loss", "training_loss", "status", "parent")
            },
            "epoch": None if row["best_epoch"] is None else row["best_epoch"] + 1,
            "epochs": row["epochs"],
            "total_s": row["total_s"],
            "error": row["error"],
            "config": row["config"],
            "color": places.get(row["candidate_id"]),
        }
        for row in facts.board
    ]
    metric = facts.run["metric"] or "value"
    validated = any(row["objective"] is not None for row in rows)
    given = [
        TableColumn(key=f"config.{key}", label=key.removeprefix("architecture.")) for key in varied
    ]
    wanted = (
        TableColumn(key="objective", label=metric, right=True),
        TableColumn(key="validation_loss", label="validation loss", right=True),
        *(
            []
            if validated
            else [TableColumn(key="training_loss", label="training loss", right=True)]
        ),
        TableColumn(key="epoch", label="best epoch", right=True),
        TableColumn(key="epochs", label="epochs", right=True),
        TableColumn(key="total_s", label="trained for", show=seconds_text, right=True),
        TableColumn(key="parent", label="began with"),
        TableColumn(key="status", label="status"),
        TableColumn(key="error", label="error"),
    )
    told = tuple(column for column in wanted if _tells(column.key, [r[column.key] for r in rows]))
    first = (
        TableColumn(key="rank", label="rank", right=True),
        TableColumn(key="candidate", label="candidate"),
    )
    columns = (*first, *given, *told)
    table = Table(key="candidates", title="Candidates", columns=columns, rows=rows, swatch="color")
    tables = table.split(SHOWN, "more candidates")
    return Section(key="leaderboard", title="Leaderboard", tables=tables)


def _tells(key: str, values: list[Any]) -> bool:
    """Return whether a column says something; one that is alike in all rows may not."""
    if key == "epochs":
        return len(set(values)) > 1
    if key == "status":
        return set(values) != {"trained"}
    return any(value is not None for value in values)


def learning_section(facts: RunFacts) -> Section | None:
    """Return the section, or None where no epoch has ended."""
    curves = curves_of(facts.epochs, facts.run["metric"])
    leaders = facts.leaders
    chart = learning(curves, leaders, len(facts.board))
    if chart is None:
        return None
    epochs = sorted({epoch for values in curves.by_candidate.values() for epoch in values})
    rows = [
        {"candidate": name} | {str(e): curves.by_candidate.get(c, {}).get(e) for e in epochs}
        for c, name in leaders.items()
    ]
    columns = tuple(TableColumn(key=str(e), label=f"epoch {e}", right=True) for e in epochs)
    columns = (TableColumn(key="candidate", label="candidate"), *columns)
    title = "The curves as numbers"
    table = Table(key="epochs", title=title, columns=columns, rows=rows, folded=True)
    return Section(key="learning", title="Learning curves", charts=(chart,), tables=(table,))


def workers_section(facts: RunFacts) -> Section | None:
    """Return the section, or None where no hop was done."""
    chart = timeline(facts.hops, facts.leaders)
    if chart is None:
        return None
    rows = spent(facts.hops)
    phases = [phase for phase in PHASES if any(row[f"{phase}_s"] for row in rows)]
    table = workers_table("The workers as numbers", rows, phases)
    return Section(key="workers", title="Workers", charts=(chart, _phases(rows)), tables=(table,))


def workers_table(title: str, rows: Rows, phases: Sequence[str]) -> Table:
    """Return the rows of `spent` as a table, with the seconds of these phases."""
    columns = (
        TableColumn(key="worker", label="worker"),
        TableColumn(key="node", label="node"),
        TableColumn(key="hops", label="hops", right=True),
        *(TableColumn(key=f"{p}_s", label=p, show=seconds_text, right=True) for p in phases),
    )
    return Table(key="workers", title=title, columns=columns, rows=rows, folded=True)


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


TIMES = (("t_p10", "10 %"), ("t_p50", "median"), ("t_p90", "90 %"), ("lower_bound", "at least"))


def plan_section(facts: RunFacts) -> Section:
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
            ("assumed", "Costs are assumed: neither a calibration nor hops have shown them."),
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
        tables=(_ways_table(facts),),
    )


def _ways_table(facts: RunFacts) -> Table:
    rows = [
        {
            "way": name_of(row),
            **{k: row[k] for k in row if k not in ("notes", "planned", "plan_id")},
        }
        for row in facts.plan
    ]
    columns = (
        TableColumn(key="rank", label="rank", right=True),
        TableColumn(key="way", label="strategy"),
        TableColumn(key="workers", label="workers", right=True),
        *(TableColumn(key=key, label=label, show=seconds_text, right=True) for key, label in TIMES),
        TableColumn(key="peak_memory", label="memory", show=bytes_text, right=True),
        TableColumn(key="bytes_moved", label="moves", show=bytes_text, right=True),
        TableColumn(key="chosen", label="train does it", show=lambda value: "yes" if value else ""),
        TableColumn(key="why_not", label="why not"),
    )
    shown = tuple(c for c in columns if c.key != "why_not" or any(r["why_not"] for r in rows))
    return Table(key="ways", title="Every way as numbers", columns=shown, rows=rows, folded=True)


def section_of_outcome(outcome: Row | None) -> Section | None:
    """Return the section of a row of plan_outcome, or None where nothing is to be compared."""
    if outcome is None or outcome["plan_id"] is None:
        return None
    low, said, high, took = (outcome[key] for key in ("t_p10", "t_p50", "t_p90", "actual_s"))
    within = "within" if low <= took <= high else "outside"
    text = (
        f"It took {seconds_text(took)}. The plan had said {seconds_text(said)}: "
        f"{took / said - 1:+.1%}, {within} its range of {seconds_text(low)} to "
        f"{seconds_text(high)}."
    ).replace("%", " %")
    warnings: tuple[str, ...] = ()
    if not outcome["is_comparable"]:
        warnings = ("What was done is not quite what was planned: the run was interrupted, or its "
                    "search decided otherwise on the way.",)  # fmt: skip
    rows = [
        {"phase": p, "planned_s": outcome[f"{p}_s"], "actual_s": outcome[f"actual_{p}_s"]}
        for p in COMPARED
    ]
    columns = (
        TableColumn(key="phase", label="phase"),
        TableColumn(key="planned_s", label="planned", show=seconds_text, right=True),
        TableColumn(key="actual_s", label="took", show=seconds_text, right=True),
    )
    return Section(
        key="outcome",
        title="Plan and outcome",
        texts=(text,),
        warnings=warnings,
        charts=(compared_phases(outcome),),
        tables=(Table(key="phases", title="The phases as numbers", columns=columns, rows=rows,
                      folded=True),),
    )  # fmt: skip


def features_section(facts: RunFacts) -> Section | None:
    """Return the section, or None where no layer of the run was frozen."""
    if not facts.features:
        return None
    rows = [
        {
            **row,
            "entity": f"feature:{row['feature_id']}",
            "cost_s": float(row["compute_s"] + row["store_s"] + row["read_s"]),
        }
        for row in facts.features
    ]
    stored = sum(row["byte_count"] for row in rows if row["choice"] == "stored")
    cost = sum(row["cost_s"] for row in rows)
    texts = [f"Computing, storing and reading them took {seconds_text(cost)} outside of hops."]
    if stored:
        texts.append(f"{bytes_text(stored)} of features are stored, which mmdb gc can free.")
    columns = (
        TableColumn(key="layer", label="frozen up to", entity="entity"),
        TableColumn(key="backbone", label="of"),
        TableColumn(key="choice", label="features"),
        TableColumn(key="candidates", label="candidates", right=True),
        TableColumn(key="hops", label="hops", right=True),
        TableColumn(key="byte_count", label="size", show=bytes_text, right=True),
        TableColumn(key="cost_s", label="took", show=seconds_text, right=True),
        TableColumn(key="saved_s", label="to save", show=seconds_text, right=True),
        TableColumn(key="reason", label="because"),
    )
    told = telling(columns, rows)
    return Section(
        key="features",
        title="Frozen layers",
        texts=tuple(texts),
        tables=(Table(key="features", title="Features", columns=told, rows=rows),),
    )


def storage_section(facts: RunFacts) -> Section | None:
    """Return the section, or None where no model came out of the run."""
    if not facts.models:
        return None
    rows = [{**row, "entity": f"model:{row['model']}@{row['version']}"} for row in facts.models]
    size = sum(row["byte_count"] or 0 for row in rows)
    stored = sum(row["stored_bytes"] or 0 for row in rows)
    shared = sum(row["shared_bytes"] or 0 for row in rows)
    saved = f" {bytes_text(shared)} they share with other models." if shared else ""
    count = f"{len(rows):,} models" if len(rows) > 1 else "One model"
    columns = (
        TableColumn(key="model", label="model", entity="entity"),
        TableColumn(key="version", label="version", right=True),
        TableColumn(key="candidate_id", label="candidate", right=True),
        TableColumn(
            key="epoch", label="epoch", show=lambda e: "" if e is None else str(e + 1), right=True
        ),
        TableColumn(key="approach", label="kept as"),
        TableColumn(key="byte_count", label="size", show=bytes_text, right=True),
        TableColumn(key="stored_bytes", label="stored for it", show=bytes_text, right=True),
        TableColumn(key="shared_bytes", label="shared", show=bytes_text, right=True),
        TableColumn(key="created", label="saved", show=time_text),
    )
    return Section(
        key="storage",
        title="Storage",
        texts=(f"{count} of {bytes_text(size)}; saving took {bytes_text(stored)}.{saved}",),
        charts=(models_chart(rows),),
        tables=(Table(key="models", title="Models", columns=columns, rows=rows),),
    )
