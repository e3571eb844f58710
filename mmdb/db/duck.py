"""A DuckDB file, opened by this process, as a `Connection`."""

from __future__ import annotations

import atexit
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import duckdb

from mmdb import errors
from mmdb.db import prediction_table, shrink
from mmdb.db.connection import Batch, ColumnType, Kind, Lock, Relation, Row, TableName, find_duckdb
from mmdb.db.prediction_table import NamedTable, PredictionTarget
from mmdb.db.queries import Query
from mmdb.db.row_formats import arrow_batches
from mmdb.db.scan_duckdb import columns_duckdb, is_interrupt, prepare_duckdb, scan_duckdb

if TYPE_CHECKING:
    import pyarrow as pa

#: Files that this process has open: functions are registered once a file.
_open_files: set[str] = set()


class DuckConnection:
    """The one connection of the process that owns the file."""

    engine: Literal["duckdb"] = "duckdb"
    threads = 2

    def __init__(self, path: str) -> None:
        self._file = "" if path == ":memory:" else str(Path(path).resolve())
        if self._file in _open_files:
            raise errors.DatabaseLocked(
                f"{path} is open in this process already.",
                hint="Use the connection that is open, or close it first.",
            )
        if self._file and not _is_duckdb(Path(self._file)):
            raise errors.WrongUrl(f"{path} is no DuckDB file.", hint=_PATH)
        try:
            self.raw = _open(path)
        except duckdb.IOException as error:
            if "could not set lock" in str(error).lower():
                raise errors.DatabaseLocked(f"{path} is open in another process.") from error
            raise errors.WrongUrl(f"Cannot open {path}: {_text(error)}", hint=_PATH) from error
        except duckdb.Error as error:
            raise errors.WrongUrl(f"Cannot open {path}: {_text(error)}", hint=_PATH) from error
        if self._file:
            _open_files.add(self._file)
            shrink.new_file(self._file).unlink(missing_ok=True)  # of a process that was killed
        #: Whether the file is to be written without its free blocks when it is closed.
        self.shrinks = False
        self.url = f"duckdb:///{path}"
        self.path = path
        self._depth = 0
        self._bytes = 0  # that the transaction under way has written in many rows
        self._locked_runs: set[int] = set()
        #: States between two hops, by candidate: hash in hex and bytes. The process that owns
        #: the file dies with its workers, so nothing would be gained by writing them.
        self.in_flight: dict[int, dict[str, bytes]] = {}
        #: The error that a function of mmdb raised inside the statement under way:
        #: DuckDB passes on its text alone.
        self.raised: errors.MmdbError | KeyboardInterrupt | None = None
        atexit.register(self.close)  # an open connection at exit prints pages of warnings

    def translate_error(self, error: duckdb.Error) -> errors.MmdbError | KeyboardInterrupt:
        """Return the mmdb error that a DuckDB error stands for, or the Ctrl-C."""
        raised, self.raised = self.raised, None
        if raised is not None:
            return raised
        if is_interrupt(error):
            return KeyboardInterrupt()
        text = _text(error)
        if isinstance(error, duckdb.CatalogException) and "mmdb" in text:
            return errors.NotInstalled(text, hint="Check its name; it may be of a newer mmdb.")
        return errors.DatabaseFailed(text)

    def rows(self, query: Query, /, **parameters: object) -> list[Row]:
        return self.select(_parsed(query.duckdb), parameters)

    def select(
        self, sql: str | duckdb.Statement, parameters: Mapping[str, object] | None = None
    ) -> list[Row]:
        """Run SQL text (of the user, or of `sql/`) and return its rows."""
        with self._translated():
            cursor: Any = self.raw.execute(sql, parameters or None)
            if cursor is None:  # there was no statement in it
                return []
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def log_up_to(self, size: int) -> None:
        """Let the log grow to so many bytes before what is new in it is written into the file."""
        self.script(f"SET GLOBAL checkpoint_threshold = '{size} bytes'")

    def shut_in(self) -> None:
        """Let no view in the file read another file: somebody else may have made it."""
        self.script("SET enable_external_access = false")

    def script(self, sql: str) -> None:
        """Run several statements of `sql/`, which take no parameters."""
        self.select(sql)

    def run(self, query: Query, /, **parameters: object) -> None:
        self.select(_parsed(query.duckdb), parameters)

    def run_many(self, query: Query, rows: Iterable[Mapping[str, object]]) -> None:
        insert = query.insert_from(_BATCH)
        if insert is None:
            for row in rows:
                self.run(query, **row)
            return
        # DuckDB takes milliseconds for an INSERT, be it of one row or of many.
        for batch in arrow_batches(query.parameters, rows):
            self._bytes += batch.nbytes
            with self._registered(batch.to_batches()):
                self.select(_parsed(insert))

    @contextmanager
    def _registered(self, batches: list[pa.RecordBatch]) -> Iterator[None]:
        """Let one statement read rows of Arrow as the table _BATCH; the list is empty after it.

        DuckDB keeps what was registered until the transaction ends: a reader that was read to its
        end, which is small, in place of the rows.
        """
        import pyarrow as pa

        schema = batches[0].schema
        taken = (batches.pop(0) for _ in range(len(batches)))
        with self._translated():
            self.raw.register(_BATCH, pa.RecordBatchReader.from_batches(schema, taken))
        try:
            yield
        finally:
            with suppress(duckdb.Error):  # the statement's own error is the one to tell
                self.raw.unregister(_BATCH)

    def append(self, query: Query, rows: Iterable[Sequence[object]]) -> None:
        names = list(query.parameters)
        self.run_many(query, (dict(zip(names, row, strict=True)) for row in rows))

    def stream(
        self, query: Query, /, **parameters: object
    ) -> Generator[tuple[Any, ...], None, None]:
        with self._translated():
            cursor = self.raw.execute(_parsed(query.duckdb), parameters or None)
            while row := cursor.fetchone():
                yield row

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction block is open."""
        first, second = (self.select("SELECT txid_current() AS id") for _ in range(2))
        return first == second  # outside of a block every statement has a number of its own

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._depth:  # DuckDB has no savepoints: an inner block belongs to the outer one
            yield
            return
        self.select("BEGIN")
        self._depth += 1
        self._bytes = 0
        try:
            yield
            self._commit()
        except BaseException:  # of COMMIT too: one that a Ctrl-C ended may leave all of it open
            with suppress(errors.DatabaseFailed):  # there is nothing to take back
                self.select("ROLLBACK")
            raise
        finally:
            self._depth -= 1

    def _commit(self) -> None:
        """Commit; what wrote many bytes goes to the file itself, and not to its log before.

        DuckDB would write a log of all bytes, in memory first, and then the file from it. It
        decides by the number of rows: those of models and datasets are few and long.
        """
        if self._bytes < _LOGGED_BYTES:
            self.select("COMMIT")
            return
        (row,) = self.select("SELECT current_setting('checkpoint_threshold') AS set")
        self.select("SET checkpoint_threshold = '1KB'")
        try:
            self.select("COMMIT")
        finally:
            self.select(f"SET checkpoint_threshold = '{row['set']}'")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        if not self._depth and self.in_transaction:
            raise errors.InTransaction(
                "The rows are read in a transaction of their own.", hint="COMMIT or ROLLBACK first."
            )
        with self.transaction():
            yield

    def try_lock(self, kind: Lock, key: int) -> bool:
        if kind == "hop":
            return True  # the owner of the file sends one hop of a candidate at a time
        if key in self._locked_runs:
            return False
        self._locked_runs.add(key)
        return True

    def unlock(self, kind: Lock, key: int) -> None:
        self._locked_runs.discard(key)

    def columns(self, select: str) -> list[tuple[str, ColumnType]]:
        return columns_duckdb(self.raw, select)

    def prepare(self, statement: str) -> None:
        prepare_duckdb(self.raw, statement)

    def exhaust(self, statement: str) -> None:
        """Run one statement of the user's and pass over its rows, in the memory of a few."""
        with self._translated():
            cursor: Any = self.raw.execute(statement)
            while cursor.description and cursor.fetchmany(1000):
                pass

    def scan(self, select: str, kinds: Sequence[tuple[str, Kind]]) -> Iterator[Batch]:
        return scan_duckdb(self.raw, select, kinds)

    def relation(self, name: TableName, beside: Relation | None = None) -> Relation | None:
        with self._translated():
            return find_duckdb(self.raw, name, beside)

    def find_target(self, target: PredictionTarget) -> NamedTable:
        with self._translated():
            return prediction_table.find_duckdb(self.raw, target)

    def key_type(self, select: str, key: str) -> str:
        with self._translated():
            return prediction_table.key_type_duckdb(self.raw, select, key)

    def create_target(self, table: NamedTable, select: str, key: str) -> None:
        with self._translated():
            try:
                self.raw.execute(prediction_table.create_statement(table, select, key))
            except duckdb.TransactionException as error:
                raise errors.WriteConflict("Another session has just made the table.") from error

    def append_predictions(
        self, table: NamedTable, model: str, batches: Iterable[pa.RecordBatch]
    ) -> None:
        insert = prediction_table.insert_duckdb(table, _BATCH)
        for batch in batches:
            with self._registered([batch]):
                self.select(insert, {"model": model})

    @contextmanager
    def _translated(self) -> Iterator[None]:
        self.raised = None  # of a statement that swallowed it
        try:
            yield
        except duckdb.Error as error:
            raise self.translate_error(error) from error
        except RuntimeError as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from error
            raise

    def merge(self) -> None:
        """Write the row groups of each table together, without what was deleted in them."""
        self.script(_MERGES)
        try:
            with self.transaction():
                self.script(_CHANGE)
            self.script("CHECKPOINT")
        finally:
            with suppress(errors.MmdbError):  # a file whose disk is full takes no more statements
                self.script(_APPENDS)

    def close(self) -> None:
        if self._file and _size(self._file) <= _MERGED_BYTES:
            # The checkpoint with which a file is closed merges, if no transaction is under way.
            for statement in ("ROLLBACK", _MERGES):
                with suppress(duckdb.Error):  # there is no transaction, or it is closed already
                    self.raw.execute(statement)
        shrinks = False
        if self._file and self.shrinks:
            self.shrinks = False
            with suppress(duckdb.Error):
                shrinks = shrink.is_worth_it(self.raw, self._file)
        self.raw.close()
        if shrinks:
            shrink.shrink(self._file)
        _open_files.discard(self._file)
        atexit.unregister(self.close)

    def cursor(self) -> DuckConnection:
        """Return a second session on the same file, for use inside a function call."""
        other: Any = object.__new__(DuckConnection)
        own = {"raw": self.raw.cursor(), "_depth": 0, "_file": ""}
        other.__dict__.update(self.__dict__ | own)
        if _shadows(self.path):
            other.raw.execute(f"USE {_ALIAS}")
        return other  # type: ignore[no-any-return]


