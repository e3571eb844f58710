"""What the rest of mmdb needs of a database: named query + parameters -> rows, tables by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np

from mmdb.db.prediction_table import NamedTable, PredictionTarget
from mmdb.db.queries import Query, load

if TYPE_CHECKING:
    import pyarrow as pa

    from mmdb.db.server_sessions import ServerStatus  # loads a driver

_Result = TypeVar("_Result")


RelationKind = Literal["table", "view", "other"]


@dataclass(frozen=True, slots=True)
class TableName:
    """A name in FROM, its parts as the engine compares them: PostgreSQL folds what is unquoted."""

    name: str
    schema: str | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table or view with its columns."""

    schema: str
    name: str
    kind: RelationKind  # other: a view of the system, whose definition says nothing
    columns: tuple[tuple[str, str], ...]  # name and type, in order
    definition: str | None = None  # a view's SELECT, or DuckDB's CREATE VIEW
    database: str | None = None  # DuckDB's; None on PostgreSQL
    is_attached: bool = False  # it is not in the session's own database

    @property
    def shown_schema(self) -> str:
        """The schema, with the database before it where that is another one."""
        return f"{self.database}.{self.schema}" if self.is_attached else self.schema


# -- PostgreSQL ---------------------------------------------------------------


def find_postgres(connection: Connection, name: TableName) -> Relation | None:
    """Return the relation of a name, looked up along the session's search_path.

    No right is needed on it: a view may read what its reader may not name.
    """
    rows = connection.rows(load("catalog").find_relation, name=name.name, schema=name.schema)
    if not rows:
        return None
    row = rows[0]
    return Relation(
        schema=row["schema_name"],
        name=row["name"],
        kind=row["kind"],
        columns=tuple(zip(row["column_names"], row["column_types"], strict=True)),
        definition=row["definition"],
    )


# -- DuckDB -------------------------------------------------------------------

#: Both kinds by their names in lower case; the system's own last. DuckDB's functions have no
#: counterpart on PostgreSQL, so this is no named query.
_CANDIDATES = """
SELECT database_name, schema_name, table_name AS name, 'table' AS kind, NULL AS sql, internal
FROM duckdb_tables() WHERE lower(table_name) = $name
UNION ALL
SELECT database_name, schema_name, view_name, if(internal, 'other', 'view'), sql, internal
FROM duckdb_views() WHERE lower(view_name) = $name
"""
_COLUMNS = """
SELECT column_name, data_type FROM duckdb_columns()
WHERE database_name = $database AND schema_name = $schema AND table_name = $name
ORDER BY column_index
"""
_PATH = """
SELECT
    current_database() AS database,
    current_schema() AS schema,
    current_setting('search_path') AS search_path
"""
#: An entry of the search_path, and a part of it: `shop`, `zoo.shop`, `"my, own.shop"`.
_ENTRY = re.compile(r'(?:"(?:[^"]|"")*"|[^",])+')
_PART = re.compile(r'"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^".]+)')


def find_duckdb(session: Any, name: TableName, beside: Relation | None) -> Relation | None:
    """Return the relation of a name, or None where none or several could be meant.

    Args:
        session: anything with DuckDB's `execute`.
        beside: the view in whose definition the name stands: DuckDB looks into its schema first.
    """
    candidates = _fetch(session, _CANDIDATES, {"name": name.name.lower()})
    if not candidates:
        return None
    (path,) = _fetch(session, _PATH, {})
    found = _choose(candidates, name, _places(path, beside), path["database"])
    if found is None:
        return None
    key = {"database": found["database_name"], "schema": found["schema_name"]}
    columns = _fetch(session, _COLUMNS, key | {"name": found["name"]})
    return Relation(
        schema=found["schema_name"],
        name=found["name"],
        kind=found["kind"],
        columns=tuple((row["column_name"], row["data_type"]) for row in columns),
        definition=found["sql"] if found["kind"] == "view" else None,
        database=found["database_name"],
        is_attached=found["database_name"] not in (path["database"], "system"),
    )


