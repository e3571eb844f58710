"""What the rest of mmdb needs of a database: named query + parameters -> rows.

Three classes implement it: `postgres.PostgresConnection` (psycopg), `duck.DuckConnection`, and
`server.plpy_connection.PlpyConnection` inside the server. Nothing above `db` knows which it has.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from mmdb.db.prediction_table import NamedTable, PredictionTarget
from mmdb.db.queries import Query
from mmdb.db.relations import Relation, TableName

if TYPE_CHECKING:  # the server loads it only where rows are written
    import pyarrow as pa

Row = Mapping[str, Any]

#: How a scanned column arrives: float32 (n,), int64 (n,), list of str,
#: float32 (n, k), uint8 (n, k).
Kind = Literal["real", "bigint", "text", "reals", "bytes"]

#: A column's type, as far as mmdb tells types apart; anything else keeps the engine's name.
#: "integer", "float", "boolean", "text", "float_array", "bytes"
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

    def scan(
        self, select: str, kinds: Sequence[tuple[str, Kind]]
    ) -> Iterator[dict[str, np.ndarray | list[str]]]:
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
            batches: with columns key, prediction (text) and probability (double precision).
        """
