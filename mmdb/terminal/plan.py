"""A plan in a terminal: a line for each way of training, with a bar of what its time goes into."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mmdb.report.explanation import RIGHT, Explanation, PlanLine, PlanView, shares_text, view_of
from mmdb.terminal.output import console as standard
from mmdb.terminal.output import natural_width

#: Cells of a bar.
BAR = 20
#: Of each phase: distinct on dark and on light, as the colours of a training's bars are.
COLORS = {
    "compute": "#6bbf59",
    "read": "#5b9bd5",
    "hop": "#f2a154",
    "communication": "#c590c0",
    "validation": "#76c7c0",
    "idle": "#8a8a8a",
}
FULL, IDLE = "━", "·"
#: Columns that a narrow terminal does without, the first to go first.
SPARE = ("moves", "at least", "memory", "10 to 90 %")


def show_plan(
    plan: Explanation, *, most: int | None = None, console: Console | None = None
) -> None:
    """Print a plan.

    Args:
        most: ways that are shown beside the best of each strategy; some if left out.
        console: where; standard output if left out.
    """
    console = standard if console is None else console
    view = view_of(plan) if most is None else view_of(plan, most)
    console.print(Text(view.title, style="bold"))
    heads = list(view.heads)
    spare = iter(SPARE if "time" in heads else ("moves", "memory"))
    while natural_width(console, table := _table(view, heads)) > console.width:
        name = next(spare, None)
        if name is None:
            break
        heads.remove(name)
    if view.lines:
        console.print(table)
        console.print(_legend(view.lines))
    for remark in view.remarks:
        console.print(Text(remark, style="yellow" if remark.startswith("!") else ""))


def _table(view: PlanView, heads: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        table.add_column(head, justify="right" if head in RIGHT else "left", no_wrap=True)
    table.add_column("spent on", no_wrap=True)
    places = [view.heads.index(head) for head in heads]
    for line in view.lines:
        style = "bold" if line.chosen else "" if line.executed else "dim"
        cells = [Text(line.cells[place]) for place in places]
        table.add_row(*cells, bar(line), style=style)
    return table


def bar(line: PlanLine, width: int = BAR) -> Text:
    """Return a bar whose cells are dealt out to the phases by their shares."""
    text = Text()
    done, ends = 0, 0.0
    for phase, share in line.shares:
        ends += share * width
        cells = round(ends) - done
        done += cells
        text.append((IDLE if phase == "idle" else FULL) * cells, style=COLORS[phase])
    return text


def _legend(lines: Sequence[PlanLine]) -> Text:
    """Return what the colours stand for, of the phases that are to be seen."""
    seen = [
        phase
        for phase in COLORS
        if any(share >= 0.5 / BAR for line in lines for name, share in line.shares if name == phase)
    ]
    text = Text()
    for phase in seen:
        text.append(f"{IDLE if phase == 'idle' else FULL} ", style=COLORS[phase])
        text.append(f"{phase}  ", style="dim")
    chosen = next((line for line in lines if line.chosen), None)
    if chosen is not None:
        text.append(f"\n▸ {shares_text(chosen.shares)}", style="dim")
    return text
