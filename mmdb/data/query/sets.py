"""Set operations, and columns that have other names further out."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from mmdb.data.query.columns import Column, Rows, gap, matched, unknown


def united(node: exp.SetOperation, left: Rows, right: Rows) -> Rows:
    """Return the rows of a set operation; of EXCEPT, the right side's only decide."""
    rows = Rows(inner=[left, right])
    feeds = not isinstance(node, exp.Except)
    if node.args.get("by_name"):
        rows.columns = _by_names(left, right)
    else:
        rows.columns = _by_places(left, right, feeds)
    if node.args.get("distinct") or not feeds or isinstance(node, exp.Intersect):
        rows.decides = [*left.columns, *right.columns]
    return rows


def renamed(rows: Rows, names: Sequence[tuple[str, str]]) -> Rows:
    """Return rows made from others, whose first columns have other names."""
    columns = [
        c if c.is_gap else Column(c.name, c.label, reads=[c], names=c.names) for c in rows.columns
    ]
    known = not any(column.is_gap for column in columns[: len(names)])
    if not known or len(names) > len(columns):
        return Rows([*(unknown(*name) for name in names), gap()], inner=[rows])
    for column, (name, label) in zip(columns, names, strict=False):
        column.name, column.label = name, label
    return Rows(columns, inner=[rows])


def feed_back(rows: Rows, again: Rows) -> None:
    """Let the rows that a recursive query reads be made from what it adds, too."""
    if again.has_gap or rows.has_gap or len(rows.columns) != len(again.columns):
        for column in rows.columns:
            column.reads.append(unknown(None))
        return
    for column, added in zip(rows.columns, again.columns, strict=True):
        column.reads.append(added)


def _by_places(left: Rows, right: Rows, feeds: bool) -> list[Column]:
    """Return the outputs of a set operation: the first branch names them."""
    if left.has_gap and right.has_gap:
        return _up_to_gaps(left, right, feeds)
    count = len(right.columns) if left.has_gap else len(left.columns)
    pairs = zip(matched(left.columns, count), matched(right.columns, count), strict=True)
    return [
        Column(a.name, a.label, names=a.names, reads=[a, b] if feeds else [a]) for a, b in pairs
    ]


def _up_to_gaps(left: Rows, right: Rows, feeds: bool) -> list[Column]:
    """Return outputs of branches whose places are not all known: sure ones, then a gap."""
    columns: list[Column] = []
    for a, b in zip(left.columns, right.columns, strict=False):
        if a.is_gap or b.is_gap:
            break
        columns.append(Column(a.name, a.label, names=a.names, reads=[a, b] if feeds else [a]))
    hidden = [c for rows in (left, right) for c in rows.columns if c.is_gap]
    return [*columns, gap(reads=hidden)]


def _by_names(left: Rows, right: Rows) -> list[Column]:
    """Return the outputs of UNION BY NAME: those of the left, then what the right adds."""
    columns = [Column(c.name, c.label, reads=[c], is_gap=c.is_gap) for c in left.columns]
    there = {column.name: column for column in columns if column.name is not None}
    is_sure = all(c.name is not None for rows in (left, right) for c in rows.columns)
    for column in right.columns:
        if column.name is not None and column.name in there:
            there[column.name].reads.append(column)
        else:
            columns.append(Column(column.name, column.label, reads=[column], is_gap=column.is_gap))
    if not is_sure:
        for column in columns:
            column.reads.append(unknown(None))
    return columns