#: The name under which a batch of rows is inserted.
_PATH = "Check that it is a DuckDB file, or a new one, which this user may read and write."
_BATCH = "mmdb_batch"

#: Bytes of a transaction from which they are written to the file at once, and not to its log.
_LOGGED_BYTES = 32 << 20
#: Bytes of the log after which it is written into the file, unless `log_up_to` says otherwise.
LOG_BYTES = 16 << 20

#: DuckDB names a database after its file; one named mmdb would hide the schema of that name.
_ALIAS = "mmdb_file"


#: A checkpoint may merge the row groups of a table, up to 122,880 rows: so with every 16 MB of log
#: it would write all states and tensors of a file anew. Without, it appends what is new.
_APPENDS, _MERGES = "SET max_vacuum_tasks = 0", "RESET max_vacuum_tasks"

#: A file in which nothing has changed is not checkpointed.
_CHANGE = "CREATE TABLE mmdb.merged (x integer); DROP TABLE mmdb.merged"

#: Bytes of a file up to which its tables are merged each time that it is closed. Else every session
#: that writes a few rows would leave almost a megabyte of blocks that are hardly filled.
_MERGED_BYTES = 256 << 20


@lru_cache(maxsize=1024)
def _parsed(sql: str) -> duckdb.Statement:
    """Return a statement of `sql/`, parsed: of a query of half a millisecond that is a fifth."""
    (statement,) = duckdb.extract_statements(sql)
    return statement


