"""What a query reads, output by output, under the names that the database gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from mmdb.data.query.columns import UNKNOWN, Column, Reached, Rows, feeding, gap, matched, touching
from mmdb.data.query.lost import marked
from mmdb.data.query.names import table_name
from mmdb.data.query.relations import NOT_FOLLOWED, Catalog, Relations
from mmdb.data.query.select import Selects
from mmdb.data.query.statement import Engine, parse_select

#: column; table: no more is sure; unresolved: of an unknown source.
Resolution = Literal["column", "table", "unresolved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A base table's column that the query reads, and the output column that it feeds."""

    schema: str | None  # None: not known
    table: str  # empty: not known
    column: str | None  # None: only the table is sure, or not even that
    output: str | None  # None: it only decides which rows there are, or their order
    via: tuple[str, ...] = ()  # the views through which it is read, outermost first
    resolution: Resolution = "column"


@dataclass(frozen=True, slots=True)
class Analysis:
    """A query that is one SELECT, and what it reads."""

    select: str  # the text without a trailing semicolon or comment
    rows: Rows

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs as far as the text names them; empty where it does not show them all."""
        return () if self.rows.has_gap else tuple(column.label for column in self.rows.columns)

    @property
    def sources(self) -> tuple[Source, ...]:
        """What is read, by the outputs' names in the text."""
        return tuple(_sources(self.rows, [(c.label, c) for c in self.rows.columns]))

    def sources_of(self, columns: Sequence[str]) -> list[Source]:
        """Return what is read, by the names that the database gives to the outputs."""
        made = matched(self.rows.columns, len(columns))
        return _sources(self.rows, list(zip(columns, made, strict=True)))


def analyse(query: str, engine: Engine, catalog: Catalog) -> Analysis:
    """Return the query's text, ready to be put in parentheses, and the columns that it reads.

    Raises:
        QueryError: it cannot be parsed; the message says where.
        NotOneStatement: it holds none, or several.
        NotASelect: it writes, locks, or reads from schema mmdb.
    """
    select, statement = parse_select(query, engine)
    relations = Relations(engine, catalog)
    try:
        bound = Selects(engine, relations.rows).bind(statement)
        rows = marked(bound, query, statement, engine)
    except NOT_FOLLOWED:
        rows = _tables_alone(statement, engine, relations)
    return Analysis(select, rows)


def _tables_alone(statement: exp.Expr, engine: Engine, relations: Relations) -> Rows:
    """Return rows of which nothing is told but the tables that the text names."""
    named = {cte.alias_or_name for cte in statement.find_all(exp.CTE)}
    inner = [
        relations.rows(table_name(table, engine))
        for table in statement.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not (not table.db and table.name in named)
    ]
    return Rows([gap()], inner=inner)


def _sources(rows: Rows, outputs: Sequence[tuple[str, Column]]) -> list[Source]:
    feeds = [(name, reached) for name, column in outputs for reached in feeding(column)]
    found = {_source(reached, name) for name, reached in feeds}
    fed = {_place(source) for source in found if source.column is not None}
    whole = Rows([], [column for _, column in outputs], [rows])
    rest = [_source(reached, None) for reached in touching(whole) if reached.leaf.table]
    found |= {s for s in rest if s.column is not None and _place(s) not in fed}
    is_unsure = any(source.resolution == "unresolved" for source in found)
    if not is_unsure and any(reached.leaf.table is None for reached in touching(whole)):
        found.add(_source(Reached(UNKNOWN, ()), None))
    told = {(source.schema, source.table, source.via) for source in found}
    found |= {s for s in rest if s.column is None and (s.schema, s.table, s.via) not in told}
    return sorted(found, key=_order)


def _source(reached: Reached, output: str | None) -> Source:
    leaf = reached.leaf
    resolution: Resolution = "unresolved"
    if leaf.table is not None:
        resolution = "table" if leaf.column is None else "column"
    return Source(
        schema=leaf.schema,
        table=leaf.table or "",
        column=leaf.column,
        output=output,
        via=reached.via if leaf.table is not None else (),
        resolution=resolution,
    )


def _place(source: Source) -> tuple[str | None, str, str | None]:
    return source.schema, source.table, source.column


def _order(source: Source) -> tuple[bool, str, str, str, str, tuple[str, ...]]:
    return (
        source.output is None,
        source.schema or "",
        source.table,
        source.column or "",
        source.output or "",
        source.via,
    )
