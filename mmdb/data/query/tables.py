"""Binds a FROM: tables, views, subqueries, functions, and joins of them, to their columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from mmdb.data.query.columns import UNKNOWN, Leaf, QueryColumn, QueryRows, gap, unknown
from mmdb.data.query.expressions import QUERIES, Reader
from mmdb.data.query.functions import calls_in, function_columns, function_name
from mmdb.data.query.names import claim, name_of, shown, table_name
from mmdb.data.query.scope import Cte, Frame, Range, Scope
from mmdb.data.query.statement import Engine
from mmdb.db.connection import TableName


@dataclass(frozen=True, slots=True)
class Binder:
    """How a FROM finds the columns of subqueries, of WITH, and of the database's relations."""

    query: Callable[[exp.Expr, Scope], QueryRows]
    cte: Callable[[Cte], QueryRows]
    relation: Callable[[TableName], QueryRows]


def bind_from(node: exp.Expr, scope: Scope, binder: Binder) -> Frame:
    """Return the FROM of a SELECT, whose scope knows the queries around it but no table yet."""
    first = node.args.get("from_")
    if first is None:
        return Frame()
    return _From(scope, binder).tree(first.this, node.args.get("joins") or [], Frame())


@dataclass(frozen=True, slots=True)
class _From:
    scope: Scope
    binder: Binder

    def tree(self, first: exp.Expr, joins: Sequence[exp.Join], beside: Frame) -> Frame:
        """Return a list of tables and joins; a comma binds weaker than any JOIN.

        Args:
            beside: what stands to the left of all of it, for LATERAL.
        """
        done, current = Frame(), self.item(first, beside)
        for join in joins:
            right = self.item(join.this, beside + done + current)
            if _is_comma(join):
                done, current = done + current, right
            else:
                current = self._join(join, current, right, beside + done)
        return done + current

    # -- joins ----------------------------------------------------------------

    def _join(self, join: exp.Join, left: Frame, right: Frame, beside: Frame) -> Frame:
        method, kind = join.method.upper(), join.kind.upper()
        using = [name_of(part, self.scope.engine) for part in join.args.get("using") or ()]
        joined = left + right
        if method == "NATURAL":
            natural = _common(left, right)
            joined = self._merged(left, right, natural) if natural is not None else _untold(joined)
        elif using:
            joined = self._merged(left, right, using)
            alias = join.args.get("alias")
            if alias is not None:
                name = name_of(alias, self.scope.engine)
                joined.ranges.append(Range(name, joined.columns[: len(set(using))]))
        on = self._reader(left + right, beside).read(join.args.get("on"))
        if kind in ("SEMI", "ANTI"):
            joined = replace(joined, ranges=left.ranges, columns=left.columns)
        joined.decides += on.columns
        joined.inner += on.queries
        return joined

    def _merged(self, left: Frame, right: Frame, names: Sequence[str]) -> Frame:
        """Return a join whose common columns are one: of both sides, as COALESCE of them.

        PostgreSQL shows them first, DuckDB where the left side has them.
        """
        joined = left + right
        merged: dict[str | None, QueryColumn] = {}
        for name in names:
            pair = [_side(frame, name) for frame in (left, right)]
            merged[name] = QueryColumn(name, pair[0].label, reads=pair)
            joined.decides += pair
        rest = [column for column in joined.columns if column.name not in merged]
        joined.columns = [*merged.values(), *rest]
        if self.scope.engine == "duckdb":
            kept = [column for column in right.columns if column.name not in merged]
            if not all(any(c.name == name for c in left.columns) for name in merged):
                kept.append(gap())  # it is in what is not known of the left side
            joined.columns = [merged.get(c.name, c) for c in left.columns] + kept
        return joined

    def _reader(self, frame: Frame, beside: Frame) -> Reader:
        around = replace(self.scope, frame=beside) if beside.ranges else self.scope
        inside = replace(self.scope, parent=around, frame=frame, ctes={}, aliases={})
        return Reader(inside, self.binder.query)

    # -- one item ---------------------------------------------------------------

    def item(self, node: exp.Expr, beside: Frame) -> Frame:
        """Return one table, subquery, function or join in parentheses, with joins of its own."""
        frame = self._alone(node, beside)
        joins = [] if isinstance(node, exp.Select) else node.args.get("joins") or []
        for join in joins:
            right = self.item(join.this, beside + frame)
            frame = self._join(join, frame, right, beside)
        return frame

    def _alone(self, node: exp.Expr, beside: Frame) -> Frame:
        lateral = replace(self.scope, frame=beside) if beside.ranges else self.scope
        if node.args.get("pivots"):
            return self._pivot(node, beside)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._table(node)
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            inner = self.item(node.this, beside)
            if node.alias:  # which hides the names in it
                return self._named(node, QueryRows(inner.columns, inner.decides, inner.inner))
            return inner
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Values):
            return self._named(node, self.binder.query(node.this, lateral))
        if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
            return self._named(node, self.binder.query(node.this, lateral))
        if isinstance(node, QUERIES):
            around = lateral if self.scope.engine == "duckdb" else self.scope
            return self._named(node, self.binder.query(node, around))
        return self._function(node, lateral)

    def _table(self, node: exp.Table) -> Frame:
        name = table_name(node, self.scope.engine)
        cte = self.scope.cte(name.name) if name.schema is None else None
        if cte is not None:
            return self._named(node, self.binder.cte(cte), name)
        return self._named(node, self.binder.relation(name), name)

    def _named(self, node: exp.Expr, rows: QueryRows, name: TableName | None = None) -> Frame:
        """Return rows under their alias, with the columns that it renames."""
        alias = _alias(node)
        given = name_of(alias.this, self.scope.engine) if alias and alias.this else ""
        columns = _relabelled(rows.columns, _listed(alias), self.scope.engine)
        if self.scope.engine == "duckdb":
            columns = _told_apart(columns)
        named = Range(
            name=given or (name.name if name else ""),
            columns=columns,
            table=rows.table,
            schema=None if given or not name else name.schema or rows.schema,
        )
        return Frame([named] if named.name else [], columns, [rows])

    def _pivot(self, node: exp.Expr, beside: Frame) -> Frame:
        plain = type(node)(**{k: v for k, v in node.args.items() if k != "pivots"})
        claim(*node.args["pivots"])
        inner = self._alone(plain, beside)
        rows = QueryRows([gap()], inner.decides, inner.inner)
        return self._named(node.args["pivots"][-1], rows)

    def _function(self, node: exp.Expr, lateral: Scope) -> Frame:
        reader = Reader(lateral, self.binder.query)
        alias = _alias(node)
        engine = self.scope.engine
        given = name_of(alias.this, engine) if alias and alias.this else ""
        name = given or function_name(node)
        every = reader.read(*calls_in(node))
        columns = function_columns(
            node,
            name,
            _definitions(alias),
            lambda call: reader.read(*calls_in(call)).columns,
            engine,
        )
        rows = QueryRows(columns, decides=every.columns, inner=every.queries)
        found = Range(name=name, columns=columns, is_function=True)
        return Frame([found] if name else [], columns, [rows])


