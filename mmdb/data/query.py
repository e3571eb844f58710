"""What a dataset's query reads, found without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope
from sqlglot.schema import MappingSchema

from mmdb.errors import NotASelect, NotOneStatement, QueryError
from mmdb.graph.values import show

Engine = Literal["postgres", "duckdb"]
#: Columns of a table with their types, or None where it is not there.
TableColumns = Callable[[str], list[tuple[str, str]] | None]

_READS = (exp.Select, exp.SetOperation)
_WRITES: dict[type[exp.Expression], str] = {
    exp.Insert: "INSERT",
    exp.Update: "UPDATE",
    exp.Delete: "DELETE",
    exp.Merge: "MERGE",
    exp.Create: "CREATE",
    exp.Drop: "DROP",
    exp.Alter: "ALTER",
    exp.Copy: "COPY",
    exp.Into: "SELECT INTO",
    exp.Lock: "FOR UPDATE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A base table's column that the query reads, and the output column it feeds."""

    table: str
    column: str | None  # None: only the table could be resolved
    output: str | None  # None: it only filters or joins


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A query that is one SELECT, and what it reads."""

    select: str  # the text without a trailing semicolon or comment
    sources: tuple[Source, ...]
    outputs: tuple[str, ...]  # as sqlglot names them; empty where it could not tell

    def sources_of(self, columns: Sequence[str]) -> list[Source]:
        """Return the sources with their outputs named as the database names its columns."""
        same_count = len(self.outputs) == len(columns)
        names = dict(zip(self.outputs, columns, strict=True)) if same_count else {}
        known = set(columns)
        return [
            replace(source, output=named if named in known else None)
            for source in self.sources
            for named in (names.get(source.output or "", source.output),)
        ]


def analyse(query: str, engine: Engine, table_columns: TableColumns) -> Analysis:
    """Return the query's text, ready to be put in parentheses, and the columns that it reads.

    Raises:
        QueryError: it cannot be parsed; the message says where.
        NotOneStatement: it holds none, or several.
        NotASelect: it writes, locks, or reads from schema mmdb.
    """
    statement = _parse(query, engine)
    _check_reads_only(statement)
    tokens = [t for t in sqlglot.tokenize(query, read=engine) if t.text != ";"]
    sources, outputs = _find_sources(statement, engine, table_columns)
    return Analysis(
        select=query[tokens[0].start : tokens[-1].end + 1],
        sources=sources,
        outputs=outputs,
    )


def _parse(query: str, engine: Engine) -> exp.Expression:
    if not isinstance(query, str):
        raise QueryError(f"The query is {show(query)}, not a text.")
    try:
        parsed = sqlglot.parse(query, read=engine)
    except ParseError as error:
        where = error.errors[0] if error.errors else {}
        raise QueryError(
            f"The query is not valid SQL at line {where.get('line')}, column {where.get('col')}, "
            f"near {where.get('highlight')!r}: {where.get('description')}.",
            hint="Run the query by itself; it must succeed there first.",
        ) from error
    except TokenError as error:
        reason = error.__cause__ or error
        raise QueryError(f"The query is not valid SQL: {reason}.") from error
    except RecursionError as error:
        raise QueryError("The query is nested too deeply.", hint="Use WITH or a view.") from error
    statements = [s for s in parsed if s is not None and not isinstance(s, exp.Semicolon)]
    if len(statements) != 1:
        count = f"{len(statements)} statements" if statements else "no statement"
        raise NotOneStatement(f"The query holds {count}; it must be one SELECT.")
    return statements[0]  # type: ignore[return-value]


# -- what is refused ----------------------------------------------------------


def _check_reads_only(statement: exp.Expression) -> None:
    inner = statement.unnest() if isinstance(statement, exp.Subquery) else statement
    for node in statement.walk():
        for kind, word in _WRITES.items():
            if isinstance(node, kind):
                raise NotASelect(f"The query holds {word}; it must be one SELECT.")
        if _schema_of(node).lower() == "mmdb" or _is_private(node):
            raise NotASelect(
                f"The query uses {node.sql()}, which is of schema mmdb.",
                hint="A dataset is made of your own tables; copy what you need out of mmdb first.",
            )
    if not isinstance(inner, _READS):
        word = statement.sql().split()[0].upper() if statement.sql() else "nothing"
        raise NotASelect(f"The query is {word}, not a SELECT.")


def _schema_of(node: exp.Expr) -> str:
    """Return the schema of a table or of a function call, or an empty text."""
    if isinstance(node, exp.Table):
        return str(node.db)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
        schema = node.this.expression if isinstance(node.this, exp.Dot) else node.this
        return str(schema.name)
    return ""


def _is_private(node: exp.Expr) -> bool:
    """Return whether it calls a function that DuckDB's macros of schema mmdb stand for."""
    return isinstance(node, exp.Anonymous) and node.name.lower().startswith("_mmdb_")


# -- what is read -------------------------------------------------------------


def _find_sources(
    statement: exp.Expression, engine: Engine, table_columns: TableColumns
) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    tables = _base_tables(statement, engine)
    known = {name: columns for name in tables if (columns := _columns_of(name, table_columns))}
    try:
        lineage = _resolve(statement, engine, known)
        found, outputs = lineage.sources(), lineage.output_names()
    except (SqlglotError, RecursionError):
        found, outputs = set(), ()
    spelled = {(table, name.lower()): name for table, names in known.items() for name, _ in names}
    if engine == "duckdb":  # sqlglot folds its names; record them as they were created
        found = {replace(s, column=spelled.get((s.table, s.column or ""), s.column)) for s in found}
    unread = tables - {source.table for source in found}
    found |= {Source(table=table, column=None, output=None) for table in unread}
    return tuple(sorted(found, key=_order)), outputs


