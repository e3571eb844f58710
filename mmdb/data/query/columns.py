"""What a query reads, as a graph: columns made from columns, rows chosen by columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot import exp


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
class QueryColumn:
    """A column of a table, a subquery or a result."""

    name: str | None  # as the engine compares it; None: the engine's own for an expression
    label: str = ""  # as it is spelled
    leaf: Leaf | None = None  # a base table's, or not known
    reads: list[QueryColumn] = field(default_factory=list)  # what its expression is made of
    queries: list[QueryRows] = field(default_factory=list)  # subqueries in its expression
    view: str | None = None  # it is this view's; what it reads is the definition's
    names: tuple[str, ...] = ()  # what an engine may call it, where `name` is None
    is_gap: bool = False  # any number of columns whose names are not known


@dataclass(eq=False, slots=True)
class QueryRows:
    """The rows of a table, a subquery or a result."""

    columns: list[QueryColumn] = field(default_factory=list)
    decides: list[QueryColumn] = field(default_factory=list)  # which rows there are, or their order
    inner: list[QueryRows] = field(default_factory=list)  # those it is made from
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


def unknown(name: str | None, label: str = "", leaf: Leaf = UNKNOWN) -> QueryColumn:
    """Return a column whose source cannot be told; perhaps its table can."""
    return QueryColumn(name, label or name or "", leaf=leaf)


def matched(columns: Sequence[QueryColumn], count: int) -> list[QueryColumn]:
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
    return [*before, *(QueryColumn(None, reads=inside) for _ in range(missing)), *after]


def gap(leaf: Leaf | None = UNKNOWN, reads: Sequence[QueryColumn] = ()) -> QueryColumn:
    """Return what stands for any number of columns; no leaf: they are made of what it reads."""
    return QueryColumn(None, leaf=leaf, reads=list(reads), is_gap=True)


def feeding(column: QueryColumn) -> set[Reached]:
    """Return what a column's values are made from."""
    return set(_walk([column], feeds_only=True))


def touching(rows: QueryRows) -> set[Reached]:
    """Return all that a result depends on: what it is made from, and what decides its rows."""
    return set(_walk([rows], feeds_only=False))


def _walk(starts: Iterable[QueryColumn | QueryRows], *, feeds_only: bool) -> Iterator[Reached]:
    seen: set[tuple[int, tuple[str, ...]]] = set()
    waiting: list[tuple[QueryColumn | QueryRows, tuple[str, ...]]] = [
        (start, ()) for start in starts
    ]
    while waiting:
        node, via = waiting.pop()
        if (id(node), via) in seen or (node.view and node.view in via):
            continue
        if len(seen) == _MOST_STEPS:
            yield Reached(UNKNOWN, ())
            return
        seen.add((id(node), via))
        inside = (*via, node.view) if node.view else via
        leaf = node.leaf if isinstance(node, QueryColumn) else node.table
        if leaf is not None:
            yield Reached(leaf, inside)
        waiting += [(other, inside) for other in _next(node, feeds_only)]


def _next(node: QueryColumn | QueryRows, feeds_only: bool) -> Iterator[QueryColumn | QueryRows]:
    if isinstance(node, QueryColumn):
        yield from node.reads
        if not feeds_only:
            yield from node.queries
        return
    yield from node.decides
    yield from node.inner


def united(node: exp.SetOperation, left: QueryRows, right: QueryRows) -> QueryRows:
    """Return the rows of a set operation; of EXCEPT, the right side's only decide."""
    rows = QueryRows(inner=[left, right])
    feeds = not isinstance(node, exp.Except)
    if node.args.get("by_name"):
        rows.columns = _by_names(left, right)
    else:
        rows.columns = _by_places(left, right, feeds)
    if node.args.get("distinct") or not feeds or isinstance(node, exp.Intersect):
        rows.decides = [*left.columns, *right.columns]
    return rows


def renamed(rows: QueryRows, names: Sequence[tuple[str, str]]) -> QueryRows:
    """Return rows made from others, whose first columns have other names."""
    columns = [
        c if c.is_gap else QueryColumn(c.name, c.label, reads=[c], names=c.names)
        for c in rows.columns
    ]
    known = not any(column.is_gap for column in columns[: len(names)])
    if not known or len(names) > len(columns):
        return QueryRows([*(unknown(*name) for name in names), gap()], inner=[rows])
    for column, (name, label) in zip(columns, names, strict=False):
        column.name, column.label = name, label
    return QueryRows(columns, inner=[rows])


def feed_back(rows: QueryRows, again: QueryRows) -> None:
    """Let the rows that a recursive query reads be made from what it adds, too."""
    if again.has_gap or rows.has_gap or len(rows.columns) != len(again.columns):
        for column in rows.columns:
            column.reads.append(unknown(None))
        return
    for column, added in zip(rows.columns, again.columns, strict=True):
        column.reads.append(added)


def _by_places(left: QueryRows, right: QueryRows, feeds: bool) -> list[QueryColumn]:
    """Return the outputs of a set operation: the first branch names them."""
    if left.has_gap and right.has_gap:
        return _up_to_gaps(left, right, feeds)
    count = len(right.columns) if left.has_gap else len(left.columns)
    pairs = zip(matched(left.columns, count), matched(right.columns, count), strict=True)
    return [
        QueryColumn(a.name, a.label, names=a.names, reads=[a, b] if feeds else [a])
        for a, b in pairs
    ]


def _up_to_gaps(left: QueryRows, right: QueryRows, feeds: bool) -> list[QueryColumn]:
    """Return outputs of branches whose places are not all known: sure ones, then a gap."""
    columns: list[QueryColumn] = []
    for a, b in zip(left.columns, right.columns, strict=False):
        if a.is_gap or b.is_gap:
            break
        columns.append(QueryColumn(a.name, a.label, names=a.names, reads=[a, b] if feeds else [a]))
    hidden = [c for rows in (left, right) for c in rows.columns if c.is_gap]
    return [*columns, gap(reads=hidden)]


def _by_names(left: QueryRows, right: QueryRows) -> list[QueryColumn]:
    """Return the outputs of UNION BY NAME: those of the left, then what the right adds."""
    columns = [QueryColumn(c.name, c.label, reads=[c], is_gap=c.is_gap) for c in left.columns]
    there = {column.name: column for column in columns if column.name is not None}
    is_sure = all(c.name is not None for rows in (left, right) for c in rows.columns)
    for column in right.columns:
        if column.name is not None and column.name in there:
            there[column.name].reads.append(column)
        else:
            columns.append(
                QueryColumn(column.name, column.label, reads=[column], is_gap=column.is_gap)
            )
    if not is_sure:
        for column in columns:
            column.reads.append(unknown(None))
    return columns
