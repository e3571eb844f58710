"""Queries bound: what each output is made from, stars included, and what decides the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from mmdb.data.query.columns import QueryColumn, QueryRows, feed_back, gap, renamed, united, unknown
from mmdb.data.query.expressions import Reader, called
from mmdb.data.query.names import claim, fold, name_of, output_name, shown
from mmdb.data.query.scope import Cte, Frame, Scope
from mmdb.data.query.statement import Engine
from mmdb.data.query.tables import Binder, bind_from, unread
from mmdb.db.connection import TableName


def expand(item: exp.Expr, reader: Reader) -> list[QueryColumn] | None:
    """Return the columns that `*` stands for; None for an item of a SELECT that is no star."""
    engine = reader.scope.engine
    if isinstance(item, exp.Star):
        return _changed(reader.scope.frame.columns, item, reader)
    if isinstance(item, exp.Columns) and isinstance(item.this, exp.Star):
        return _changed(reader.scope.frame.columns, item.this, reader)
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        around = [name_of(part, engine) for part in item.parts[:-1]]
        return _changed(_columns_of(around, reader), item.this, reader)
    if isinstance(item, exp.Dot) and isinstance(item.expression, exp.Star):
        return [_fields(item.this, reader)]
    if any(isinstance(node, exp.Columns) for node in item.walk()):
        return [gap(reads=reader.read(item).columns)]
    inner = item.this if isinstance(item, exp.Alias) else item
    if isinstance(inner, exp.Binary | exp.Not | exp.Escape) and _star_of(inner) is not None:
        return [gap()]  # SELECT * LIKE 'a%'
    if engine == "duckdb" and called(inner) == "unnest" and _spreads(item, inner):
        return [_fields(inner, reader)]
    return None


def _spreads(item: exp.Expr, call: exp.Expr) -> bool:
    """Return whether a call of unnest may give several columns: those of a struct."""
    is_list = isinstance(item, exp.Alias) or any(isinstance(a, exp.Array) for a in call.expressions)
    return not is_list or call.find(exp.PropertyEQ) is not None


def _fields(value: exp.Expr, reader: Reader) -> QueryColumn:
    """Return the fields of a value, as many as there are."""
    reads = reader.read(value)
    fields = gap(None, reads.columns)
    fields.queries = reads.queries
    return fields


def _star_of(node: exp.Expr) -> exp.Expr | None:
    while isinstance(node, exp.Binary | exp.Not | exp.Escape):
        node = node.this
    return node if isinstance(node, exp.Star) or node.is_star else None


def _columns_of(around: list[str], reader: Reader) -> list[QueryColumn]:
    """Return the columns of a table in FROM, here or in a query around."""
    for scope in reader.scope:
        schema = around[-2] if len(around) > 1 else None
        found = [
            r for r in scope.frame.ranges if r.name == around[-1] and schema in (None, r.schema)
        ]
        if len(found) == 1:
            return found[0].columns
        if found:
            break
    return [gap()]


def _changed(columns: list[QueryColumn], star: exp.Expr, reader: Reader) -> list[QueryColumn]:
    """Return a star's columns after EXCLUDE, REPLACE and RENAME."""
    engine = reader.scope.engine
    excluded = star.args.get("except_") or ()
    left_out = {_key(part, reader) for part in excluded if not _is_qualified(part)}
    others = [_qualified(part, reader) for part in excluded if _is_qualified(part)]
    replaced = {fold(p.alias, engine): p for p in star.args.get("replace") or ()}
    renamed = {_key(p.this, reader): p.args["alias"] for p in star.args.get("rename") or ()}
    changed: list[QueryColumn] = []
    for column in columns:
        name = column.name
        if column.is_gap or name is None:
            changed.append(column)
        elif name in replaced:
            reads = reader.read(replaced[name].this)
            made = QueryColumn(name, column.label, reads=reads.columns, queries=reads.queries)
            changed.append(made)
        elif name in renamed:
            alias = renamed[name]
            changed.append(
                QueryColumn(name_of(alias, engine), shown(alias, engine), reads=[column])
            )
        elif name not in left_out and not any(column is other for other in others):
            changed.append(column)
    if left_out | set(replaced) | set(renamed) and any(c.name is None for c in columns):
        return [gap() if column.is_gap else column for column in changed]
    return changed


