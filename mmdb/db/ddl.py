"""SQL files for other engines: taken apart for Citus, and turned into DuckDB's dialect by sqlglot.

What has no faithful form in DuckDB raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp

from mmdb.errors import UntranslatableSql

_PART = re.compile(
    r"""
    (?P<skipped>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<end>;)
    | (?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<word>\w+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def split_statements(sql: str) -> list[str]:
    """Return the statements of a file, without their ends and without comments before them.

    >>> split_statements("SELECT ';'; -- one\\nDO $$ BEGIN; END $$;\\n")
    ["SELECT ';'", 'DO $$ BEGIN; END $$']
    """
    statements: list[str] = []
    begin: int | None = None
    for part in _PART.finditer(sql):
        if part["end"]:
            if begin is not None:
                statements.append(sql[begin : part.start()].rstrip())
            begin = None
        elif begin is None and not part["skipped"]:
            begin = part.start()
    if begin is not None:
        statements.append(sql[begin:].rstrip())
    return statements


#: Each node with the arguments it may carry beside its operands.
_NODES = {
    name: set(arguments.split())
    for name, arguments in re.findall(
        r"(\w+)(?:\((.*?)\))?",
        """
        Alter(actions kind) AlterColumn(default drop) Create(kind replace) Comment(kind)
        Drop(exists kind tables) RenameColumn(to) Schema Semicolon
        ColumnDef(constraints kind) ColumnConstraint(kind) CheckColumnConstraint Constraint
        DefaultColumnConstraint ForeignKey(reference) GeneratedAsIdentityColumnConstraint
        IndexParameters NotNullColumnConstraint PrimaryKey(include) Reference
        UniqueColumnConstraint(include)
        Delete(returning where) Insert(conflict returning with_) Returning Tuple Values(alias)
        OnConflict(action conflict_keys where) Update(from_ returning where with_)
        CTE(alias) Distinct(on) From Group Having Join(kind on side using) Limit Offset Order
        Ordered(desc nulls_first) Star Subquery(alias) Table(alias db joins) TableAlias(columns)
        Select(distinct from_ group having joins limit offset order where with_)
        Where Window(order over partition_by) With(recursive)
        Except(distinct limit order with_) Intersect(distinct limit order with_)
        Union(distinct limit order with_)
        Alias(alias) Any Array ArrayContainsAll Boolean Cast(to) Column(db table) DataType(nested)
        Dot Identifier JSONPath JSONPathKey JSONPathRoot Literal(is_string) Null Parameter Paren Var
        Add And Between(high low) Case(default ifs) DPipe(safe) Div(typed) EQ Exists Extract
        Filter GT GTE If(true) In(query) Is(negate) JSONExtract(only_json_types)
        JSONExtractScalar(only_json_types) LT LTE Like(negate) Mul NEQ Neg Not NullSafeEQ
        NullSafeNEQ Or RegexpLike Sub
        Abs Anonymous Coalesce Count(big_int) CurrentTimestamp Floor Greatest(ignore_nulls)
        Least(ignore_nulls) Length Lower Max Min Nullif Replace(replacement) RowNumber
        Sum UnixToTime Upper
        """,
    )
}
_OPERANDS = {"this", "expression", "expressions"}

_TYPES = set("BIGINT BOOLEAN DOUBLE FLOAT INT INTERVAL JSONB TEXT TIMESTAMPTZ VARBINARY".split())
#: Functions that sqlglot passes on by name; those of schema mmdb may be called as well.
_FUNCTIONS = {"octet_length"}
#: Patterns that mean the same to both: characters, sets of them, groups and counts, from ^ to $.
_PLAIN_PATTERN = re.compile(r"\^[a-zA-Z0-9_\[\](){},.?*+-]*\$")
_KINDS = {"COLUMN", "SCHEMA", "TABLE", "VIEW"}
_HINT = (
    "If both engines mean the same by it, add it to mmdb/db/ddl.py and "
    "tests/integration/test_parity.py; otherwise put the statement in sql/engines."
)
_STATEMENTS = exp.Alter, exp.Comment, exp.Create, exp.Delete, exp.Drop, exp.Insert, exp.Update


def translate_query(sql: str) -> str:
    """Return one query with `$name` placeholders in DuckDB's dialect.

    Raises:
        UntranslatableSql: it holds anything that is not known to mean the same in both engines.
    """
    (node,) = _parse(sql)
    return _generate(node)


def translate_schema(sql: str) -> list[str]:
    """Return the DuckDB statements for a file of tables, views, comments, rows and changes.

    Raises:
        UntranslatableSql: it holds anything that is not known to mean the same in both engines.
    """
    statements: list[str] = []
    for node in _parse(sql):
        if isinstance(node, exp.Create) and _kind(node) == "TABLE":
            statements += _table(node)
        elif isinstance(node, _STATEMENTS):
            statements.append(_generate(node))
        elif not isinstance(node, exp.Semicolon):  # a comment after the last statement
            raise UntranslatableSql(f"Not a change: {_excerpt(node)}")
    return statements


def _parse(sql: str) -> list[exp.Expr]:
    try:
        parsed = [node for node in sqlglot.parse(sql, read="postgres") if node is not None]
    except sqlglot.errors.ParseError as error:
        raise UntranslatableSql(f"{error}: {sql.strip()[:120]}") from error
    for statement in parsed:
        for node in statement.walk():
            for reason in _objections(node):
                raise UntranslatableSql(
                    f"{reason} has no known form in DuckDB: {_excerpt(statement)}", hint=_HINT
                )
    return parsed


def _objections(node: exp.Expr) -> Iterator[str]:
    """Yield what keeps a node from being translated."""
    name = type(node).__name__
    if name not in _NODES:
        yield name
        return
    given = {key for key, value in node.args.items() if value not in (None, False, [])}
    yield from (f"{name} with {key}" for key in given - _NODES[name] - _OPERANDS)
    match node:
        case exp.DataType():
            yield from _type_objections(node)
        case exp.Anonymous() if not _is_known_function(node):
            yield f"Function {node.name}"
        case exp.Cast(this=exp.Literal()) if node.to.this == exp.DType.VARBINARY:
            yield "A literal of type bytea"  # the escapes in it differ
        case exp.Div() if not (_is_double(node.this) or _is_double(node.expression)):
            yield "A division where neither operand is cast to double precision"
        case exp.Div() if not node.expression.find(exp.Literal, exp.Nullif):
            yield "A division by what may be zero, for want of nullif(..., 0)"  # error or infinity
        case exp.ArrayContainsAll() if not node.expression.find(exp.Coalesce):
            yield "An array that may contain NULL, for want of coalesce"  # DuckDB looks past it
        case exp.Extract() if node.name.upper() != "EPOCH":
            yield f"EXTRACT({node.name})"  # the others depend on the session's time zone
        case exp.RegexpLike() if not _PLAIN_PATTERN.fullmatch(node.expression.name):
            yield "A pattern that is not plain and of the whole text"  # the dialects differ
        case exp.JSONExtract() | exp.JSONExtractScalar() if not _has_path(node):
            yield "A JSON key that is not a literal"  # DuckDB reads $ in it as a path
        case exp.Alter() | exp.Comment() | exp.Create() | exp.Drop() if _kind(node) not in _KINDS:
            yield f"{name} {_kind(node)}"
        case exp.Create(expression=exp.Expr()) if _kind(node) == "TABLE":
            yield "CREATE TABLE AS"
        case exp.Reference() if not isinstance(node.parent, exp.ForeignKey):
            yield "A foreign key that is not a named constraint of the table"
        case exp.Identifier(quoted=True):
            yield f"The quoted name {node.sql()}"  # DuckDB's names never tell case apart


def _type_objections(node: exp.DataType) -> Iterator[str]:
    scalar = node.expressions[0] if node.this == exp.DType.ARRAY else node
    if not isinstance(scalar, exp.DataType) or scalar.expressions or scalar.this.name not in _TYPES:
        yield f"Type {node.sql('postgres')}"


def _is_known_function(node: exp.Anonymous) -> bool:
    around = node.parent
    schema = around.args.get("db") if isinstance(around, exp.Table) else around and around.this
    is_ours = isinstance(schema, exp.Identifier) and schema.name == "mmdb"
    return is_ours or node.name.lower() in _FUNCTIONS


def _is_double(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and bool(node.to.this == exp.DType.DOUBLE)


def _has_path(node: exp.Expr) -> bool:
    return isinstance(node.expression, exp.JSONPath)


def _kind(node: exp.Expr) -> str:
    return str(node.args["kind"]).upper()


def _excerpt(node: exp.Expr) -> str:
    return node.sql("postgres", comments=False)[:120]


def _generate(node: exp.Expr) -> str:
    for like in list(node.find_all(exp.Like)):  # without ESCAPE, DuckDB has no escape character
        like.replace(exp.Escape(this=like.copy(), expression=exp.Literal.string("\\")))
    try:
        return node.sql(dialect="duckdb", unsupported_level=sqlglot.ErrorLevel.RAISE)
    except sqlglot.errors.UnsupportedError as error:
        raise UntranslatableSql(f"{error}: {_excerpt(node)}") from error


def _table(node: exp.Create) -> list[str]:
    """Return a table without identity columns (sequences instead) and without foreign keys.

    DuckDB checks a foreign key against the rows as they were before the transaction, so deleting
    children and their parent together fails, and so does updating a parent row.
    """
    table = node.this.this
    before: list[str] = []
    for column in node.find_all(exp.ColumnDef):
        for constraint in list(column.args.get("constraints") or ()):
            if isinstance(constraint.kind, exp.GeneratedAsIdentityColumnConstraint):
                sequence = f"{table.db}.{table.name}_{column.name}_seq"
                before.append(f"CREATE SEQUENCE {sequence}")
                constraint.replace(_default_nextval(sequence))
    for foreign_key in list(node.find_all(exp.ForeignKey)):
        (foreign_key.find_ancestor(exp.Constraint) or foreign_key).pop()
    return [*before, _generate(node)]


def _default_nextval(sequence: str) -> exp.ColumnConstraint:
    call = exp.Anonymous(this="nextval", expressions=[exp.Literal.string(sequence)])
    return exp.ColumnConstraint(kind=exp.DefaultColumnConstraint(this=call))
