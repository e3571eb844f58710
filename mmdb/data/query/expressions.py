"""Finds the columns that an expression of a SELECT reads, and the subqueries in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from mmdb.data.query.columns import QueryColumn, QueryRows, unknown
from mmdb.data.query.names import UNITS, claim, fold, name_of
from mmdb.data.query.scope import Scope
from mmdb.data.query.statement import Engine

#: Binds a subquery that stands in a scope.
BindQuery = Callable[[exp.Expr, Scope], QueryRows]
#: The windows that a SELECT names.
Windows = Mapping[str, exp.Expr]

QUERIES = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)
#: What may stand in an expression and names no column.
_SILENT = (exp.DataType, exp.Literal, exp.Null, exp.Boolean, exp.JSONPath)
#: What the parser may have taken for something else, so that what it names is not told.
_MISTAKEN = (exp.Star, exp.Columns, exp.Table, exp.Pivot, exp.Parameter, exp.Placeholder)
#: Functions of DuckDB whose second argument is a lambda; of invoke it is the first.
_TAKES_LAMBDA = {
    *("apply", "list_apply", "array_apply", "list_transform", "array_transform"),
    *("filter", "list_filter", "array_filter", "reduce", "list_reduce", "array_reduce", "invoke"),
}
#: Names without parentheses that are no columns, unless there is one of that name.
_KEYWORDS = {
    *("user", "current_user", "current_role", "session_user", "current_catalog"),
    *("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"),
}


@dataclass(eq=False, slots=True)
class Reads:
    """The columns and the subqueries that an expression reads."""

    columns: list[QueryColumn] = field(default_factory=list)
    queries: list[QueryRows] = field(default_factory=list)


@dataclass(slots=True)
class Reader:
    """Reads the expressions of one SELECT."""

    scope: Scope
    bind: BindQuery
    windows: Windows = field(default_factory=dict)

    def read(self, *expressions: exp.Expr | None) -> Reads:
        """Return what some expressions read: values feed, subqueries in them may only decide."""
        found = Reads()
        waiting: list[tuple[exp.Expr, frozenset[str]]] = [
            (expression, frozenset()) for expression in expressions if expression is not None
        ]
        while waiting:
            node, own = waiting.pop()
            waiting += [(child, bound) for child, bound in self._open(node, own, found)]
        return found

    def _open(
        self, node: exp.Expr, own: frozenset[str], found: Reads
    ) -> Iterator[tuple[exp.Expr, frozenset[str]]]:
        """Note what a node reads by itself; yield what is inside it, with a lambda's own names."""
        engine = self.scope.engine
        if isinstance(node, exp.Column):
            found.columns += self._column(node, own)
        elif isinstance(node, exp.Exists):
            found.queries.append(self.bind(node.this, self.scope))
        elif isinstance(node, QUERIES):
            rows = self.bind(node, self.scope)
            found.queries.append(rows)
            found.columns += rows.columns
        elif isinstance(node, exp.Lambda):
            is_own = _is_lambda(node)
            names = {name_of(given, engine) for given in node.expressions if is_own}
            yield node.this, own | names
            yield from ((given, own) for given in node.expressions if not is_own)
        elif isinstance(node, exp.Comprehension):
            names = {name_of(given, engine) for given in _given(node)}
            yield node.args["iterator"], own
            yield from ((part, own | names) for part in _parts(node, "this", "condition"))
        elif isinstance(node, exp.PropertyEQ | exp.Kwarg):
            yield node.expression, own - self._hidden(node.expression)
            if isinstance(node.this, exp.Identifier):  # an argument's name, or a field's
                claim(node.this)
            else:  # the key of a MAP
                yield node.this, own
        elif isinstance(node, exp.XMLElement):
            claim(node.this)
            yield from ((part, own) for part in node.expressions)
        elif isinstance(node, exp.Window):
            yield from ((part, own) for part in self._window(node))
        elif isinstance(node, exp.Dot):
            yield from self._dot(node, own, found)
        elif isinstance(node, exp.Collate | exp.Alias):
            claim(node.args.get("alias") or node.expression)
            yield node.this, own
        elif isinstance(node, exp.Anonymous) and called(node) == "count" and _is_star(node):
            return
        elif isinstance(node, exp.PositionalColumn):
            found.columns.append(self._at(node))
        elif isinstance(node, exp.Identifier):
            if name_of(node, engine) not in own:
                found.columns.append(self._bare([name_of(node, engine)]))
        elif isinstance(node, _MISTAKEN):
            claim(node)
            found.columns.append(unknown(None))
        elif isinstance(node, exp.Var):
            if node.arg_key == "exclude":  # of a window's frame
                return
            name = fold(node.name, engine)
            if name not in UNITS and self.scope.find([name]) is not None:
                found.columns.append(unknown(None))
        elif isinstance(node, _SILENT):
            claim(node)
        else:
            yield from ((child, own) for child in node.iter_expressions())

    def _column(self, node: exp.Column, own: frozenset[str]) -> Iterator[QueryColumn]:
        if not isinstance(node.this, exp.Identifier):  # a whole row
            claim(node)
            yield unknown(None)
            return
        scope = self.scope
        path = [name_of(part, scope.engine) for part in node.parts]
        if path[0] in own:
            return
        if path[0] in _KEYWORDS and len(path) == 1 and not node.this.args.get("quoted"):
            if scope.engine == "postgres" or scope.find(path) is None:
                return
        yield scope.column(path)

    def _hidden(self, value: exp.Expr) -> frozenset[str]:
        """Return the name of a column that is a field's whole value: it hides a lambda's own name.

        So DuckDB reads `list_transform(l, lambda id: {'u': id})` where there is a column `id`.
        """
        given = value.unnest()
        name = name_of(given, self.scope.engine) if isinstance(given, exp.Identifier) else ""
        return frozenset({name} if name and self.scope.find([name]) is not None else ())

    def _window(self, node: exp.Window) -> Iterator[exp.Expr]:
        """Yield what a window reads, of the one that it names too."""
        names = [part for part in (node.args.get("alias"), node.this) if part is not None]
        for part in names:
            if isinstance(part, exp.Identifier | exp.Var):
                named = self.windows.get(name_of(part, self.scope.engine))
                yield named if named is not None else exp.Star()  # a star here is never known
            else:
                yield part
        yield from node.args.get("partition_by") or ()
        yield from _parts(node, "order", "spec")

    def _dot(
        self, node: exp.Dot, own: frozenset[str], found: Reads
    ) -> Iterator[tuple[exp.Expr, frozenset[str]]]:
        """Yield what stands before a dot: a value with a field, or nothing but a schema."""
        path = _path(node.this, self.scope.engine)
        if isinstance(node.expression, exp.Func):
            yield node.expression, own
            if path is None:
                yield node.this, own
            elif self.scope.engine == "duckdb" and path[0] not in own:
                found.columns += self._before_function(path)
        elif path is None:
            claim(node.expression)
            yield node.this, own
        elif path[0] not in own:
            found.columns.append(self._bare([*path, name_of(node.expression, self.scope.engine)]))

    def _before_function(self, path: list[str]) -> list[QueryColumn]:
        """Return the column of `column.function()`; a schema of that name is none."""
        column = self.scope.find(path)
        if column is None:
            return []
        has_gap = any(c.is_gap for scope in self.scope for c in scope.frame.columns)
        return [unknown(None) if has_gap else column]

    def _bare(self, path: list[str]) -> QueryColumn:
        """Return the column of a name that the parser left without telling what it names."""
        return self.scope.column(path) if self.scope.engine == "duckdb" else unknown(None)

    def _at(self, node: exp.PositionalColumn) -> QueryColumn:
        columns = self.scope.frame.columns
        place = int(node.name) if node.name.isdigit() else 0
        if not 1 <= place <= len(columns) or any(c.is_gap for c in columns[:place]):
            return unknown(None)
        return columns[place - 1]