def _is_comma(join: exp.Join) -> bool:
    parts = ("method", "side", "kind", "on", "using")
    return not any(join.args.get(part) for part in parts)


def unread(leaf: Leaf = UNKNOWN) -> QueryRows:
    """Return the rows of a relation whose columns are not known."""
    return QueryRows([gap(leaf)], table=leaf if leaf.table is not None else None)


# -- USING and NATURAL --------------------------------------------------------------


def _common(left: Frame, right: Frame) -> list[str] | None:
    """Return the names that both sides of a NATURAL join have, or None where that is not known."""
    if any(c.name is None for c in left.columns + right.columns):
        return None
    there = {column.name for column in right.columns}
    return [column.name for column in left.columns if column.name in there and column.name]


def _side(frame: Frame, name: str) -> QueryColumn:
    scope = Scope(engine="postgres", frame=Frame(columns=frame.columns))
    return scope.column([name])


def _untold(joined: Frame) -> Frame:
    """Return a join whose common columns are not known: only a table's own name tells."""
    joined.columns = [gap()]
    joined.decides = [*joined.decides, unknown(None)]
    return joined


# -- names given by an alias --------------------------------------------------------


def _alias(node: exp.Expr) -> exp.TableAlias | None:
    alias = node.args.get("alias")
    return alias if isinstance(alias, exp.TableAlias) else None


def _definitions(alias: exp.TableAlias | None) -> list[exp.Expr]:
    return list(alias.args.get("columns") or ()) if alias else []


def _listed(alias: exp.TableAlias | None) -> list[exp.Expr]:
    """Return the names in an alias's list of columns."""
    return [c.this if isinstance(c, exp.ColumnDef) else c for c in _definitions(alias)]


def _relabelled(
    columns: list[QueryColumn], listed: list[exp.Expr], engine: Engine
) -> list[QueryColumn]:
    """Return the columns with the first ones renamed as an alias lists them: t (a, b)."""
    if not listed:
        return columns
    places = range(len(listed))
    if any(column.is_gap for column in columns[: len(listed)]) or len(listed) > len(columns):
        return [unknown(name_of(c, engine), shown(c, engine)) for c in listed] + [gap()]
    renamed = [
        QueryColumn(name_of(listed[i], engine), shown(listed[i], engine), reads=[columns[i]])
        for i in places
    ]
    return renamed + columns[len(listed) :]


def _told_apart(columns: list[QueryColumn]) -> list[QueryColumn]:
    """Return columns as DuckDB names those of a subquery, where twins get a number.

    Behind a gap no name is sure: what is in the gap may have it already.
    """
    taken: set[str] = set()
    told: list[QueryColumn] = []
    has_gap = False
    for column in columns:
        name, number = column.name, 0
        while name is not None and name in taken:
            number += 1
            name = f"{column.name}_{number}"
        if name is not None:
            taken.add(name)
        has_gap = has_gap or column.is_gap
        if name is not None and (number or has_gap):
            label = f"{column.label}_{number}" if number else column.label
            unsure = [unknown(None)] if has_gap else []
            column = QueryColumn(name, label, reads=[column, *unsure])
        told.append(column)
    return told
