"""What the names in a query can mean where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from mmdb.data.query.columns import Leaf, QueryColumn, QueryRows, unknown
from mmdb.data.query.statement import Engine

#: Columns that a base table has although no star shows them.
_SYSTEM = {
    "postgres": {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"},
    "duckdb": {"rowid"},
}


@dataclass(eq=False, slots=True)
class Range:
    """Something in FROM that has a name."""

    name: str
    columns: list[QueryColumn]
    table: Leaf | None = None  # of a base table
    schema: str | None = None  # by which it may be named, unless it has an alias
    is_function: bool = False  # its name alone is its value


@dataclass(eq=False, slots=True)
class Frame:
    """What stands in FROM, or a part of it: its names, and its columns as a star shows them."""

    ranges: list[Range] = field(default_factory=list)
    columns: list[QueryColumn] = field(default_factory=list)
    inner: list[QueryRows] = field(default_factory=list)
    decides: list[QueryColumn] = field(default_factory=list)

    def __add__(self, other: Frame) -> Frame:
        return Frame(
            self.ranges + other.ranges,
            self.columns + other.columns,
            self.inner + other.inner,
            self.decides + other.decides,
        )


@dataclass(eq=False, slots=True)
class Cte:
    """A query of WITH, bound where it is first read."""

    bind: Callable[[Cte], QueryRows]
    rows: QueryRows | None = None
    is_bound: bool = False


@dataclass(eq=False, slots=True)
class Scope:
    """A query's FROM, its WITH, and the query around it."""

    engine: Engine
    parent: Scope | None = None
    frame: Frame = field(default_factory=Frame)
    ctes: dict[str, Cte] = field(default_factory=dict)
    aliases: dict[str, QueryColumn] = field(default_factory=dict)  # DuckDB: of outputs so far

    def __iter__(self) -> Iterator[Scope]:
        """Yield this scope and those around it, from inside to outside."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def cte(self, name: str) -> Cte | None:
        """Return what WITH calls so, here or around."""
        return next((scope.ctes[name] for scope in self if name in scope.ctes), None)

    def column(self, path: Sequence[str]) -> QueryColumn:
        """Return the column that a name of one or more parts means; unknown if that is not sure.

        The query is taken to be one that the database runs: what names nothing that is known can
        only name what is not known, and nothing is named by a text that could mean two things.
        """
        return self.find(path) or self._value_of(path[0]) or unknown(path[-1])

    def find(self, path: Sequence[str]) -> QueryColumn | None:
        """Return what a name means, or None where no column can be meant."""
        for scope in self:
            for before in self._counts(len(path)):
                ranges = scope._called(path[:before])
                if ranges or not before:
                    found = self._look(scope, path, before, ranges)
                    if found is not None:
                        fields = len(path) - 1 - before  # or its first part is a table further out
                        is_table = fields and any(s._called(path[:1]) for s in scope.parent or ())
                        return unknown(path[-1]) if is_table else found
                    if before and self.engine == "postgres":  # it hides those around
                        return unknown(path[-1])
        return None

    def _counts(self, parts: int) -> range:
        """Return how many parts may stand before the column; on DuckDB fields may follow it."""
        if self.engine == "postgres":
            return range(parts - 1, parts)
        return range(min(parts - 1, 3), -1, -1)

    def _called(self, around: Sequence[str]) -> list[Range]:
        """Return the tables of this FROM that are named by what stands before a column."""
        if not around:
            return self.frame.ranges
        schema = around[-2] if len(around) > 1 else None
        return [r for r in self.frame.ranges if r.name == around[-1] and schema in (None, r.schema)]

    def _look(
        self, scope: Scope, path: Sequence[str], before: int, ranges: Sequence[Range]
    ) -> QueryColumn | None:
        name = path[before]
        columns = [c for r in ranges for c in r.columns] if before else scope.frame.columns
        found = _by_name(columns, name) or _system_column(ranges, name, self.engine)
        if found is not None:
            return found
        alias = scope.aliases.get(name) if scope is self and len(path) == 1 else None
        hidden = _hidden(columns, name)
        if not hidden:
            return alias
        if before:
            # a column of that name with fields is DuckDB's other reading
            fields = _by_name(scope.frame.columns, path[0]) if self.engine == "duckdb" else None
            other = fields is not None
        else:
            outside = scope.parent.find(path) if scope.parent is not None else None
            rows = [r for s in self for r in s._called(path[:1]) if r.columns != hidden]
            other = bool(alias or outside or rows)
        return unknown(name) if other else _only(hidden, name)

    def _value_of(self, name: str) -> QueryColumn | None:
        """Return the value of a function in FROM that is named by its alias alone."""
        ranges = next((found for scope in self if (found := scope._called([name]))), [])
        if len(ranges) == 1 and ranges[0].is_function:
            return QueryColumn(name, name, reads=list(ranges[0].columns))
        return None


def _by_name(columns: Sequence[QueryColumn], name: str) -> QueryColumn | None:
    found = [column for column in columns if column.name == name and not column.is_gap]
    if len(found) > 1 and any(column is not found[0] for column in found):
        return unknown(name)
    return found[0] if found else None


def _hidden(columns: Sequence[QueryColumn], name: str) -> list[QueryColumn]:
    """Return the columns that may be called so: those that an engine named, and gaps."""
    unnamed = [c for c in columns if c.name is None]
    called = [c for c in unnamed if name in c.names]
    return called if len(called) == 1 and not any(c.is_gap for c in unnamed) else unnamed


def _only(hidden: Sequence[QueryColumn], name: str) -> QueryColumn:
    """Return the one column that a name can mean, or an unknown one."""
    if len(hidden) > 1:
        return unknown(name)
    (found,) = hidden
    if not found.is_gap:
        return found
    if found.leaf is not None and found.leaf.table is not None:
        leaf = Leaf(found.leaf.schema, found.leaf.table, name)
        return QueryColumn(name, name, leaf=leaf)
    return QueryColumn(name, name, leaf=found.leaf, reads=found.reads, queries=found.queries)


def _system_column(ranges: Sequence[Range], name: str, engine: Engine) -> QueryColumn | None:
    tables = [found.table for found in ranges if found.table is not None]
    if name not in _SYSTEM[engine] or len(tables) != 1:
        return None
    (table,) = tables
    return QueryColumn(name, name, leaf=Leaf(table.schema, table.table, name))
