"""What a query reads, as a graph: columns made from columns, rows chosen by columns.

Binding (`select`, `tables`, `expressions`) builds it once; `reach` walks it. A recursive query is a
cycle, a view that is read twice is there once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where a walk ends: a base table's column; None: only the table, or not even that, is sure."""

    schema: str | None = None
    table: str | None = None
    column: str | None = None


#: Steps of a walk. Pairs of views that read pairs of views have more ways than can be told.
_MOST_STEPS = 50_000

#: Something that cannot be told.
UNKNOWN = Leaf()


@dataclass(eq=False, slots=True)
class Column:
    """A column of a table, a subquery or a result."""

    name: str | None  # as the engine compares it; None: the engine's own for an expression
    label: str = ""  # as it is spelled
    leaf: Leaf | None = None  # a base table's, or not known
    reads: list[Column] = field(default_factory=list)  # what its expression is made of
    queries: list[Rows] = field(default_factory=list)  # subqueries in its expression
    view: str | None = None  # it is this view's; what it reads is the definition's
    names: tuple[str, ...] = ()  # what an engine may call it, where `name` is None
    is_gap: bool = False  # any number of columns whose names are not known


@dataclass(eq=False, slots=True)
class Rows:
    """The rows of a table, a subquery or a result."""

    columns: list[Column] = field(default_factory=list)
    decides: list[Column] = field(default_factory=list)  # which rows there are, or their order
    inner: list[Rows] = field(default_factory=list)  # those it is made from
    table: Leaf | None = None
    view: str | None = None
    schema: str | None = None  # of a table or view, as the engine compares it

    @property
    def has_gap(self) -> bool:
        """Whether some of its columns are not known."""
        return any(column.is_gap for column in self.columns)


class Reached(NamedTuple):
    """The end of a walk, and the views that it went through, outermost first."""

    leaf: Leaf
    via: tuple[str, ...]


def unknown(name: str | None, label: str = "", leaf: Leaf = UNKNOWN) -> Column:
    """Return a column whose source cannot be told; perhaps its table can."""
    return Column(name, label or name or "", leaf=leaf)


def matched(columns: Sequence[Column], count: int) -> list[Column]:
    """Return as many columns as the database says that there are; what a gap holds is unknown."""
    gaps = [place for place, column in enumerate(columns) if column.is_gap]
    if not gaps:
        return list(columns) if len(columns) == count else [unknown(None) for _ in range(count)]
    before, after = columns[: gaps[0]], columns[gaps[-1] + 1 :]
    missing = count - len(before) - len(after)
    if missing < 0:
        return [unknown(None) for _ in range(count)]
    inside = [columns[place] for place in gaps]
    if len(gaps) > 1:
        inside.append(unknown(None))
    return [*before, *(Column(None, reads=inside) for _ in range(missing)), *after]


def gap(leaf: Leaf | None = UNKNOWN, reads: Sequence[Column] = ()) -> Column:
    """Return what stands for any number of columns; no leaf: they are made of what it reads."""
    return Column(None, leaf=leaf, reads=list(reads), is_gap=True)


def feeding(column: Column) -> set[Reached]:
    """Return what a column's values are made from."""
    return set(_walk([column], feeds_only=True))


def touching(rows: Rows) -> set[Reached]:
    """Return all that a result depends on: what it is made from, and what decides its rows."""
    return set(_walk([rows], feeds_only=False))


def _walk(starts: Iterable[Column | Rows], *, feeds_only: bool) -> Iterator[Reached]:
    seen: set[tuple[int, tuple[str, ...]]] = set()
    waiting: list[tuple[Column | Rows, tuple[str, ...]]] = [(start, ()) for start in starts]
    while waiting:
        node, via = waiting.pop()
        if (id(node), via) in seen or (node.view and node.view in via):
            continue
        if len(seen) == _MOST_STEPS:
            yield Reached(UNKNOWN, ())
            return
        seen.add((id(node), via))
        inside = (*via, node.view) if node.view else via
        leaf = node.leaf if isinstance(node, Column) else node.table
        if leaf is not None:
            yield Reached(leaf, inside)
        waiting += [(other, inside) for other in _next(node, feeds_only)]


def _next(node: Column | Rows, feeds_only: bool) -> Iterator[Column | Rows]:
    if isinstance(node, Column):
        yield from node.reads
        if not feeds_only:
            yield from node.queries
        return
    yield from node.decides
    yield from node.inner
