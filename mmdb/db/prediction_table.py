"""Tables of predictions and embeddings: what they are called and must be; found, made, filled."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from mmdb import errors
from mmdb.db.queries import load, quote_name

if TYPE_CHECKING:
    import pyarrow as pa

    from mmdb.db.connection import Connection


Engine = Literal["postgres", "duckdb"]

#: Columns beside the key, in order, with their types on both engines; the last is there on request.
COLUMNS = {
    "prediction": ("text", "VARCHAR"),
    "probability": ("double precision", "DOUBLE"),
    "model": ("text", "VARCHAR"),
    "predicted_at": ("timestamp with time zone", "TIMESTAMP WITH TIME ZONE"),
    "probabilities": ("jsonb", "JSON"),
}
#: Bytes of a name that PostgreSQL keeps; it would cut a longer one without an error.
MAX_NAME_BYTES = 63

_PART = r'(?:"(?:[^"\0]|"")+"|[^\W\d][\w$]*)'
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")
_NAMING = 'Write table or schema.table; a part that is no plain name in quotes: "my table".'
_KEY = "Name the column of the query that tells its rows apart."
_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 80


#: Columns that every such table has, of a call; all others hold what is written of a row.
OF_CALLS = ("model", "predicted_at")


def prediction_columns(engine: Engine, *, has_probabilities: bool = False) -> dict[str, str]:
    """Return the types of the columns beside the key, by name.

    Args:
        has_probabilities: of all classes, in a column of their own.
    """
    types = {name: pair[engine == "duckdb"] for name, pair in COLUMNS.items()}
    if not has_probabilities:
        del types["probabilities"]
    return types


def embedding_columns(engine: Engine, column: str, kind: str) -> dict[str, str]:
    """Return the types of the columns beside the key of a table of embeddings, by name."""
    return {column: kind} | {name: COLUMNS[name][engine == "duckdb"] for name in OF_CALLS}


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTarget:
    """The name of a table, as the engine compares it, and what is written to it."""

    schema: str | None  # None: by the session's search path
    table: str
    types: Mapping[str, str]  # of the columns beside the key, in order

    @classmethod
    def parse(
        cls, text: str, engine: Engine, types: Mapping[str, str] | None = None
    ) -> PredictionTarget:
        """Return the table that `table` or `schema.table` names.

        A part that is no plain name is quoted as in SQL. PostgreSQL folds what is not quoted.

        Args:
            types: of its columns beside the key; None: those of `prediction_columns`.
        Raises:
            InvalidName: the text is no such name, or longer than PostgreSQL keeps.
            TargetMismatch: it is in a schema of the system or of mmdb.
        """
        match = _NAME.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise errors.InvalidName(
                f"The target {_shown.repr(text)} names no table.", hint=_NAMING
            )
        schema, table = (None if part is None else _name(part, engine) for part in match.groups())
        assert table is not None
        if schema is not None:
            check_schema(schema)
        return cls(schema=schema, table=table, types=types or prediction_columns(engine))

    @property
    def sql(self) -> str:
        """The name as SQL text."""
        return _dotted(self.schema, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """A table that is there, or its place."""

    schema: str
    name: str
    catalog: str | None = None  # what DuckDB calls the file
    exists: bool = True
    is_base: bool = True  # no view, foreign table or the like
    columns: tuple[tuple[str, str], ...] = ()  # name and type, without the type's modifiers
    key_cast: str = ""  # PostgreSQL's: what a text is cast to for the first column
    types: Mapping[str, str]  # see `PredictionTarget`

    @property
    def sql(self) -> str:
        """The name as SQL text."""
        return _dotted(self.catalog, self.schema, self.name)

    @property
    def values(self) -> dict[str, str]:
        """The types of the columns that hold what is written of a row, by name."""
        return {name: kind for name, kind in self.types.items() if name not in OF_CALLS}

    @property
    def reference(self) -> str:
        """The name for people."""
        return f"{self.schema}.{self.name}"


def check_schema(schema: str) -> None:
    """Raise TargetMismatch where a schema is of the system, of mmdb, or temporary."""
    name = schema.lower()
    if name in ("mmdb", "information_schema") or name.startswith("pg_"):
        raise errors.TargetMismatch(
            f"Predictions are not written to schema {schema}.",
            hint="Name a table in a schema of your own.",
        )


def check_key(key: str, others: Iterable[str] = COLUMNS) -> None:
    """Raise where the key is no name, or that of another column of the table."""
    if not isinstance(key, str):
        raise errors.InvalidName(f"The key is {_shown.repr(key)}, no column's name.", hint=_KEY)
    if key.lower() in map(str.lower, others):
        raise errors.TargetMismatch(
            f"The key is named {key}, as a column of the predictions.",
            hint=f"Give it another name in the query: SELECT {key} AS id, ...",
        )


def check_columns(table: NamedTable, key: str, key_type: str, engine: Engine) -> None:
    """Raise TargetMismatch unless a table takes predictions whose key has some name and type."""
    if not table.is_base:
        raise errors.TargetMismatch(f"{table.reference} is no table.")
    wanted = [(key, key_type), *table.types.items()]
    if _compared(table.columns, engine) != _compared(wanted, engine):
        raise errors.TargetMismatch(
            f"Table {table.reference} has the columns {_listed(table.columns)}; "
            f"these predictions have {_listed(wanted)}."
        )


def _compared(columns: Iterable[tuple[str, str]], engine: Engine) -> list[tuple[str, str]]:
    """Return columns as they are alike; PostgreSQL may quote all names of types."""
    is_duckdb = engine == "duckdb"
    return [(name.lower() if is_duckdb else name, kind.replace('"', "")) for name, kind in columns]


def _listed(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _dotted(*parts: str | None) -> str:
    return ".".join(quote_name(part) for part in parts if part is not None)


def _name(part: str, engine: Engine) -> str:
    """Return the name that a part of a target stands for.

    Raises:
        InvalidName
    """
    if part.startswith('"'):
        name = part[1:-1].replace('""', '"')
    elif engine == "postgres":  # it folds ASCII alone, where a letter may take several bytes
        name = "".join(c.lower() if c.isascii() else c for c in part)
    else:
        name = part
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise errors.InvalidName(f"The name {_shown.repr(name)} is no text.") from error
    if engine == "postgres" and size > MAX_NAME_BYTES:
        raise errors.InvalidName(
            f"The name {_shown.repr(name)} has {size} bytes; PostgreSQL keeps {MAX_NAME_BYTES}.",
            hint="Choose a shorter one.",
        )
    return name


def create_statement(table: NamedTable, select: str, key: str) -> str:
    """Return the statement that makes a table; the key has the type that the SELECT gives it."""
    given = table.types.items()
    others = ", ".join(f"CAST(NULL AS {kind}) AS {quote_name(name)}" for name, kind in given)
    return (
        f"CREATE TABLE {table.sql} AS SELECT q.{quote_name(key)}, {others} "
        f"FROM ({select}\n) AS q WITH NO DATA"
    )


# -- PostgreSQL, both ways ----------------------------------------------------


def find_postgres(connection: Connection, target: PredictionTarget) -> NamedTable:
    """Return a target's table, or the place for it.

    Raises:
        TargetMismatch: there is no such schema, or it is not for tables of users.
    """
    query = load("catalog").find_target
    rows = connection.rows(query, name=target.sql, schema=target.schema)
    first = rows[0]
    schema = _existing(target, first["schema_name"])
    if first["table_name"] is None:
        return NamedTable(schema=schema, name=target.table, exists=False, types=target.types)
    return NamedTable(
        schema=schema,
        name=first["table_name"],
        is_base=first["is_base"],
        columns=tuple((r["column_name"], r["type"]) for r in rows if r["column_name"] is not None),
        key_cast=first["key_cast"] or "",
        types=target.types,
    )


def _existing(target: PredictionTarget, schema: str | None) -> str:
    """Return the schema that a target is in, or would be made in."""
    if schema is None:
        wanted = "in which to make a table" if target.schema is None else target.schema
        raise errors.TargetMismatch(
            f"There is no schema {wanted}.", hint="Name one that exists: schema.table."
        )
    check_schema(schema)
    return schema


def key_type_postgres(select: str, key: str) -> str:
    """Return the query for the type of a SELECT's column; it runs nothing of the SELECT."""
    inner = f"SELECT q.{quote_name(key)} FROM ({select}\n) AS q LIMIT 0"
    return f"SELECT pg_catalog.pg_typeof(({inner}))::text AS type"


