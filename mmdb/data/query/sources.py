"""What a query reads, output by output, from tables and views as the database describes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from mmdb.data.query.columns import (
    UNKNOWN,
    Leaf,
    QueryColumn,
    QueryRows,
    Reached,
    feeding,
    gap,
    matched,
    touching,
    unknown,
)
from mmdb.data.query.names import fold, marked, table_name
from mmdb.data.query.select import Selects, TooLarge
from mmdb.data.query.statement import DIALECTS, Engine, parse_select
from mmdb.data.query.tables import unread
from mmdb.db.connection import Relation, TableName

#: What a query may hold that is not followed. A form of SQL that the parser knows, and this package
#: does not, must not keep a dataset from being made.
NOT_FOLLOWED = (
    *(SqlglotError, RecursionError, TooLarge),
    *(AttributeError, LookupError, TypeError, ValueError),
)
#: Schemas whose views are taken as tables.
_CLOSED = {"mmdb", "pg_catalog", "information_schema"}
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


class Catalog(Protocol):
    """The tables and views that a session sees."""

    def relation(self, name: TableName, beside: Relation | None = None) -> Relation | None:
        """Return the relation of a name, or None where it is not there or not sure.

        Args:
            beside: the view in whose definition the name stands.
        """


@dataclass(slots=True)
class Relations:
    """The relations of one query, each looked up once and each view bound once."""

    engine: Engine
    catalog: Catalog
    deepest: int = 32  # views in views
    _named: dict[tuple[TableName, Relation | None], QueryRows] = field(default_factory=dict)
    _views: dict[Relation, QueryRows | None] = field(default_factory=dict)  # None: under way

    def rows(self, name: TableName, beside: Relation | None = None) -> QueryRows:
        """Return the rows of what a name means; unread ones where that is not known."""
        key = name, beside
        if key not in self._named:
            found = self.catalog.relation(name, beside)
            self._named[key] = self._unknown(name) if found is None else self._rows(found)
        return self._named[key]

    def _unknown(self, name: TableName) -> QueryRows:
        rows = unread(Leaf(name.schema, name.name))
        rows.schema = name.schema
        return rows

    def _rows(self, relation: Relation) -> QueryRows:
        if relation.definition is None or relation.schema in _CLOSED:
            return self._table(relation)
        if relation not in self._views:
            self._views[relation] = None
            self._views[relation] = self._view(relation)
        rows = self._views[relation]
        return self._opaque(relation) if rows is None else rows  # a view that reads itself

    def _table(self, relation: Relation) -> QueryRows:
        schema, name = relation.shown_schema, relation.name
        return QueryRows(
            [
                QueryColumn(self._fold(column), column, leaf=Leaf(schema, name, column))
                for column, _ in relation.columns
            ],
            table=Leaf(schema, name),
            schema=self._fold(relation.schema),
        )

    def _opaque(self, relation: Relation) -> QueryRows:
        """Return a view's rows, of which no more is told than that they are the view's."""
        leaf = Leaf(relation.shown_schema, relation.name)
        columns = [unknown(self._fold(c), c, leaf) for c, _ in relation.columns]
        return QueryRows(columns, table=leaf, schema=self._fold(relation.schema))

    def _view(self, relation: Relation) -> QueryRows:
        under_way = sum(rows is None for rows in self._views.values())
        if under_way > self.deepest:
            return self._opaque(relation)
        try:
            body = self._body(relation)
        except NOT_FOLLOWED:
            return self._opaque(relation)
        if len(body.columns) != len(relation.columns) and not body.has_gap:
            return self._opaque(relation)
        label = _label(relation)
        made = matched(body.columns, len(relation.columns))
        columns = [
            QueryColumn(self._fold(name), name, reads=[inside], view=label)
            for (name, _), inside in zip(relation.columns, made, strict=True)
        ]
        inner = QueryRows(inner=[body], view=label)
        return QueryRows(columns, inner=[inner], schema=self._fold(relation.schema))

    def _body(self, relation: Relation) -> QueryRows:
        assert relation.definition is not None
        parsed = sqlglot.parse_one(relation.definition, read=DIALECTS[self.engine])
        query = parsed.expression if isinstance(parsed, exp.Create) else parsed
        bound = Selects(self.engine, partial(self.rows, beside=relation)).bind(query)
        return marked(bound, relation.definition, parsed, self.engine)

    def _fold(self, name: str) -> str:
        return fold(name, self.engine, is_quoted=True)


def _label(relation: Relation) -> str:
    parts = (*relation.shown_schema.split("."), relation.name)
    return ".".join(p if _PLAIN.fullmatch(p) else '"' + p.replace('"', '""') + '"' for p in parts)


#: column; table: no more is sure; unresolved: of an unknown source.
Resolution = Literal["column", "table", "unresolved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceColumn:
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
    rows: QueryRows

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs as far as the text names them; empty where it does not show them all."""
        return () if self.rows.has_gap else tuple(column.label for column in self.rows.columns)

    @property
    def sources(self) -> tuple[SourceColumn, ...]:
        """What is read, by the outputs' names in the text."""
        return tuple(_sources(self.rows, [(c.label, c) for c in self.rows.columns]))

    def sources_of(self, columns: Sequence[str]) -> list[SourceColumn]:
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


def _tables_alone(statement: exp.Expr, engine: Engine, relations: Relations) -> QueryRows:
    """Return rows of which nothing is told but the tables that the text names."""
    named = {cte.alias_or_name for cte in statement.find_all(exp.CTE)}
    inner = [
        relations.rows(table_name(table, engine))
        for table in statement.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not (not table.db and table.name in named)
    ]
    return QueryRows([gap()], inner=inner)


def _sources(rows: QueryRows, outputs: Sequence[tuple[str, QueryColumn]]) -> list[SourceColumn]:
    feeds = [(name, reached) for name, column in outputs for reached in feeding(column)]
    found = {_source(reached, name) for name, reached in feeds}
    fed = {_place(source) for source in found if source.column is not None}
    whole = QueryRows([], [column for _, column in outputs], [rows])
    rest = [_source(reached, None) for reached in touching(whole) if reached.leaf.table]
    found |= {s for s in rest if s.column is not None and _place(s) not in fed}
    is_unsure = any(source.resolution == "unresolved" for source in found)
    if not is_unsure and any(reached.leaf.table is None for reached in touching(whole)):
        found.add(_source(Reached(UNKNOWN, ()), None))
    told = {(source.schema, source.table, source.via) for source in found}
    found |= {s for s in rest if s.column is None and (s.schema, s.table, s.via) not in told}
    return sorted(found, key=_order)


def _source(reached: Reached, output: str | None) -> SourceColumn:
    leaf = reached.leaf
    resolution: Resolution = "unresolved"
    if leaf.table is not None:
        resolution = "table" if leaf.column is None else "column"
    return SourceColumn(
        schema=leaf.schema,
        table=leaf.table or "",
        column=leaf.column,
        output=output,
        via=reached.via if leaf.table is not None else (),
        resolution=resolution,
    )


def _place(source: SourceColumn) -> tuple[str | None, str, str | None]:
    return source.schema, source.table, source.column


def _order(source: SourceColumn) -> tuple[bool, str, str, str, str, tuple[str, ...]]:
    return (
        source.output is None,
        source.schema or "",
        source.table,
        source.column or "",
        source.output or "",
        source.via,
    )
