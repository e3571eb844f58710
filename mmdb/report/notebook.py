"""What notebooks show of runs, models, differences and lineage: HTML without script or links.

Whatever comes from data is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from mmdb.data.names import found_run
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import MmdbError
from mmdb.lineage.entity import attributes
from mmdb.messages import bytes_text
from mmdb.report import run_sections
from mmdb.report.facts import RunFacts, read_board
from mmdb.report.lineage_graph import graph_of
from mmdb.report.parts import LIGHT, TableColumn
from mmdb.report.picture import drawing

if TYPE_CHECKING:  # these load torch, or much else
    from networkx import DiGraph

    from mmdb.store.models.diff import TensorDifference
    from mmdb.store.models.model_rows import SavedModel
    from mmdb.store.tensors.state_entries import Entry

_Q = load("report")
_STEP = ("depth", "kind", "parent", "child", "via")
#: Rows of a table that are shown.
SHOWN = 20
_RIGHT = ' style="text-align: right"'


class LineageRows(list[Mapping[str, Any]]):
    """Steps of a lineage: depth, kind, parent, child, via; a notebook draws them.

    Args:
        direction: in which they were walked.
    """

    def __init__(
        self, rows: Iterable[Mapping[str, Any]] = (), direction: Literal["up", "down"] = "up"
    ) -> None:
        super().__init__(rows)
        self.direction = direction

    @property
    def _start(self) -> str:
        return str(self[0]["child" if self.direction == "up" else "parent"])

    def graph(self) -> DiGraph:
        """Return the steps as a `networkx.DiGraph`, whose edges lead from parents to children.

        Nodes have a depth, a kind, a name, and a version or numbers where their kind has some;
        edges have a depth, and in `via` all that one came by from the other: docs/lineage.md.
        """
        from networkx import DiGraph  # takes longer to load than most lineages to read

        found = DiGraph(direction=self.direction)
        if self:
            found.graph["entity"] = self._start
            found.add_node(self._start, depth=0, **attributes(self._start))
        for row in self:  # those next to the start first
            parent, child, depth = row["parent"], row["child"], row["depth"]
            far = parent if self.direction == "up" else child
            if far not in found:
                found.add_node(far, depth=depth, **attributes(far))
            via = found.edges[parent, child]["via"] if found.has_edge(parent, child) else ()
            found.add_edge(parent, child, depth=depth, via=(*via, row["via"]))
        return found

    def _repr_html_(self) -> str:
        if not self:
            return _paragraph("No lineage is known.")
        edges = [(row["parent"], row["child"], row["via"] or "") for row in self]
        graph = graph_of(edges, self._start)
        left = f"{graph.left_out:,} more are too far away to be drawn." if graph.left_out else ""
        columns = [TableColumn(key=key, label=key) for key in _STEP]
        return (
            f'<div style="overflow-x: auto">{drawing(graph, theme=LIGHT)}</div>'
            f"{_paragraph(left)}<details><summary>{_many(len(self), 'step')}</summary>"
            f"{_table(columns, self)}</details>"
        )


class Differences(list["TensorDifference"]):
    """The tensors in which two models differ; a notebook shows them as a table."""

    def __init__(self, rows: Iterable[TensorDifference] = (), title: str = "") -> None:
        super().__init__(rows)
        self.title = title

    def _repr_html_(self) -> str:
        if not self:
            return _titled(self.title) + _paragraph("No tensor differs.")
        columns = [
            TableColumn(key="path", label="tensor"),
            TableColumn(key="change", label="change"),
            TableColumn(key="dtype", label="dtype"),
            TableColumn(key="shape", label="shape", show=_shape),
            TableColumn(key="l2", label="L2 distance", right=True),
            TableColumn(key="max_abs", label="largest difference", right=True),
        ]
        rows = [{column.key: getattr(row, column.key) for column in columns} for row in self]
        return _titled(self.title) + _table(columns, rows)


def html_or_error(make: Callable[[], str]) -> str:
    """Return what `make` returns, or what kept it from that: a notebook would show a traceback."""
    try:
        return make()
    except MmdbError as error:
        return _paragraph(str(error))


def run_html(connection: Connection, name: str) -> str:
    """Return how far a run is, and its best candidates.

    Raises:
        RunNotFound
    """
    run = found_run(connection.rows(_Q.find_run, run=name), name)
    board = read_board(connection, name)
    section = run_sections.leaderboard_section(RunFacts(run=run, board=board))
    shown = _table(section.tables[0].columns, section.tables[0].rows, len(board)) if section else ""
    told = (
        f"{run['status']}, dataset {run['dataset']}, {run['hops_done']:,} of "
        f"{run['hops_total']:,} hops, {_many(run['candidates'], 'candidate')}"
    )
    return _titled(f"Run {name}") + _paragraph(told) + shown


def model_html(model: SavedModel, entries: Sequence[Entry]) -> str:
    """Return what a model consists of; no tensor is read."""
    kept = [one for one in entries if one.kind in ("parameter", "buffer")]
    size = sum(one.byte_count for one in kept if one.tied_to is None)
    columns = [
        TableColumn(key="path", label="tensor"),
        TableColumn(key="dtype", label="dtype"),
        TableColumn(key="shape", label="shape", show=_shape),
        TableColumn(key="byte_count", label="size", show=bytes_text, right=True),
    ]
    rows = [{column.key: getattr(one, column.key) for column in columns} for one in kept]
    told = f"{model.approach}, {_many(len(kept), 'tensor')}, {bytes_text(size)}"
    return _titled(f"Model {model.reference}") + _paragraph(told) + _table(columns, rows)


def _table(
    columns: Sequence[TableColumn], rows: Sequence[Mapping[str, Any]], count: int | None = None
) -> str:
    """Return the first rows as a table, and how many more there are."""
    head = "".join(f"<th{_side(column)}>{escape(column.label)}</th>" for column in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td{_side(c)}>{escape(c.show(row[c.key]))}</td>" for c in columns)
        + "</tr>"
        for row in rows[:SHOWN]
    )
    more = (len(rows) if count is None else count) - min(len(rows), SHOWN)
    left = _paragraph(f"{more:,} more rows") if more else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{left}"


def _side(column: TableColumn) -> str:
    return _RIGHT if column.right else ""


def _shape(shape: Sequence[int]) -> str:
    """Return a shape as text.

    >>> _shape((3, 4)), _shape(())
    ('3 x 4', 'scalar')
    """
    return " x ".join(map(str, shape)) or "scalar"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _titled(title: str) -> str:
    return f"<p><b>{escape(title)}</b></p>" if title else ""


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""
