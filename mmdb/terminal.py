"""What people see in a terminal: progress, tables and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mmdb.errors import MmdbError
from mmdb.train.schedule import Schedule

console = Console()
errors = Console(stderr=True)


def show_error(error: MmdbError) -> None:
    """Print an error's class, message and hint; no traceback."""
    name = type(error).__name__
    errors.print(f"[bold red]{name}[/] [dim]({error.sqlstate})[/] {escape(error.message)}")
    if error.hint:
        errors.print(f"[bold]hint:[/] {escape(error.hint)}")


def show_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table; numbers to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name, value in (rows[0] if rows else {}).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*(escape(_text(value)) for value in row.values()))
    console.print(table)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return " ".join(_text(v) if k == "name" else f"{k}={_text(v)}" for k, v in value.items())
    return str(value)


def leaderboard_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a leaderboard's rows with a column for each hyper-parameter that was searched."""
    names = ("accuracy", "rmse", "validation_loss", "best_epoch", "total_s", "error")
    kept = [n for n in names if any(row[n] is not None for row in rows)]
    short = {"total_s": "seconds", "validation_loss": "loss", "best_epoch": "epoch"}
    return [
        {"rank": row["rank"], "candidate": row["candidate_id"]}
        | {key.removeprefix("architecture."): value for key, value in row["config"].items()}
        | {short.get(name, name): row[name] for name in kept}
        for row in rows
    ]


@contextmanager
def training_progress(run: str) -> Iterator[Callable[[Schedule], None]]:
    """Show a bar of a run's hops while the block trains it; yield what to call on each change."""
    columns = (
        TextColumn("[bold]{task.description}[/]"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("hops"),
        TextColumn("[dim]{task.fields[where]}[/]"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(run, total=None, where="starting workers")

        def on_change(schedule: Schedule) -> None:
            load = schedule.workload
            visits = load.partitions + load.validates
            done = sum(p.epoch * visits + len(p.visited) for p in schedule.progress)
            where = "  ".join(f"{worker}: {_where(hop)}" for worker, hop in _running(schedule))
            total = load.candidates * load.epochs * visits
            progress.update(bar, total=total, completed=done, where=where)

        yield on_change


def _running(schedule: Schedule) -> list[tuple[str, Any]]:
    return sorted(schedule.running.items())


def _where(hop: Any) -> str:
    part = "validation" if hop.part < 0 else f"part {hop.part}"
    return f"candidate {hop.candidate}, epoch {hop.epoch}, {part}"
