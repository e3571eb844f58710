"""A training while it goes on, drawn to the size of the terminal: a bar for each worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

from mmdb.terminal.output import value_text
from mmdb.train.watch import (
    CandidateView,
    RunView,
    Snapshot,
    WorkerView,
    WorkSegment,
    duration_text,
    number_text,
)
from mmdb.train.watch.progress import WINDOW_S
from mmdb.train.watch.snapshot import STATES, Failure

#: Distinct on dark and on light, and light enough for black figures; red is kept for failures.
COLORS = tuple(
    "#5b9bd5 #f2a154 #6bbf59 #c590c0 #76c7c0 #edc948 #ff9da7 #b5a07f "
    "#9ad0f5 #b8d977 #d9b3ff #e0c5a3".split()
)
IDLE, BEFORE = "·", " "
TRAIN, VALIDATION, FAILED = "━", "╌", "✗"
NEXT, NEXT_BLOCK = "┝", "▏"  # where another hop of the same candidate begins


def color_of(candidate: int) -> str:
    """Return the colour of a candidate, by its ordinal; they come round after the last."""
    return COLORS[candidate % len(COLORS)]


@dataclass(frozen=True, slots=True)
class Cell:
    """A stretch of a bar: a segment or, where there is none, idle time or the time before all."""

    segment: WorkSegment | None
    begun: bool


def cells_of(
    segments: Sequence[WorkSegment], now: float, began_at: float, width: int
) -> Iterator[Cell]:
    """Yield `width` cells, the last one ending now: what took most of each, if it took half of it.

    Args:
        segments: in order, without overlap.
        began_at: the time before it is left blank.
    """
    span, first = WINDOW_S / width, 0
    for k in range(width):
        begin, end = now - WINDOW_S + k * span, now - WINDOW_S + (k + 1) * span
        while first < len(segments) and _end(segments[first], now) <= begin:
            first += 1
        busy, most, longest = 0.0, None, 0.0
        for segment in segments[first:]:
            if segment.begin >= end:
                break
            overlap = min(end, _end(segment, now)) - max(begin, segment.begin)
            busy += overlap
            if segment.failed or overlap > longest:  # a failure is seen, however short it was
                most, longest = segment, span if segment.failed else overlap
        yield Cell(most if busy >= span / 2 else None, end > began_at)


def _end(segment: WorkSegment, now: float) -> float:
    return now if segment.end is None else segment.end


def bar(worker: WorkerView, now: float, began_at: float, width: int, *, color: bool) -> Text:
    """Return a worker's last minute in `width` columns."""
    text = Text(no_wrap=True)
    cells = cells_of(worker.segments, now, began_at, width)
    before: WorkSegment | None = None
    for (segment, begun), group in groupby(cells, key=lambda cell: (cell.segment, cell.begun)):
        columns = len(list(group))
        if segment is None:
            text.append((IDLE if begun else BEFORE) * columns, "dim")
        else:
            goes_on = before is not None and _subject(before) == _subject(segment)
            text.append_text(_stretch(segment, columns, goes_on, color))
        before = segment
    return text


def _subject(segment: WorkSegment) -> tuple[str, int, bool]:
    return segment.run, segment.candidate, segment.validates


def _stretch(segment: WorkSegment, columns: int, goes_on: bool, color: bool) -> Text:
    """Return one hop; its candidate stands in the first one, so that colour is no must."""
    if segment.failed:
        return Text(FAILED * columns, Style(color="red", bold=True))
    shade = color_of(segment.candidate)
    if segment.validates:
        return Text("▒" * columns, Style(color=shade)) if color else Text(VALIDATION * columns)
    label = (NEXT_BLOCK if color else NEXT) if goes_on else str(segment.label)
    label = label if len(label) < columns or goes_on else ""
    if not color:
        return Text(label.ljust(columns, TRAIN))
    return Text(label.ljust(columns), Style(color="#101010", bgcolor=shade))


#: A glyph and a style for each state, of one column each.
GLYPHS = {
    "training": ("▸", "bold green"),
    "waiting": ("·", "dim"),
    "resting": ("‖", "yellow"),
    "trained": ("✓", "green"),
    "stopped": ("■", "dim"),
    "failed": ("✗", "bold red"),
}
#: Below this many columns names are shortened and configurations left out.
NARROW = 60
BAR = 10  # columns of a candidate's bar of epochs
REST = "─"  # what is not done of a bar