def insert_postgres(
    table: NamedTable, mark: Callable[[int], str], percent: str = "%"
) -> tuple[str, list[str]]:
    """Return the INSERT of one batch, and the types of its parameters.

    Args:
        mark: makes the placeholder of a parameter's place: the model, the keys, and the values of
            each column in turn, see `sent`.
        percent: what stands for a percent sign in a name.
    """
    into, key, cast = (
        text.replace("%", percent)
        for text in (table.sql, quote_name(table.columns[0][0]), table.key_cast)
    )
    columns = [quote_name(name).replace("%", percent) for name in table.values]
    kinds = [k if k == "double precision" else "text" for k in table.values.values()]
    taken = [f"pg_catalog.unnest({mark(1)}::text[]) AS k"]
    taken += [f"pg_catalog.unnest({mark(n + 2)}::{kind}[]) AS v{n}" for n, kind in enumerate(kinds)]
    given = [f"u.v{n}::{kind}" for n, kind in enumerate(table.values.values())]
    return (  # functions in a SELECT's list keep no rows on the way, as those after FROM do
        f"INSERT INTO {into} (model, {key}, predicted_at, {', '.join(columns)}) "
        f"SELECT {mark(0)}::text, u.k::{cast}, pg_catalog.now(), {', '.join(given)} "
        f"FROM (SELECT {', '.join(taken)}) AS u"
    ), ["text", "text[]", *(f"{kind}[]" for kind in kinds)]


