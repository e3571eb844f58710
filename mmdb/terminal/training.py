"""Showing a training while it goes on: drawn in a terminal, line by line elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from mmdb.terminal.live_view import TrainingView
from mmdb.terminal.output import console as standard
from mmdb.train.watch import Notices, Snapshot, Watch

#: Snapshots a second in a terminal.
HERTZ = 4
#: Seconds between two lines about epochs where there is no terminal, and without any news.
LINE_S, QUIET_S = 5.0, 30.0
#: Terminals that know it draw what stands between these two at once; others pass it over.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"


@contextmanager
def training_watch(*, quiet: bool = False, console: Console | None = None) -> Iterator[Watch]:
    """Yield a watch to train with, and show what it sees until the block ends.

    Args:
        quiet: show nothing.
        console: where; standard output if left out.
    """
    console = standard if console is None else console
    if quiet:
        yield Watch()
    elif console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield Watch(_drawn(live), every_s=1 / HERTZ)
    else:
        yield Watch(_lines(console))


def _drawn(live: Live) -> Callable[[Snapshot], None]:
    file = live.console.file

    def show(snapshot: Snapshot) -> None:
        file.write(_BEGIN)
        try:
            live.update(TrainingView(snapshot), refresh=True)
        finally:
            file.write(_END)
            file.flush()

    return show


def _lines(console: Console) -> Callable[[Snapshot], None]:
    notices = Notices(every_s=LINE_S, quiet_s=QUIET_S)

    def show(snapshot: Snapshot) -> None:
        for line in notices.lines(snapshot):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    return show