class TrainingView:
    """A snapshot as lines, as many as fit: the run, the leaders, the workers, what failed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, max(8, options.height or console.height)
        color = console.color_system is not None and not console.no_color
        for line in islice(_lines(self._snapshot, width, height - 1, color), height - 1):
            line.truncate(width, overflow="ellipsis")
            yield line


def _lines(snapshot: Snapshot, width: int, height: int, color: bool) -> Iterator[Text]:
    """Yield the parts; the leaders get the height that the others leave."""
    head = [line for run in snapshot.runs for line in _head(run, snapshot.at, width, color)]
    failures = list(_failures(snapshot.failures, height))
    workers = list(_workers(snapshot, width, max(3, height // 3), color))
    room = height - len(head) - len(failures) - len(workers)
    yield from head
    if snapshot.runs:
        yield from _leaders(snapshot.runs[0], width, room, color)
    yield from workers
    yield from failures


# -- the run ------------------------------------------------------------------


def _head(run: RunView, now: float, width: int, color: bool) -> Iterator[Text]:
    yield _ends(_title(run, width), Text(_clock(now - run.began_at), "dim"), width)
    left = ""
    if run.seconds_left is not None and run.hops_done < run.hops_total:
        left = f"{duration_text(run.seconds_left)} left"
    count = f"{run.hops_done}/{run.hops_total} hops"
    rate = f"{_rate(run.hops_per_s)} hops/s" if run.hops_per_s else ""
    words = [w for w in (count, rate, left) if w] if width >= NARROW else [count, left]
    text = Text(" · ".join(w for w in words if w) or "starting")
    room = width - text.cell_len - 2
    share = run.hops_done / run.hops_total if run.hops_total else 0.0
    line = _meter(share, room, "green" if run.hops_done < run.hops_total else "bold green")
    yield _ends(line, text, width)
    yield _counts(run, width)
    if run.best is not None:
        yield _best(run, run.best, color)
    yield Text()


def _title(run: RunView, width: int) -> Text:
    about = f"  {run.strategy} · {_count(run.epochs, 'epoch')}" if width >= NARROW else ""
    return Text.assemble((run.run, "bold"), (about, "dim"))


def _counts(run: RunView, width: int) -> Text:
    """Return how many candidates are in each state that any is in."""
    text = Text(f"{run.candidates} candidates" if width >= NARROW else f"{run.candidates}")
    for state in STATES:
        if count := run.counts.get(state, 0):
            glyph, style = GLYPHS[state]
            text.append("  ").append(glyph, style).append(f" {count} {state}")
    return text


def _best(run: RunView, best: CandidateView, color: bool) -> Text:
    text = Text.assemble(("best ", "dim"), (f"{run.metric} {number_text(best.best)}", "bold"))
    text.append("  candidate ", "dim").append_text(_name(best, color))
    text.append(f" after {_count(best.best_epoch or 0, 'epoch')}  ", "dim")
    return text.append_text(_config(best, run.varied))


def _meter(share: float, width: int, style: str) -> Text:
    done = int(max(0.0, min(1.0, share)) * width)
    return Text.assemble((TRAIN * done, style), (REST * max(0, width - done), "bright_black"))


# -- the leaders --------------------------------------------------------------


def _leaders(run: RunView, width: int, room: int, color: bool) -> Iterator[Text]:
    """Yield a title and the best candidates, in at most `room` lines with a blank one below."""
    rows = room - 2 if run.candidates <= room - 2 else room - 3
    shown = run.leaders[: max(0, rows)]
    if not shown:
        return
    labels = max(2, *(len(str(c.label)) for c in shown))
    keys = run.varied if width >= NARROW else ()
    widths = [max(len(_short(key)), *(len(_value(c, key)) for c in shown)) for key in keys]
    metric = "" if run.metric is None else run.metric[:9].rjust(9)
    bars = BAR if width >= NARROW else 0
    title = f"{'':{labels + 2}}  {'epochs':<{bars + 6 + bool(bars)}}{metric}     best"
    for key, columns in zip(keys, widths, strict=True):
        title += f"  {_short(key):<{columns}}"
    yield Text(title.rstrip() if run.metric else title.replace("     best", ""), "dim")
    for candidate in shown:
        line = Text(" " * (labels - len(str(candidate.label))))
        glyph, style = GLYPHS[candidate.state]
        line.append_text(_name(candidate, color)).append(" ").append(glyph, style).append("  ")
        line.append_text(_epochs(candidate, run, bars, color))
        if run.metric is not None:
            line.append(f"{number_text(candidate.value):>9}", "dim")
            line.append(f"{number_text(candidate.best):>9}", "bold" if candidate.best else "")
        for key, columns in zip(keys, widths, strict=True):
            line.append(f"  {_value(candidate, key):<{columns}}")
        yield line
    if len(shown) < run.candidates:
        yield Text(f"{'':{labels + 2}}  and {run.candidates - len(shown)} more", "dim")
    yield Text()


def _epochs(candidate: CandidateView, run: RunView, bars: int, color: bool) -> Text:
    """Return a bar of what is done of the run's epochs, and the figures."""
    text = Text()
    if bars:
        done = int(bars * min(1.0, candidate.hops / (run.epochs * candidate.visits)))
        style = color_of(candidate.candidate) if color else ""
        text.append(TRAIN * done, style).append(REST * (bars - done), "bright_black").append(" ")
    return text.append(f"{f'{candidate.epochs}/{run.epochs}':<6}")


