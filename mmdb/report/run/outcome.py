"""What the plan had said, beside what the run took."""

from __future__ import annotations

from mmdb.db.connection import Row
from mmdb.messages import seconds_text
from mmdb.report.charts.phases import COMPARED, compared_phases
from mmdb.report.parts import Column, Section, Table
from mmdb.report.run.reading import RunFacts


def section(facts: RunFacts) -> Section | None:
    """Return the section, or None where there is no plan or no end to compare."""
    return section_of(facts.outcome)


def section_of(outcome: Row | None) -> Section | None:
    """Return the section of a row of plan_outcome."""
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
        {
            "phase": phase,
            "planned_s": outcome[f"{phase}_s"],
            "actual_s": outcome[f"actual_{phase}_s"],
        }
        for phase in COMPARED
    ]
    columns = (
        Column(key="phase", label="phase"),
        Column(key="planned_s", label="planned", show=seconds_text, right=True),
        Column(key="actual_s", label="took", show=seconds_text, right=True),
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