def explain_key(table: NamedTable, select: str, key: str) -> str:
    """Return the query for how a table's key would be filled by a SELECT's."""
    name = quote_name(key)
    return (
        f"EXPLAIN (COSTS OFF) INSERT INTO {table.sql} ({name})"
        f" SELECT q.{name} FROM ({select}\n) AS q"
    )


def insert_of_blocks(table: NamedTable, blocks: str) -> tuple[str, list[str]]:
    """Return the INSERT of what nodes predict of blocks of rows, and the types of its parameters.

    They are the model, when it predicts, and the first arguments of `mmdb.predict_rows`, then its
    last one.
    """
    key = quote_name(table.columns[0][0])
    columns = ", ".join(map(quote_name, table.values))
    given, values = (
        ", ".join(f"{of}.{quote_name(name)}" for name in table.values) for of in ("p", "u")
    )
    return (  # functions in a SELECT's list would keep the nodes from it
        f"INSERT INTO {table.sql} (model, {key}, predicted_at, {columns})"
        f" SELECT $1::text, u.key::{table.key_cast}, $2::timestamptz, {values} FROM ({blocks}) AS b"
        " CROSS JOIN LATERAL"
        " mmdb.predict_rows($3::bigint, $4::text, $5::text[], b.rows, $6::boolean) AS p"
        f" CROSS JOIN LATERAL unnest(p.keys, {given}) AS u (key, {columns})"
    ), ["text", "timestamptz", "bigint", "text", "text[]", "boolean"]


def sent(table: NamedTable, batch: pa.RecordBatch) -> list[list[Any]]:
    """Return the columns of a batch as PostgreSQL is sent them: vectors as texts."""
    kinds = ["", *table.values.values()]
    columns = [column.to_pylist() for column in batch.columns]
    return [
        [vector_text(one, kind) for one in column] if _is_vector(kind) else column
        for column, kind in zip(columns, kinds, strict=True)
    ]