def _order(source: Source) -> tuple[bool, str, str, str]:
    return source.output is None, source.table, source.column or "", source.output or ""


def _base_tables(statement: exp.Expression, engine: Engine) -> set[str]:
    named = {cte.alias_or_name for cte in statement.find_all(exp.CTE)}
    return {
        _table_name(table, engine)
        for table in statement.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not (not table.db and table.name in named)
    }


def _table_name(table: exp.Table, engine: Engine) -> str:
    """Return the name as the database compares it: PostgreSQL folds what is not quoted."""
    parts = [
        part.name if engine == "postgres" and part.args.get("quoted") else part.name.lower()
        for part in table.parts
    ]
    return ".".join(parts[-2:])


def _columns_of(table: str, table_columns: TableColumns) -> list[tuple[str, str]] | None:
    columns = table_columns(table)
    names = [name for name, _ in columns or ()]
    return columns if len(set(names)) == len(names) else None  # two tables of one name: unknown


def _resolve(
    statement: exp.Expression, engine: Engine, known: dict[str, list[tuple[str, str]]]
) -> _Lineage:
    schema = MappingSchema(dialect=engine, normalize=engine == "duckdb")
    for table in statement.find_all(exp.Table):
        name = _table_name(table, engine)
        if name in known:
            # types play no part here, and sqlglot does not know all of PostgreSQL's
            schema.add_table(
                _literal_name(name, table), {column: "text" for column, _ in known[name]}
            )
    qualified = qualify(
        statement.copy(),
        schema=schema,
        dialect=engine,
        validate_qualify_columns=False,
        quote_identifiers=False,
    )
    root = build_scope(qualified.unnest() if isinstance(qualified, exp.Subquery) else qualified)
    if root is None:
        raise SqlglotError("no scope")
    return _Lineage(root, engine)


def _literal_name(name: str, table: exp.Table) -> exp.Table:
    """Return the table's name alone, its parts taken literally."""
    parts = name.split(".")
    quoted = [exp.to_identifier(part, quoted=True) for part in parts]
    return exp.Table(this=quoted[-1], db=quoted[0] if len(parts) > 1 else None)


class _Lineage:
    """Follows output columns through CTEs, subqueries and set operations to base tables."""

    def __init__(self, root: Scope, engine: Engine) -> None:
        self._root = root
        self._engine = engine
        self._by_select = {id(scope.expression): scope for scope in root.traverse()}
        self._outputs: dict[int, list[tuple[str, set[tuple[str, str]]]]] = {}

    def sources(self) -> set[Source]:
        """Return one source for each base column and output, and for columns with no output."""
        feeding = {
            Source(table=table, column=column, output=output)
            for output, columns in self._outputs_of(self._root)
            for table, column in columns
        }
        fed = {(source.table, source.column) for source in feeding}
        read = set(self._base_columns(self._root.expression.find_all(exp.Column)))
        return feeding | {
            Source(table=table, column=column, output=None) for table, column in read - fed
        }

    def output_names(self) -> tuple[str, ...]:
        """Return the names of the output columns, or none where a star stayed a star."""
        assert isinstance(self._root.expression, exp.Query)
        selects = self._root.expression.selects
        return () if any(s.is_star for s in selects) else tuple(s.alias_or_name for s in selects)

    def _outputs_of(self, scope: Scope) -> list[tuple[str, set[tuple[str, str]]]]:
        if id(scope) not in self._outputs:
            self._outputs[id(scope)] = []  # what a recursive query finds while it looks at itself
            self._outputs[id(scope)] = self._find_outputs(scope)
        return self._outputs[id(scope)]

    def _find_outputs(self, scope: Scope) -> list[tuple[str, set[tuple[str, str]]]]:
        if scope.set_operation_scopes:
            branches = [self._outputs_of(branch) for branch in scope.set_operation_scopes]
            return [
                (name, columns | branches[1][index][1] if index < len(branches[1]) else columns)
                for index, (name, columns) in enumerate(branches[0])
            ]
        if not isinstance(scope.expression, exp.Query):  # unnest(t.column) and the like
            return []
        return [
            (select.alias_or_name, set(self._base_columns(_output_columns(select))))
            for select in scope.expression.selects
            if not select.is_star
        ]

    def _base_columns(self, columns: Iterable[exp.Expr]) -> Iterator[tuple[str, str]]:
        for column in columns:
            assert isinstance(column, exp.Column)
            source = self._source_of(column)
            if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
                if not column.is_star:
                    yield _table_name(source, self._engine), column.name
            elif isinstance(source, Scope):
                if isinstance(source.expression, exp.Query):
                    yield from dict(self._outputs_of(source)).get(column.name, ())
                else:
                    yield from self._base_columns(source.expression.find_all(exp.Column))

    def _source_of(self, column: exp.Column) -> exp.Expr | Scope | None:
        """Return the table or subquery that a column names, in its SELECT or one around it."""
        scope = self._by_select.get(id(column.find_ancestor(exp.Select)))
        while scope is not None:
            if column.table in scope.sources:
                return scope.sources[column.table]
            scope = scope.parent
        return None


def _output_columns(select: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the columns that reach a SELECT's output: of a subquery inside, its outputs only."""
    if isinstance(select, exp.Select):
        for inner in select.selects:
            yield from _output_columns(inner)
        return
    if isinstance(select, exp.Column):
        yield select
        return
    for child in select.iter_expressions():
        yield from _output_columns(child)
