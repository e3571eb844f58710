"""What people see in a terminal: progress, tables and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from mmdb.db.check import Check
from mmdb.errors import MmdbError
from mmdb.terminal.output import console as console
from mmdb.terminal.output import errors, natural_width, value_text
from mmdb.terminal.training import training_watch as training_watch

if TYPE_CHECKING:  # it loads torch, which most commands do without
    from mmdb.probe import Comparison

#: Columns of a leaderboard that a narrow terminal does without, the first to go first.
_SPARE = ("seconds", "epoch", "loss")


def show_error(error: MmdbError) -> None:
    """Print an error's class, message and hint; no traceback."""
    name = type(error).__name__
    errors.print(f"[bold red]{name}[/] [dim]({error.sqlstate})[/] {escape(error.message)}")
    if error.hint:
        errors.print(f"[bold]hint:[/] {escape(error.hint)}")


def show_checks(checks: Sequence[Check]) -> None:
    """Print what was looked at, one line each; below what is wrong, how to mend it."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = "[green]ok  [/]" if check.ok else "[bold red]FAIL[/]"
        line = f"{mark}  {check.name:{width}}  {escape(check.detail)}"
        console.print(line, soft_wrap=True, highlight=False)
        if check.mend:  # commands in it are there to be copied
            console.print(f"      {escape(check.mend)}", soft_wrap=True, highlight=False)


# -- tables -------------------------------------------------------------------


def show_rows(
    title: str, rows: Sequence[Mapping[str, Any]], *, spare: Sequence[str] = (), folded: str = ""
) -> None:
    """Print rows as a table, or one below the other where the terminal is too narrow for one.

    Args:
        spare: columns to leave out one by one while the table is too wide.
        folded: the column whose texts take several lines in a narrow terminal; the table then
            stays one, and what is no terminal gets lines of any length.
    """
    if not rows:
        console.print(f"[bold]{escape(title)}[/] (no rows)" if title else "(no rows)")
        return
    columns = {name: _texts([row[name] for row in rows]) for name in rows[0]}
    dropped = iter([name for name in spare if name in columns])
    if title:
        console.print(f"[bold]{escape(title)}[/]")
    while natural_width(console, table := _table(rows[0], columns)) > console.width:
        name = next(dropped, None)
        if name is None and folded:
            _show_folded(table, list(columns).index(folded))
            return
        if name is None:
            _show_records(columns)
            return
        del columns[name]
    console.print(table)
    console.print()


def _table(first: Mapping[str, Any], columns: Mapping[str, Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        number = isinstance(first[name], int | float) and not isinstance(first[name], bool)
        table.add_column(escape(name), justify="right" if number else "left")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(escape, row))
    return table


def _show_folded(table: Table, position: int) -> None:
    for k, column in enumerate(table.columns):
        column.no_wrap, column.overflow = k != position, "fold"
    if console.is_terminal:
        console.print(table)
    else:
        wide = console.options.update(width=natural_width(console, table))
        for line in console.render_lines(table, wide, pad=False):
            console.out("".join(segment.text for segment in line).rstrip(), highlight=False)
    console.print()


def _show_records(columns: Mapping[str, Sequence[str]]) -> None:
    """Print each row as lines of name and value, as psql's expanded form does."""
    for number, row in enumerate(zip(*columns.values(), strict=True), start=1):
        console.print(Rule(f"row {number}", align="left", style="dim"))
        grid = Table.grid(padding=(0, 2))
        for name, value in zip(columns, row, strict=True):
            grid.add_row(f"[bold]{escape(name)}[/]", escape(value))
        console.print(grid)
    console.print()


def _texts(values: Sequence[Any]) -> list[str]:
    """Return a column's values as text, its numbers with as many decimals each."""
    texts = [value_text(value) for value in values]
    floats = {text for text, value in zip(texts, values, strict=True) if isinstance(value, float)}
    if not floats or any(set(text) - set("-.0123456789") for text in floats):
        return texts
    decimals = max(len(text.partition(".")[2]) for text in floats)
    return [
        f"{value:.{decimals}f}" if isinstance(value, float) else text
        for text, value in zip(texts, values, strict=True)
    ]


def show_leaderboard(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a leaderboard with a column for each hyper-parameter that was searched."""
    metric = next((row["metric"] for row in rows if row["metric"]), None)
    loss = "training_loss" if metric is None else "validation_loss"
    names = ("objective", loss, "best_epoch", "total_s", "parent", "status", "error")
    kept = [n for n in names if any(row.get(n) is not None for row in rows)]
    if {row["status"] for row in rows} == {"trained"}:
        kept.remove("status")
    titles = {"objective": metric, loss: "loss", "best_epoch": "epoch", "total_s": "seconds"}
    if metric == "loss":  # it stands there as the objective
        kept.remove(loss)
    keys = dict.fromkeys(key for row in rows for key in row["config"])
    shown = [
        {"rank": row["rank"], "candidate": row["candidate_id"]}
        | {key.removeprefix("architecture."): row["config"].get(key) for key in keys}
        | {titles.get(name) or name: row[name] for name in kept}
        for row in rows
    ]
    show_rows("Leaderboard", shown, spare=_SPARE)


def show_probe_comparison(comparison: Comparison) -> None:
    """Print whether two probes are equal; if not, the first difference and a table of layers."""
    from mmdb.probe.table import LEGEND, table_lines

    style = {"equal": "green", "different": "bold red"}.get(comparison.verdict, "bold yellow")
    verdict, *lines = str(comparison).splitlines()
    console.print(f"[{style}]{escape(verdict)}[/]", highlight=False)
    if len(set(comparison.environments)) > 1:
        lines += [f"environment: {' and '.join(comparison.environments)}"]
    for line in lines:
        console.print(escape(line), highlight=False, soft_wrap=True)
    if comparison.equal:
        return
    console.print()
    for line, first in table_lines(comparison, width=console.width):
        text = Text(line, style="bold" if first else "", no_wrap=True, overflow="ellipsis")
        text.highlight_words(["≠"], "bold red")
        text.highlight_words(["="], "green")
        console.print(text)
    console.print(Text(LEGEND, style="dim"))


# -- progress -----------------------------------------------------------------


@contextmanager
def copy_progress(model: str, *, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows bytes sent and to be sent as a bar."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, disable=not shown, transient=True) as progress:
        task = progress.add_task(escape(model), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