def _fetch(session: Any, sql: str, parameters: dict[str, str]) -> list[Row]:
    cursor = session.execute(sql, parameters or None)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _choose(
    candidates: Sequence[Row],
    name: TableName,
    places: Sequence[tuple[str, str]],
    database: str,
) -> Row | None:
    """Return what a name means; None: nothing, or one of several."""
    if name.schema is None:
        by_place = {_place(row): row for row in candidates}
        return next((by_place[place] for place in places if place in by_place), None)
    fitting = [row for row in candidates if _fits(row, name.schema.lower(), name.database)]
    if name.database is None:  # a schema of the session's database goes before other databases
        fitting = [row for row in fitting if row["database_name"] == database] or fitting
    return fitting[0] if len(fitting) == 1 else None


def _fits(row: Row, schema: str, database: str | None) -> bool:
    if database is not None:
        return _place(row) == (database.lower(), schema)
    return schema in (row["schema_name"].lower(), row["database_name"].lower()) and (
        row["schema_name"].lower() in (schema, "main")
    )


def _place(row: Row) -> tuple[str, str]:
    return row["database_name"].lower(), row["schema_name"].lower()


def _places(path: Row, beside: Relation | None) -> list[tuple[str, str]]:
    """Return the schemas in which a name without one is looked up, in order."""
    database, schema = path["database"].lower(), path["schema"].lower()
    view = [(beside.database.lower(), beside.schema.lower())] if beside and beside.database else []
    rest = [_entry(entry, database) for entry in _ENTRY.findall(path["search_path"] or "")[1:]]
    last = [(database, "main"), ("system", "main"), ("system", "pg_catalog")]
    return [("temp", "main"), *view, (database, schema), *rest, *last]


def _entry(entry: str, database: str) -> tuple[str, str]:
    parts = [m["plain"] or m["quoted"].replace('""', '"') for m in _PART.finditer(entry)]
    *around, schema = (part.lower() for part in parts)
    return (around[-1] if around else database), schema


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Texts(Sequence[str | None]):
    """Texts of some rows, each different one once."""

    distinct: Sequence[str | None]
    places: np.ndarray  # of each row's text among them, whole numbers (n,)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, place: Any) -> Any:
        return self.distinct[self.places[place]]

    def __iter__(self) -> Iterator[str | None]:
        return map(self.distinct.__getitem__, self.places.tolist())


#: How a scanned column arrives: float32 (n,), float64 (n,), int64 (n,), `Texts`, float32 (n, k),
#: uint8 (n, k); float64 (n,) with NaN for NULL, `Texts` with None for it, list of bytes with None.
Kind = Literal[
    "real", "double", "bigint", "text", "reals", "bytes", "number", "nullable_text", "files"
]

#: Columns of some rows, by name, as their kinds say.
Batch = dict[str, "np.ndarray | Sequence[Any]"]

#: A column's type, as far as mmdb tells types apart; anything else keeps the engine's name.
#: "integer", "float", "numeric" (PostgreSQL's, of any size), "boolean", "text", "float_array",
#: "bytes", "moment", "clock", "span"; "composite" and "range", whose parts are columns
ColumnType = str

#: What a lock guards: a candidate while it hops, or a run while a driver trains it.
Lock = Literal["hop", "run"]

#: Rows that one step of a scan returns at most.
SCAN_ROWS = 65536


