"""Tables as the database describes them, and views as their definitions say."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from mmdb.data.query.columns import Column, Leaf, Rows, matched, unknown
from mmdb.data.query.dialects import DIALECTS
from mmdb.data.query.lost import marked
from mmdb.data.query.names import fold
from mmdb.data.query.select import Selects, TooLarge
from mmdb.data.query.statement import Engine
from mmdb.data.query.tables import unread
from mmdb.db.relations import Relation, TableName

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
    _named: dict[tuple[TableName, Relation | None], Rows] = field(default_factory=dict)
    _views: dict[Relation, Rows | None] = field(default_factory=dict)  # None: under way

    def rows(self, name: TableName, beside: Relation | None = None) -> Rows:
        """Return the rows of what a name means; unread ones where that is not known."""
        key = name, beside
        if key not in self._named:
            found = self.catalog.relation(name, beside)
            self._named[key] = self._unknown(name) if found is None else self._rows(found)
        return self._named[key]

    def _unknown(self, name: TableName) -> Rows:
        rows = unread(Leaf(name.schema, name.name))
        rows.schema = name.schema
        return rows

    def _rows(self, relation: Relation) -> Rows:
        if relation.definition is None or relation.schema in _CLOSED:
            return self._table(relation)
        if relation not in self._views:
            self._views[relation] = None
            self._views[relation] = self._view(relation)
        rows = self._views[relation]
        return self._opaque(relation) if rows is None else rows  # a view that reads itself

    def _table(self, relation: Relation) -> Rows:
        schema, name = relation.shown_schema, relation.name
        return Rows(
            [
                Column(self._fold(column), column, leaf=Leaf(schema, name, column))
                for column, _ in relation.columns
            ],
            table=Leaf(schema, name),
            schema=self._fold(relation.schema),
        )

    def _opaque(self, relation: Relation) -> Rows:
        """Return a view's rows, of which no more is told than that they are the view's."""
        leaf = Leaf(relation.shown_schema, relation.name)
        columns = [unknown(self._fold(c), c, leaf) for c, _ in relation.columns]
        return Rows(columns, table=leaf, schema=self._fold(relation.schema))

    def _view(self, relation: Relation) -> Rows:
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
            Column(self._fold(name), name, reads=[inside], view=label)
            for (name, _), inside in zip(relation.columns, made, strict=True)
        ]
        inner = Rows(inner=[body], view=label)
        return Rows(columns, inner=[inner], schema=self._fold(relation.schema))

    def _body(self, relation: Relation) -> Rows:
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
