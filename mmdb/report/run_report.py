"""The report of a run: its facts, and the sections that there is something for."""

from __future__ import annotations

import time
from collections.abc import Callable

from mmdb.db.connection import Connection
from mmdb.messages import seconds_text
from mmdb.report import run_sections
from mmdb.report.facts import RunFacts, lineage_section, read_run
from mmdb.report.parts import Fact, Report, Section, time_text, value_text

#: What a report of a run consists of, in order; each makes nothing where there is nothing to show.
SECTIONS: tuple[Callable[[RunFacts], Section | None], ...] = (
    run_sections.leaderboard_section,
    run_sections.learning_section,
    run_sections.workers_section,
    run_sections.plan_section,
    run_sections.outcome_section,
    run_sections.features_section,
    run_sections.storage_section,
    lambda facts: lineage_section(facts.lineage),
)


def run_report(connection: Connection, name: str) -> Report:
    """Return the report of a run.

    Raises:
        RunNotFound
    """
    return report_of(read_run(connection, name), time.time())


def report_of(facts: RunFacts, made: float) -> Report:
    """Return the report that facts make."""
    sections = (make(facts) for make in SECTIONS)
    return Report(
        kind="run",
        name=facts.run["run"],
        made=made,
        facts=tuple(_facts(facts)),
        sections=tuple(section for section in sections if section is not None),
    )


def _facts(facts: RunFacts) -> list[Fact]:
    run = facts.run
    failed = f", {run['failed']} failed" if run["failed"] else ""
    stopped = f", {run['stopped']} stopped" if run["stopped"] else ""
    found = [
        Fact(key="status", label="status", value=run["status"], text=run["status"]),
        Fact(
            key="dataset",
            label="dataset",
            value=run["dataset"],
            text=run["dataset"],
            entity=f"dataset:{run['dataset']}",
        ),
        Fact(
            key="strategy",
            label="strategy",
            value=run["strategy"],
            text=run["strategy"].replace("_", " "),
        ),
        Fact(
            key="candidates",
            label="candidates",
            value=run["candidates"],
            text=f"{run['candidates']:,}{failed}{stopped}",
        ),
        Fact(key="epochs", label="epochs", value=run["epochs"], text=str(run["epochs"])),
        Fact(
            key="hops_done",
            label="hops",
            value=run["hops_done"],
            text=f"{run['hops_done']:,} of {run['hops_total']:,}",
        ),
    ]
    if run["best_value"] is not None:
        best = f"{value_text(float(run['best_value']))} by candidate {run['best_candidate_id']}"
        metric = run["metric"] or "value"
        found.append(
            Fact(key="best_value", label=f"best {metric}", value=run["best_value"], text=best)
        )
    if run["started"] is not None and run["ended"] is not None:
        spent = run["ended"] - run["started"]
        found.append(Fact(key="seconds", label="hops took", value=spent, text=seconds_text(spent)))
    begun = run["started"] if run["started"] is not None else run["created"]
    label = "begun" if run["started"] is not None else "created"
    found.append(Fact(key=label, label=label, value=begun, text=time_text(begun)))
    if facts.models:
        names = [f"{m['model']}@{m['version']}" for m in facts.models]
        one = f"model:{names[0]}" if len(names) == 1 else ""
        found.append(
            Fact(key="models", label="saved as", value=names, text=", ".join(names[:3]), entity=one)
        )
    return found