class NullFound(Exception):
    """A scan met a NULL, in a column or in an array of it."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class RaggedFound(Exception):
    """A scan met an array or byte string of another length than the first row's."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class Connection(Protocol):
    """One session with a database. Not safe for use by two threads at once."""

    @property
    def engine(self) -> Literal["postgres", "duckdb"]:
        """Which engine answers."""

    @property
    def threads(self) -> int:
        """Threads that may compute for this session; 0 inside the server: they take its signals."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction block is open."""

    def rows(self, query: Query, /, **parameters: object) -> list[Row]:
        """Run `query` and return its rows; json is text, bytea is bytes."""

    def run(self, query: Query, /, **parameters: object) -> None:
        """Run `query` and return nothing."""

    def run_many(self, query: Query, rows: Iterable[Mapping[str, object]]) -> None:
        """Run `query` once for each mapping of parameters, in one round of traffic."""

    def append(self, query: Query, rows: Iterable[Sequence[object]]) -> None:
        """Insert many rows the fastest way that the engine has.

        Args:
            query: a plain INSERT of its placeholders, in the order of its columns.
            rows: values in that order; read one by one, so that a generator may make them.
        """

    def stream(
        self, query: Query, /, **parameters: object
    ) -> Generator[tuple[Any, ...], None, None]:
        """Run `query` and yield its rows as they arrive.

        Until the last row is read, or the generator closed, the session can do nothing else.
        """

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing: commit when the block ends, roll back when it raises."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Inside the block every read sees the same snapshot, and nothing can be written."""

    def try_lock(self, kind: Lock, key: int) -> bool:
        """Take an exclusive lock, or return False at once where another session holds it.

        A "hop" lock ends with the transaction, a "run" lock with `unlock` or the session.
        """

    def unlock(self, kind: Lock, key: int) -> None:
        """Release a "run" lock."""

    def columns(self, select: str) -> list[tuple[str, ColumnType]]:
        """Return name and type of the columns of a SELECT without running it."""

    def prepare(self, statement: str) -> None:
        """Check that a text is one statement that the engine takes, without running it.

        Raises:
            NotOneStatement, QueryFailed, UnknownTable, UnknownColumn, RightsMissing
        """

    def scan(self, select: str, kinds: Sequence[tuple[str, Kind]]) -> Iterator[Batch]:
        """Run a SELECT whose columns are already cast to `kinds` and yield columns by name.

        Yields:
            At most SCAN_ROWS rows a step; see `Kind` for dtypes and shapes.
        Raises:
            NullFound, RaggedFound
        """

    def relation(self, name: TableName, beside: Relation | None = None) -> Relation | None:
        """Return the table or view of a name, or None where it is not there or not sure.

        Args:
            beside: the view in whose definition the name stands.
        """

    def find_target(self, target: PredictionTarget) -> NamedTable:
        """Return the table of a name, or the place where it would be made.

        Raises:
            TargetMismatch: there is no such schema, or it is not for tables of users.
        """

    def key_type(self, select: str, key: str) -> str:
        """Return the type of a SELECT's column, as `Table.columns` has it, without running it."""

    def create_target(self, table: NamedTable, select: str, key: str) -> None:
        """Make a table of predictions whose key is as a SELECT's column.

        Raises:
            WriteConflict: another session has made it.
        """

    def append_predictions(
        self, table: NamedTable, model: str, batches: Iterable[pa.RecordBatch]
    ) -> None:
        """Add predictions of a model to a table, at the transaction's time.

        Args:
            batches: with columns key, prediction (text), probability (double precision) and, where
                the table has it, probabilities (JSON as text).
        """


@runtime_checkable
class Source(Protocol):
    """Runs functions that read, each in a session of its own while it lasts."""

    def read(
        self, work: Callable[[Connection], _Result], *, model_ids: Collection[int], size: int = 0
    ) -> _Result:
        """Return what `work` reads of rows that never change once a model is saved.

        Args:
            work: may be begun again, from the start, in another session.
            model_ids: the models that `work` reads.
            size: bytes that it will ask for, about.
        """

    def newest(self, work: Callable[[Connection], _Result]) -> _Result:
        """Return what `work` reads of rows that change, such as names."""

    def status(self) -> list[ServerStatus]:
        """Return how each server fared, the primary first; none of a single session."""

    def close(self) -> None:
        """End the sessions that are its own."""


class OneSession:
    """A source that is one session, for one thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(
        self, work: Callable[[Connection], _Result], *, model_ids: Collection[int], size: int = 0
    ) -> _Result:
        """Return what `work` reads."""
        return work(self._connection)

    def newest(self, work: Callable[[Connection], _Result]) -> _Result:
        """Return what `work` reads."""
        return work(self._connection)

    def status(self) -> list[ServerStatus]:
        """Return nothing: there is no choice of servers."""
        return []

    def close(self) -> None:
        """Do nothing: the session is its caller's."""
