"""The last minute of each worker as a bar: one colour a candidate, validations hatched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.style import Style
from rich.text import Text

from mmdb.train.watch import WorkerView, WorkSegment
from mmdb.train.watch.progress import WINDOW_S

#: Distinct on dark and on light, and light enough for black figures; red is kept for failures.
COLORS = (
    "#5b9bd5",
    "#f2a154",
    "#6bbf59",
    "#c590c0",
    "#76c7c0",
    "#edc948",
    "#ff9da7",
    "#b5a07f",
    "#9ad0f5",
    "#b8d977",
    "#d9b3ff",
    "#e0c5a3",
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