def _size(path: str) -> int:
    """Return the bytes of a file, 0 if it is gone."""
    return Path(path).stat().st_size if Path(path).exists() else 0


def _is_duckdb(path: Path) -> bool:
    """Return whether a file is DuckDB's, empty or not there: of others, DuckDB loads extensions."""
    if not path.exists():
        return True
    if not path.is_file():  # a pipe would never open
        return False
    with path.open("rb") as file:
        start = file.read(12)
    return not start or start[8:] == b"DUCK"


def _shadows(path: str) -> bool:
    return Path(path).stem.lower() == "mmdb"


def _open(path: str) -> duckdb.DuckDBPyConnection:
    """Open a file; what a process that was killed left in its log is in the file from then on.

    DuckDB 2.0 loses index entries of logged rows if a statement that does not touch their table
    is the first to write (https://github.com/duckdb/duckdb/pull/25771).
    """
    shadows = _shadows(path)
    connection = duckdb.connect() if shadows else duckdb.connect(path)
    try:
        if shadows:
            quoted = path.replace("'", "''")
            connection.execute(f"ATTACH '{quoted}' AS {_ALIAS}")
            connection.execute(f"USE {_ALIAS}")
        if path != ":memory:":
            connection.execute(_APPENDS)
            connection.execute("SET auto_checkpoint_skip_wal_threshold = 0")
            connection.execute("CHECKPOINT")
    except duckdb.Error:
        connection.close()
        raise
    return connection


def _text(error: Exception) -> str:
    return str(error).split("\n\nLINE ")[0].strip()