def _name(candidate: CandidateView, color: bool) -> Text:
    style = Style(color=color_of(candidate.candidate), bold=True) if color else Style(bold=True)
    return Text(str(candidate.label), style)


def _short(key: str) -> str:
    return key.removeprefix("architecture.")


def _value(candidate: CandidateView, key: str) -> str:
    return value_text(candidate.config.get(key))[:24]


def _config(candidate: CandidateView, varied: Sequence[str]) -> Text:
    text = Text()
    for key in varied:
        text.append(f" {_short(key)}=", "dim").append(_value(candidate, key))
    return text


# -- workers and failures -----------------------------------------------------


def _workers(snapshot: Snapshot, width: int, room: int, color: bool) -> Iterator[Text]:
    """Yield a bar for each worker and a scale, in at most `room` lines and a blank one."""
    workers = snapshot.workers
    if not workers:
        yield Text("starting workers", "dim")
        return
    shown = workers if len(workers) <= room - 1 else workers[: max(1, room - 2)]
    names = max(len(_worker_name(w, width)) for w in shown)
    columns = width - names - 2 - 5
    began_at = min((run.began_at for run in snapshot.runs), default=snapshot.at)
    for worker in shown:
        line = Text(_worker_name(worker, width).ljust(names), "" if worker.up else "red")
        line.append("  ").append_text(bar(worker, snapshot.at, began_at, columns, color=color))
        yield line.append(f"{worker.busy:>5.0%}", "dim")
    if len(shown) < len(workers):
        yield Text(f"and {len(workers) - len(shown)} more workers", "dim")
    scale = _ends(Text(f"-{WINDOW_S:.0f} s", "dim"), Text("now", "dim"), columns)
    yield Text(" " * (names + 2)).append_text(scale).append(" busy", "dim")


def _worker_name(worker: WorkerView, width: int) -> str:
    device = "" if worker.device in ("", "cpu") else f" {worker.device}"
    name = worker.worker.removeprefix("mmdb ") + device
    return name if width >= NARROW else name.removeprefix("worker ")[:10]


def _failures(failures: Sequence[Failure], height: int) -> Iterator[Text]:
    """Yield the last failures, as many as a sixth of the height."""
    shown = failures[-max(1, height // 6) :]
    if shown:
        yield Text()
    for failure in shown:
        yield Text.assemble(
            ("✗", "bold red"), f" candidate {failure.label}: ", " ".join(failure.error.split())
        )


# -- words --------------------------------------------------------------------


def _ends(left: Text, right: Text, width: int) -> Text:
    """Return a line with something at either end."""
    gap = max(1, width - left.cell_len - right.cell_len)
    return left.copy().append(" " * gap).append_text(right)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _clock(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds.

    >>> _clock(7.2), _clock(3725)
    ('0:07', '1:02:05')
    """
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def _rate(rate: float) -> str:
    """Return a rate with two significant digits.

    >>> _rate(0.034), _rate(3.42), _rate(1234.0)
    ('0.034', '3.4', '1234')
    """
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}" if rate >= 1 else f"{rate:.2g}"
