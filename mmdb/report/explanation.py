"""A plan as people read it. Pure: rows in, text out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmdb.messages import bytes_text, seconds_text
from mmdb.plan.cost import FEATURES, PHASES

#: Rows that are shown: the best, and the best of each strategy.
SHOWN = 10
#: Columns of the table, those of numbers right-aligned.
HEADS = ("", "strategy", "workers", "time", "10 to 90 %", "at least", "memory", "moves")
#: What assumed costs cannot tell: they give a range.
SURE = ("time", "at least")
RIGHT = ("workers", "time", "10 to 90 %", "at least", "memory", "moves")


class Explanation(list[dict[str, Any]]):
    """The rows of explain_train; `print` shows them as a table."""

    def __init__(self, run: str, rows: Iterable[Mapping[str, Any]]) -> None:
        super().__init__(dict(row) | {"knobs": _read(row["knobs"])} for row in rows)
        self.run = run

    @property
    def estimates(self) -> list[dict[str, Any]]:
        """The ways of training the run, the best first."""
        return [row for row in self if row["rank"] is not None]

    @property
    def notes(self) -> list[str]:
        """What whoever reads the plan should know."""
        return [row["note"] for row in self if row["note"] is not None]

    @property
    def chosen(self) -> dict[str, Any] | None:
        """What `train` would do, or has done."""
        return next((row for row in self.estimates if row["chosen"]), None)

    def plot(self, file: str | Path) -> None:
        """Draw the plan: time against workers, what the time goes into and, trained, what it took.

        Args:
            file: ends in `.svg` or `.png`; what is there is overwritten.
        Raises:
            InvalidOption: it ends in something else, or nothing is possible. FileNotWritten
            EngineError: mmdb-learn[report] is not installed.
        """
        from mmdb.report.file import plot_plan  # most plans are read, not drawn

        plot_plan(self.run, self, file)

    def __str__(self) -> str:
        view = view_of(self)
        texts = [view.heads, *(line.cells for line in view.lines)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        found = [view.title]
        for cells, line in zip(texts, [None, *view.lines], strict=True):
            padded = (
                cell.rjust(width) if head in RIGHT else cell.ljust(width)
                for head, cell, width in zip(view.heads, cells, widths, strict=True)
            )
            spent = "  spent on" if line is None else "  " + shares_text(line.shares)
            found.append(("  ".join(padded) + spent).rstrip())
        return "\n".join([*found, *view.remarks])


def _read(knobs: Any) -> Any:
    return json.loads(knobs) if isinstance(knobs, str) else knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One way of training, as it is shown."""

    cells: tuple[str, ...]  # by the heads of its view
    shares: tuple[tuple[str, float], ...]  # of the workers' time, by phase
    chosen: bool
    executed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A plan as it is shown."""

    title: str
    heads: tuple[str, ...]
    lines: tuple[PlanLine, ...]
    remarks: tuple[str, ...]


def view_of(plan: Explanation, most: int = SHOWN) -> PlanView:
    """Return a plan as it is shown: the best ways, the best of each strategy, and the chosen one.

    Args:
        most: ways that are shown beside the best of each strategy.
    """
    possible = [row for row in plan.estimates if row["feasible"]]
    best: dict[str, int] = {}
    for row in possible:
        best.setdefault(row["strategy"], row["rank"])
    shown = [
        row
        for place, row in enumerate(possible)
        if place < most or row["rank"] in best.values() or row["chosen"]
    ]
    remarks = []
    if len(shown) < len(possible):
        more = len(possible) - len(shown)
        remarks.append(f"{more} more way{'s are' if more > 1 else ' is'} slower.")
    remarks += _impossible(plan, best)
    if any(not row["executed"] for row in shown):
        remarks.append("(?) mmdb can only predict it; it comes after what is executed.")
    chosen = plan.chosen
    if chosen is not None and chosen["feasible"]:
        remarks.append(f"▸ is what train does{_came_to(chosen)}.")
    assumed = any(row["assumed"] for row in shown)
    heads = tuple(head for head in HEADS if not assumed or head not in SURE)
    return PlanView(
        title=_title(plan),
        heads=heads,
        lines=tuple(_line(row, heads) for row in shown),
        remarks=(*remarks, *(n if n.startswith(FEATURES) else f"! {n}" for n in plan.notes)),
    )


def _title(plan: Explanation) -> str:
    marks = [
        text
        for name, text in (("simulated", "simulated"), ("assumed", "costs are assumed"))
        if any(row[name] for row in plan.estimates)
    ]
    return f"Plan of run {plan.run}" + (f" ({', '.join(marks)})" if marks else "")


def _impossible(plan: Explanation, best: Mapping[str, int]) -> list[str]:
    found: dict[str, str] = {}
    for row in plan.estimates:
        if not row["feasible"] and row["strategy"] not in best:
            found.setdefault(row["strategy"], row["why_not"])
    return [f"{strategy.replace('_', ' ')}: {reason}." for strategy, reason in found.items()]


def _came_to(row: Mapping[str, Any]) -> str:
    if row["actual_s"] is None:
        return ""
    ratio = row["actual_s"] / row["t_p50"]
    if row["assumed"]:
        than = f"and {range_text(row)} was said"
    elif ratio >= 2:
        than = f"{ratio:.0f} times what was said"
    else:
        than = f"{abs(ratio - 1):.1%} {'more' if ratio > 1 else 'less'} than was said"
    return f"; it took {seconds_text(row['actual_s'])}, {than.replace('%', ' %')}"


def _line(row: Mapping[str, Any], heads: tuple[str, ...]) -> PlanLine:
    name = row["strategy"] + (f" of {row['group_size']}" if row["group_size"] > 1 else "")
    seconds = {phase: row[f"{phase}_s"] for phase in PHASES}
    total = sum(seconds.values())
    cells = (
        f"{row['rank']}{' ▸' if row['chosen'] else ''}",
        name.replace("_", " ") + ("" if row["executed"] else " (?)"),
        str(row["workers"]),
        seconds_text(row["t_p50"]),
        range_text(row),
        seconds_text(row["lower_bound"]),
        bytes_text(row["peak_memory"]),
        bytes_text(row["bytes_moved"]),
    )
    return PlanLine(
        cells=tuple(cell for head, cell in zip(HEADS, cells, strict=True) if head in heads),
        shares=tuple((phase, s / total if total else 0.0) for phase, s in seconds.items()),
        chosen=row["chosen"],
        executed=row["executed"],
    )


def range_text(row: Mapping[str, Any]) -> str:
    """Return what four of five runs take."""
    return f"{seconds_text(row['t_p10'])} to {seconds_text(row['t_p90'])}"


def shares_text(shares: Iterable[tuple[str, float]]) -> str:
    """Return the phases that take 1 % or more, the longest first.

    >>> shares_text([("compute", 0.25), ("read", 0.001), ("idle", 0.749)])
    'idle 75 %, compute 25 %'
    """
    ordered = sorted(shares, key=lambda one: -one[1])
    return ", ".join(f"{phase} {share:.0%}".replace("%", " %") for phase, share in ordered
                     if share >= 0.01)  # fmt: skip
