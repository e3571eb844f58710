"""Stars in a SELECT, as far as their columns are known."""

from __future__ import annotations

from sqlglot import exp

from mmdb.data.query.columns import Column, gap
from mmdb.data.query.expressions import Reader, called
from mmdb.data.query.names import fold, name_of, shown


def expand(item: exp.Expr, reader: Reader) -> list[Column] | None:
    """Return the columns of a star, or None for an item that is none."""
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


def _fields(value: exp.Expr, reader: Reader) -> Column:
    """Return the fields of a value, as many as there are."""
    reads = reader.read(value)
    fields = gap(None, reads.columns)
    fields.queries = reads.queries
    return fields


def _star_of(node: exp.Expr) -> exp.Expr | None:
    while isinstance(node, exp.Binary | exp.Not | exp.Escape):
        node = node.this
    return node if isinstance(node, exp.Star) or node.is_star else None


def _columns_of(around: list[str], reader: Reader) -> list[Column]:
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


def _changed(columns: list[Column], star: exp.Expr, reader: Reader) -> list[Column]:
    """Return a star's columns after EXCLUDE, REPLACE and RENAME."""
    engine = reader.scope.engine
    excluded = star.args.get("except_") or ()
    left_out = {_key(part, reader) for part in excluded if not _is_qualified(part)}
    others = [_qualified(part, reader) for part in excluded if _is_qualified(part)]
    replaced = {fold(p.alias, engine): p for p in star.args.get("replace") or ()}
    renamed = {_key(p.this, reader): p.args["alias"] for p in star.args.get("rename") or ()}
    changed: list[Column] = []
    for column in columns:
        name = column.name
        if column.is_gap or name is None:
            changed.append(column)
        elif name in replaced:
            reads = reader.read(replaced[name].this)
            made = Column(name, column.label, reads=reads.columns, queries=reads.queries)
            changed.append(made)
        elif name in renamed:
            alias = renamed[name]
            changed.append(Column(name_of(alias, engine), shown(alias, engine), reads=[column]))
        elif name not in left_out and not any(column is other for other in others):
            changed.append(column)
    if left_out | set(replaced) | set(renamed) and any(c.name is None for c in columns):
        return [gap() if column.is_gap else column for column in changed]
    return changed


def _is_qualified(part: exp.Expr) -> bool:
    return isinstance(part, exp.Column) and bool(part.table)


def _qualified(part: exp.Expr, reader: Reader) -> Column | None:
    assert isinstance(part, exp.Column)
    engine = reader.scope.engine
    return reader.scope.find([name_of(name, engine) for name in part.parts])


def _key(part: exp.Expr, reader: Reader) -> str:
    identifier = part.this if isinstance(part, exp.Column) else part
    return name_of(identifier, reader.scope.engine)