def _is_vector(kind: str) -> bool:
    return kind not in ("", *(postgres for postgres, _ in COLUMNS.values()))


def vector_text(vector: Sequence[float], kind: str) -> str:
    """Return a vector as PostgreSQL reads it: of type real[], or pgvector's vector.

    >>> vector_text([1.5, 2.0], "real[]"), vector_text([1.5, 2.0], "public.vector(2)")
    ('{1.5, 2.0}', '[1.5, 2.0]')
    """
    inner = repr(list(vector))[1:-1]
    return f"{{{inner}}}" if kind.endswith("[]") else f"[{inner}]"


@contextmanager
def made_once() -> Iterator[None]:
    """Raise WriteConflict where another session made the table first.

    PostgreSQL says duplicate_table, or, if that session had still to commit, unique_violation of
    its own catalog.
    """
    try:
        yield
    except Exception as error:
        if getattr(error, "sqlstate", None) in ("42P07", "23505"):
            raise errors.WriteConflict("Another session has just made the table.") from error
        raise


# -- DuckDB -------------------------------------------------------------------

#: DuckDB's functions have no counterpart on PostgreSQL, so these are no named queries.
_FIND_DUCKDB = """
SELECT t.schema_name, t.table_name, t.is_base, c.column_name, c.data_type
FROM (
    SELECT database_name, schema_name, table_name, true AS is_base FROM duckdb_tables()
    UNION ALL
    SELECT database_name, schema_name, view_name, false FROM duckdb_views()
) AS t
LEFT JOIN duckdb_columns() AS c
    ON c.database_name = t.database_name AND c.schema_name = t.schema_name
    AND c.table_name = t.table_name
WHERE t.database_name = $catalog AND lower(t.schema_name) = lower($schema)
    AND lower(t.table_name) = lower($name)
ORDER BY c.column_index
"""
_SCHEMA_DUCKDB = """
SELECT current_database(), s.schema_name
FROM duckdb_schemas() AS s
WHERE s.database_name = current_database()
    AND lower(s.schema_name) = lower(coalesce($schema, current_schema()))
"""


def find_duckdb(session: Any, target: PredictionTarget) -> NamedTable:
    """Return a target's table in the file that the session has open, or the place for it.

    Raises:
        TargetMismatch: there is no such schema, or it is not for tables of users.
    """
    place = session.execute(_SCHEMA_DUCKDB, {"schema": target.schema}).fetchone()
    catalog, schema = (None, None) if place is None else place
    schema = _existing(target, schema)
    where = {"catalog": catalog, "schema": schema, "name": target.table}
    rows = session.execute(_FIND_DUCKDB, where).fetchall()
    found = NamedTable(
        catalog=catalog,
        schema=schema,
        name=target.table,
        exists=False,
        types=target.types,
    )
    if not rows:
        return found
    columns = tuple((name, kind) for *_, name, kind in rows if name is not None)
    _, name, is_base, *_ = rows[0]
    return replace(found, name=name, is_base=is_base, columns=columns, exists=True)


def key_type_duckdb(session: Any, select: str, key: str) -> str:
    """Return the type of a SELECT's column."""
    rows = session.execute(f"DESCRIBE SELECT q.{quote_name(key)} FROM ({select}\n) AS q").fetchall()
    return str(rows[0][1])


def insert_duckdb(table: NamedTable, batch: str) -> str:
    """Return the statement that adds the key and values of a table named `batch`, by `$model`."""
    names = ", ".join(map(quote_name, [table.columns[0][0], *table.values]))
    given = ", ".join(f"v{n}" for n in range(1 + len(table.values)))
    return (
        f"INSERT INTO {table.sql} ({names}, model, predicted_at) "
        f"SELECT {given}, $model, now() FROM {batch} AS b ({given})"
    )
