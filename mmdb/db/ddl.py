"""SQL in PostgreSQL's dialect, turned into DuckDB's by sqlglot; what has no faithful form raises.

sqlglot drops or mistranslates some constructs without a word, so a statement passes only if every
node in it is on an allow-list, and the few rewrites are spelled out here.
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from mmdb.errors import UntranslatableSql

#: Nodes that PostgreSQL's parser makes and that DuckDB's generator drops or changes in silence.
SILENTLY_WRONG: tuple[type[exp.Expression], ...] = (
    exp.Command,  # whatever sqlglot could not parse and would pass through as text
    exp.Lock,  # FOR UPDATE
    exp.Encode,
    exp.Decode,
    exp.HexString,
    exp.PartitionedByProperty,
    exp.MaterializedProperty,
    exp.UnloggedProperty,
    exp.InheritsProperty,
    exp.Cluster,
    exp.OnCommitProperty,
    exp.LanguageProperty,
)


def _check(node: exp.Expression, sql: str) -> None:
    wrong = node.find(*SILENTLY_WRONG)
    if wrong is not None:
        raise UntranslatableSql(
            f"{type(wrong).__name__} has no faithful form in DuckDB: {sql.strip()[:120]}",
            hint="Keep it out of sql/schema and sql/queries, or put it in sql/engines/postgres.sql.",
        )


def _generate(node: exp.Expression, sql: str) -> str:
    try:
        return node.sql(dialect="duckdb", unsupported_level=sqlglot.ErrorLevel.RAISE)
    except sqlglot.errors.UnsupportedError as error:
        raise UntranslatableSql(f"{error}: {sql.strip()[:120]}") from error


def _parse(sql: str) -> list[exp.Expression]:
    try:
        parsed = sqlglot.parse(sql, read="postgres")
    except sqlglot.errors.ParseError as error:
        raise UntranslatableSql(f"{error}: {sql.strip()[:120]}") from error
    return [node for node in parsed if isinstance(node, exp.Expression)]


def translate_query(sql: str) -> str:
    """Return one query with `$name` placeholders in DuckDB's dialect."""
    (node,) = _parse(sql)
    _check(node, sql)
    return _generate(node, sql)


def translate_schema(sql: str) -> list[str]:
    """Return the DuckDB statements for a file of CREATE TABLE, CREATE VIEW, COMMENT and INSERT statements.

    Raises:
        UntranslatableSql: a statement is of another kind, or has no faithful form.
    """
    statements: list[str] = []
    for node in _parse(sql):
        text = node.sql(dialect="postgres")
        _check(node, text)
        if isinstance(node, exp.Create) and node.kind == "TABLE":
            statements += _table(node, text)
        elif isinstance(node, exp.Comment) or (
            isinstance(node, exp.Create) and node.kind == "VIEW"
        ) or isinstance(node, exp.Insert):
            statements.append(_generate(node, text))
        elif not isinstance(node, exp.Semicolon):
            raise UntranslatableSql(f"Only tables, views, comments and rows are translated: {text[:120]}")
    return statements


def _table(node: exp.Create, text: str) -> list[str]:
    """A table without identity columns (sequences instead) and without foreign keys.

    DuckDB checks a foreign key against the rows as they were before the transaction, so deleting
    children and their parent together fails, and so does updating a parent row.
    """
    table = node.this.this
    before: list[str] = []
    for column in node.find_all(exp.ColumnDef):
        for constraint in list(column.args["constraints"]):
            if isinstance(constraint.kind, exp.GeneratedAsIdentityColumnConstraint):
                sequence = f"{table.db}.{table.name}_{column.name}_seq"
                before.append(f"CREATE SEQUENCE {sequence}")
                constraint.replace(_default_nextval(sequence))
    for constraint in list(node.find_all(exp.ForeignKey)):
        named = constraint.parent
        (named if isinstance(named, exp.Constraint) else constraint).pop()
    return [*before, _generate(node, text)]


def _default_nextval(sequence: str) -> exp.ColumnConstraint:
    call = exp.Anonymous(this="nextval", expressions=[exp.Literal.string(sequence)])
    return exp.ColumnConstraint(kind=exp.DefaultColumnConstraint(this=call))