def _is_qualified(part: exp.Expr) -> bool:
    return isinstance(part, exp.Column) and bool(part.table)


def _qualified(part: exp.Expr, reader: Reader) -> QueryColumn | None:
    assert isinstance(part, exp.Column)
    engine = reader.scope.engine
    return reader.scope.find([name_of(name, engine) for name in part.parts])


def _key(part: exp.Expr, reader: Reader) -> str:
    identifier = part.this if isinstance(part, exp.Column) else part
    return name_of(identifier, reader.scope.engine)


#: Clauses that come after the output, where its names can be used.
_LAST = ("order", "sort", "cluster", "limit", "offset", "fetch")
#: Clauses of other dialects that the parser may take something for.
_NOT_BOUND = ("pivots", "laterals", "match", "connect", "exclude", "prewhere")


class TooLarge(Exception):
    """A query reads more relations than are followed."""


@dataclass(slots=True)
class Selects:
    """Binds the queries of one text, a user's or a view's."""

    engine: Engine
    relation: Callable[[TableName], QueryRows]
    most: int = 10_000
    _count: int = field(default=0, init=False)
    _ctes_given: list[Cte] = field(default_factory=list, init=False)

    def bind(self, statement: exp.Expr) -> QueryRows:
        """Return the rows of a whole text."""
        rows = self._query(statement, Scope(self.engine))
        for cte in self._ctes_given:  # one that nothing reads has names, too
            _bound(cte)
        return rows

    def _binder(self) -> Binder:
        return Binder(query=self._query, cte=_bound, relation=self.relation)

    def _query(self, node: exp.Expr, around: Scope) -> QueryRows:
        self._count += 1
        if self._count > self.most:
            raise TooLarge
        scope = Scope(self.engine, parent=around, ctes=self._ctes(node, around))
        if isinstance(node, exp.Subquery):
            rows = self._query(node.this, scope)
            return self._wrapped(node, rows, scope)
        if isinstance(node, exp.SetOperation):
            return self._wrapped(node, self._set_operation(node, scope), scope)
        if isinstance(node, exp.Values):
            return self._values(node, scope)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return bind_table(node, scope, self._binder())
        if isinstance(node, exp.Select) and not any(node.args.get(name) for name in _NOT_BOUND):
            return self._select(node, scope)
        claim(node)
        return QueryRows([gap()], decides=[unknown(None)])

    # -- WITH ---------------------------------------------------------------------

    def _ctes(self, node: exp.Expr, around: Scope) -> dict[str, Cte]:
        """Return the queries of a WITH by name; each sees those before it.

        With RECURSIVE, PostgreSQL's see those behind, too.
        """
        given = node.args.get("with_")
        if given is None:
            return {}
        visible: dict[str, Cte] = {}
        sees_all = given.recursive and self.engine == "postgres"
        for cte in given.expressions:
            seen = visible if sees_all else dict(visible)
            scope = Scope(self.engine, parent=around, ctes=seen)
            visible[name_of(cte.args["alias"].this, self.engine)] = self._cte(cte, given, scope)
        return visible

    def _cte(self, cte: exp.CTE, given: exp.With, scope: Scope) -> Cte:
        alias = cte.args["alias"]
        names = [(name_of(c, self.engine), c.name) for c in alias.args.get("columns") or ()]
        query = _bare(cte.this)
        is_union = isinstance(query, exp.Union) and not query.args.get("by_name")
        union = query if given.recursive and is_union else None

        def bind(found: Cte) -> QueryRows:
            if isinstance(union, exp.Union):
                rows = self._recursive(union, found, names, scope, name_of(alias.this, self.engine))
            else:
                rows = renamed(self._query(cte.this, scope), names)
            if given.args.get("search"):  # SEARCH or CYCLE adds columns
                rows.columns = [*rows.columns, gap()]
            return rows

        made = Cte(bind)
        self._ctes_given.append(made)
        return made

    def _recursive(
        self,
        query: exp.SetOperation,
        found: Cte,
        names: Sequence[tuple[str, str]],
        scope: Scope,
        name: str,
    ) -> QueryRows:
        """Return a recursive query's rows: its name means itself in the second branch alone."""
        first = renamed(self._query(query.this, self._inside(query, scope)), names)
        found.rows = first
        own = Scope(self.engine, parent=scope, ctes={name: found})
        second = self._query(query.expression, self._inside(query, own))
        feed_back(first, second)
        return self._wrapped(query, united(query, first, second), scope)

    def _inside(self, query: exp.Expr, scope: Scope) -> Scope:
        return Scope(self.engine, parent=scope, ctes=self._ctes(query, scope))

    # -- set operations -------------------------------------------------------------

    def _set_operation(self, node: exp.SetOperation, scope: Scope) -> QueryRows:
        """Return a chain of operations; a long one leans to the left."""
        chain: list[exp.SetOperation] = [node]
        while isinstance(chain[-1].this, exp.SetOperation) and not _has_clauses(chain[-1].this):
            chain.append(chain[-1].this)
        rows = self._query(chain[-1].this, scope)
        for operation in reversed(chain):
            right = self._query(operation.expression, scope)
            rows = united(operation, rows, right)
        return rows

    def _wrapped(self, node: exp.Expr, rows: QueryRows, scope: Scope) -> QueryRows:
        """Return rows with the ORDER BY and LIMIT that follow them, which name the outputs."""
        clauses = [part for name in _LAST if isinstance(part := node.args.get(name), exp.Expr)]
        if clauses:
            inside = Scope(self.engine, parent=scope.parent, ctes=scope.ctes)
            inside.frame = Frame(columns=rows.columns)
            reads = Reader(inside, self._query).read(*clauses)
            rows.decides = rows.decides + reads.columns
            rows.inner = rows.inner + reads.queries
        return rows

    def _values(self, node: exp.Values, scope: Scope) -> QueryRows:
        first, start = ("column", 1) if self.engine == "postgres" else ("col", 0)
        reader = Reader(scope, self._query)
        rows = QueryRows()
        for row in node.expressions:
            items = row.expressions if isinstance(row, exp.Tuple) else [row]
            for place, item in enumerate(items):
                if place == len(rows.columns):
                    name = f"{first}{place + start}"
                    rows.columns.append(QueryColumn(name, name))
                reads = reader.read(item)
                rows.columns[place].reads += reads.columns
                rows.columns[place].queries += reads.queries
        return rows

    # -- SELECT -----------------------------------------------------------------------

    def _select(self, node: exp.Select, scope: Scope) -> QueryRows:
        scope.frame = bind_from(node, scope, self._binder())
        windows = {name_of(w.this, self.engine): w for w in node.args.get("windows") or ()}
        definitions = {
            name: exp.Window(**{k: v for k, v in w.args.items() if k != "this"})
            for name, w in windows.items()
        }
        reader = Reader(scope, self._query, definitions)
        rows = QueryRows(inner=list(scope.frame.inner), decides=list(scope.frame.decides))
        for item in node.expressions:
            rows.columns += self._outputs(item, reader)
        if self.engine == "duckdb":
            scope.aliases = {c.name: c for c in reversed(rows.columns) if c.name is not None}
        first = [node.args.get(name) for name in ("where", "having", "qualify", "sample")]
        first += definitions.values()  # what a window that nothing uses names is named
        self._decide(rows, reader, [part for part in first if isinstance(part, exp.Expr)])
        self._decide_by_outputs(rows, reader, node)
        return rows

    def _outputs(self, item: exp.Expr, reader: Reader) -> list[QueryColumn]:
        """Return the output of an item of SELECT, or those of a star."""
        columns = expand(item, reader)
        if columns is not None:
            if isinstance(item, exp.Alias):
                claim(item.args["alias"])
            return columns
        name, label, names = output_name(item, self.engine)
        reads = reader.read(item)
        column = QueryColumn(name, label, names=names, reads=reads.columns, queries=reads.queries)
        if self.engine == "duckdb" and name is not None and isinstance(item, exp.Alias):
            reader.scope.aliases.setdefault(name, column)
        return [column]

    def _decide(self, rows: QueryRows, reader: Reader, clauses: Sequence[exp.Expr]) -> None:
        reads = reader.read(*clauses)
        rows.decides += reads.columns
        rows.inner += reads.queries

    def _decide_by_outputs(self, rows: QueryRows, reader: Reader, node: exp.Select) -> None:
        """Add what may name or number outputs: GROUP BY, DISTINCT ON, ORDER BY, LIMIT."""
        group, distinct = node.args.get("group"), node.args.get("distinct")
        if group is not None:
            if group.args.get("all"):
                rows.decides += rows.columns
            for key in _grouping(group):
                self._decide_by(rows, reader, key, prefers_outputs=False)
        if distinct is not None:
            on = distinct.args.get("on")
            if on is None:
                rows.decides += rows.columns
            for key in on.expressions if isinstance(on, exp.Tuple) else [on] if on else []:
                self._decide_by(rows, reader, key, prefers_outputs=True)
        order = node.args.get("order")
        for key in order.expressions if order is not None else ():
            if isinstance(key.this, exp.Var):  # ORDER BY ALL
                rows.decides += rows.columns
            else:
                self._decide_by(rows, reader, key.this, prefers_outputs=True)
        last = [node.args.get(name) for name in _LAST if name != "order"]
        self._decide(rows, reader, [part for part in last if isinstance(part, exp.Expr)])

    def _decide_by(
        self, rows: QueryRows, reader: Reader, key: exp.Expr, *, prefers_outputs: bool
    ) -> None:
        """Add a key, which may be an output's number or name as well."""
        if isinstance(key, exp.Literal) and not key.is_string and key.name.isdigit():
            place = int(key.name)
            if 1 <= place <= len(rows.columns) and not rows.has_gap:
                rows.decides.append(rows.columns[place - 1])
            return
        name = key.name if isinstance(key, exp.Column) and not key.table else None
        if name is not None and isinstance(key.this, exp.Identifier):
            named = name_of(key.this, self.engine)
            outputs = [column for column in rows.columns if column.name == named]
            inputs = reader.scope.find([named])
            if outputs and (prefers_outputs or inputs is None):
                rows.decides += outputs[:1]
                return
        self._decide(rows, reader, [key])


def _bound(cte: Cte) -> QueryRows:
    """Return the rows of a query of WITH; in itself, those that it begins with."""
    if not cte.is_bound:
        cte.is_bound = True
        cte.rows = cte.bind(cte)
    return cte.rows if cte.rows is not None else unread()


def _bare(query: exp.Expr) -> exp.Expr:
    """Return a query without the parentheses around it."""
    while isinstance(query, exp.Subquery) and not _has_clauses(query):
        query = query.this
    return query


def bind_table(node: exp.Table, scope: Scope, binder: Binder) -> QueryRows:
    """Return the rows of TABLE name."""
    select = exp.Select(expressions=[exp.Star()], from_=exp.From(this=node))
    frame = bind_from(select, scope, binder)
    return QueryRows(list(frame.columns), list(frame.decides), list(frame.inner))


def _has_clauses(node: exp.Expr) -> bool:
    return any(node.args.get(name) for name in (*_LAST, "with_"))


def _grouping(group: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the keys of a GROUP BY, those in its grouping sets too."""
    waiting = list(group.iter_expressions())
    while waiting:
        key = waiting.pop()
        if isinstance(key, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple | exp.Paren):
            waiting += list(key.iter_expressions())
        else:
            yield key