def called(node: exp.Expr) -> str:
    """Return the name of the function that a node calls, in lower case, or an empty text."""
    return node.name.lower() if isinstance(node, exp.Anonymous) else ""


def _is_star(call: exp.Expr) -> bool:
    return len(call.expressions) == 1 and isinstance(call.expressions[0], exp.Star)


def _is_lambda(node: exp.Lambda) -> bool:
    """Return whether `x -> ...` stands where a function of DuckDB takes a lambda.

    Anywhere else it is what `->` is: a part of the JSON in column x.
    """
    call = node.parent
    if call is None or called(call) not in _TAKES_LAMBDA:
        return False
    is_method = isinstance(call.parent, exp.Dot) and call.arg_key == "expression"
    return node.index == (0 if is_method or called(call) == "invoke" else 1)


def _given(node: exp.Comprehension) -> list[exp.Expr]:
    return _parts(node, "expression", "position")


def _parts(node: exp.Expr, *names: str) -> list[exp.Expr]:
    return [part for name in names if isinstance(part := node.args.get(name), exp.Expr)]


def _path(node: exp.Expr, engine: Engine) -> list[str] | None:
    """Return the parts of a name with dots, if it is one."""
    if isinstance(node, exp.Identifier):
        return [name_of(node, engine)]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = _path(node.this, engine)
        return None if before is None else [*before, name_of(node.expression, engine)]
    return None
