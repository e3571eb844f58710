"""A psycopg session as a `Connection`."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from mmdb import errors
from mmdb.db import prediction_table
from mmdb.db.citus import LOST, tells_of_lost_node
from mmdb.db.connection import (
    Batch,
    ColumnType,
    Kind,
    Lock,
    Relation,
    Row,
    TableName,
    find_postgres,
)
from mmdb.db.login import login_error, parameters_of
from mmdb.db.owners import LOCK_TIMEOUT, on_own_tables, refusal
from mmdb.db.prediction_table import NamedTable, PredictionTarget
from mmdb.db.queries import Query, load
from mmdb.db.row_formats import column_batches
from mmdb.db.scan import SET_FORMS, columns_postgres, refused_by_postgres, scan_copy

if TYPE_CHECKING:
    import pyarrow as pa

#: Seconds for which a lost session is tried to get back, and the pauses in between.
RECONNECT_S = 120.0
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 2.0

#: PL/Python puts the class of its exception before the message.
_PREFIX = re.compile(r"^(spiexceptions|plpy)\.\w+: ")

#: Serialization failure, deadlock, and keys that another session has just taken or freed. A row
#: that others still refer to is none, though PostgreSQL has the same SQLSTATE for it.
_CONFLICTS = {"40001", "40P01", "23503", "23505"}
#: Seconds after which a peer that has vanished without a word is given up; a URL may say others.
_PATIENCE: dict[str, Any] = {
    "connect_timeout": 10,  # of each host
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # milliseconds
}
#: Nothing waits for ever for a lock that somebody holds by hand, unless the session says otherwise.
#: On Citus: a transaction may write to a table that is referred to after it has used several shards
#: at once, for no distributed table refers to it. See sql/engines/citus_functions.sql. And one
#: connection to a node does: another one costs more than it saves where tables are small.
#: Settings of a session are not made through a pooler: the next client would have them.
_BEGIN = f"""
SELECT
    CASE
        WHEN c.keeps AND pg_catalog.current_setting('lock_timeout') OPERATOR(pg_catalog.=) '0'
            THEN pg_catalog.set_config('lock_timeout', '{LOCK_TIMEOUT}', false)
    END,
    CASE
        WHEN c.there
            THEN pg_catalog.set_config('citus.enforce_foreign_key_restrictions', 'off', false)
    END,
    CASE
        WHEN c.there
            THEN pg_catalog.set_config('citus.max_adaptive_executor_pool_size', '1', false)
    END,
    c.there,
    c.keeps
FROM (
    SELECT
        pg_catalog.current_setting(
            'citus.enforce_foreign_key_restrictions', true
        ) IS NOT NULL AS there,
        %(own)s::boolean
        OR pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %(pid)s::integer AS keeps
) AS c
"""
#: A row where mmdb's statements are functions, as they are but on a cluster: `mmdb.db.definers`.
_HAS_CALLS = "SELECT 1 WHERE pg_catalog.to_regnamespace('mmdb_call'::text) IS NOT NULL"


def translate_error(error: psycopg.Error, *, on_citus: bool = False) -> errors.MmdbError:
    """Return the mmdb error that a PostgreSQL error stands for.

    Args:
        on_citus: the server has Citus: a session that goes on may tell of a lost node.
    """
    text = _PREFIX.sub("", error.diag.message_primary or str(error).strip())
    hint = error.diag.message_hint or ""
    state = error.sqlstate or ""
    if state.startswith("MM"):
        known = errors.from_sqlstate(state, text, hint)
        if isinstance(known, errors.TrainingFailed):
            known.trace = error.diag.message_detail or ""
        if known:
            return known
    lives_on = error.diag.severity_nonlocalized == "ERROR"  # its own end would be FATAL
    if on_citus and lives_on and tells_of_lost_node(state, text):
        return errors.NodeLost(text)
    if state == "57P02" or "crash of another server process" in text:
        return errors.ServerCrashed(text)
    if state in LOST or (not state and isinstance(error, psycopg.OperationalError)):
        return errors.ConnectionLost(text)
    if refused := refusal(state, text):
        return refused
    if state == "53200":
        return errors.OutOfMemory(f"The server ran out of memory: {text}.")
    if state in {"22021", "22P05"} or (not state and isinstance(error, psycopg.DataError)):
        return errors.InputError(text, hint="PostgreSQL's text cannot hold the character NUL.")
    if state == "57014":
        return errors.Cancelled(text)
    if state == "42883" and "mmdb." in text:
        return errors.NotInstalled(
            text,
            hint="Check its name and arguments; it may be older: run `mmdb install URL`. A server "
            "without PL/Python has no functions: call them from Python.",
        )
    if state in {"3F000", "42P01"} and "mmdb" in text:
        return errors.NotInstalled(
            text, hint="Check its name; it may be older, or not there: run `mmdb install URL`."
        )
    if state == "23503" and text.startswith("update or delete"):
        hint = f"Rows of mmdb.{error.diag.table_name} refer to it: they have to go first."
        return errors.DatabaseFailed(text, hint=hint)
    if state == "23503":
        return errors.WriteConflict(text, hint="A row that it needs has just been deleted.")
    if state in _CONFLICTS:
        return errors.WriteConflict(text)
    if state == "22P02" and "type json" in text:
        return errors.InvalidOption(
            f"{text}: {error.diag.message_detail}", hint='Such as {"name": "value"}.'
        )
    return errors.DatabaseFailed(text, hint=hint)


def _in_recovery(connection: psycopg.Connection[dict[str, Any]]) -> bool:
    """Return whether a session has begun on a standby; a server says it by itself."""
    return connection.info.parameter_status("in_hot_standby") == "on"


def _with_json(row: Sequence[object], columns: Sequence[int]) -> list[object]:
    """Return a row whose JSON texts are sent as they are."""
    values = list(row)
    for index in columns:
        if values[index] is not None:
            values[index] = Jsonb(values[index], dumps=str)
    return values


#: Makes settings of a session; `unnest` of two arrays is PostgreSQL's own, whoever shadows it.
_SET = (
    "SELECT pg_catalog.set_config(s.name, s.value, false) "
    "FROM unnest(%s::pg_catalog.text[], %s::pg_catalog.text[]) AS s (name, value)"
)


class PostgresConnection:
    """One PostgreSQL session in autocommit mode; `transaction()` groups statements."""

    engine: Literal["postgres"] = "postgres"
    threads = 2

    def __init__(
        self,
        url: str,
        *,
        application_name: str = "mmdb",
        settings: Mapping[str, str] | None = None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self.url, self._on_wait = url, on_wait
        self._settings = dict(settings or {})
        self._application_name = application_name
        self.on_citus = False  # whether the server has Citus
        self.is_pooled = False  # whether each transaction may be another session's: of a pooler
        self._as_they_are = False  # whether statements are sent as they are, not as functions
        self._role = ""  # that the last snapshot was read as; a statement that failed cannot ask
        self.raw = self._connect()
        self._is_standby = _in_recovery(self.raw)

    def _connect(self) -> psycopg.Connection[dict[str, Any]]:
        try:
            connection = psycopg.connect(
                make_conninfo("", **(_PATIENCE | parameters_of(self.url))),
                autocommit=True,
                row_factory=dict_row,
                application_name=self._application_name,
            )
            # A pooler makes up the process that it names to a client.
            pid = connection.info.backend_pid
            own = os.environ.get("MMDB_POOLER") == "session"
            (begun,) = connection.execute(_BEGIN, {"pid": pid, "own": own}).fetchall()
            self.on_citus, self.is_pooled = begun["there"], not begun["keeps"]
            if self.is_pooled:
                connection.prepare_threshold = None
            self._choose_form(connection)
            if self._settings:
                connection.execute(_SET, (list(self._settings), list(self._settings.values())))
            return connection
        except psycopg.Error as error:
            raise login_error(error) from error

    def _choose_form(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        """See whether statements are functions here: not before an install, nor on a cluster."""
        self._as_they_are = self.on_citus and not connection.execute(_HAS_CALLS).fetchone()

    def after_install(self) -> None:
        """Send statements as the install that has just ended left them."""
        self._choose_form(self.raw)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise translate_error(error, on_citus=self.on_citus) from error

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction block is open."""
        return self.raw.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE

    def alive(self) -> bool:
        """Return whether the session still answers."""
        try:
            self.raw.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def reconnect(self) -> None:
        """Open the session anew, with backoff: after a crash the server needs time to recover.

        A session that could write waits for a standby to be promoted, and calls `on_wait` at times.

        Raises:
            WrongUrl, ConnectionLost: the server did not come back within RECONNECT_S.
            What `on_wait` raises.
        """
        deadline, pause = time.monotonic() + RECONNECT_S, FIRST_PAUSE_S
        while True:
            self.raw.close()
            try:
                self.raw = self._connect()
                if _in_recovery(self.raw) and not self._is_standby:
                    raise errors.ConnectionLost("The server is a standby that is not promoted.")
                return
            except (errors.WrongUrl, errors.ConnectionLost):
                if time.monotonic() > deadline:
                    raise
                self._on_wait()
                time.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE_S)

    def rows(self, query: Query, /, **parameters: object) -> list[Row]:
        if query.needs_session and self.is_pooled:
            raise errors.SessionNeeded
        return self.select(self._statement(query), parameters)

    def _statement(self, query: Query) -> str:
        return query.sql if self._as_they_are else query.call

    def select(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        """Run SQL text (of the user, or of `sql/`) and return its rows."""
        with self._translated():
            cursor = self.raw.execute(sql, parameters or None, binary=True)
            return list(cursor.fetchall()) if cursor.description else []

    def script(self, sql: str) -> None:
        """Run several statements of `sql/`, which take no parameters."""
        with self._translated():
            self.raw.execute(sql)

    def run(self, query: Query, /, **parameters: object) -> None:
        self.rows(query, **parameters)

    def run_many(self, query: Query, rows: Iterable[Mapping[str, object]]) -> None:
        if query.many is not None and not self._as_they_are:
            for columns in column_batches(query.parameters, rows):
                self.run(query.many, **columns)
            return
        with self._translated(), self.raw.cursor() as cursor:
            cursor.executemany(self._statement(query), rows)

    def append(self, query: Query, rows: Iterable[Sequence[object]]) -> None:
        if query.definer and not self._as_they_are:  # COPY takes a right on the table
            names = list(query.parameters)
            self.run_many(query, (dict(zip(names, row, strict=True)) for row in rows))
            return
        types = list(query.parameters.values())
        json = [index for index, name in enumerate(types) if name == "jsonb"]
        with self._translated(), self.raw.cursor() as cursor, cursor.copy(query.copy) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(_with_json(row, json) if json else row)

    def stream(
        self, query: Query, /, **parameters: object
    ) -> Generator[tuple[Any, ...], None, None]:
        with self._translated(), self.raw.cursor(row_factory=tuple_row) as cursor:
            yield from cursor.stream(self._statement(query), parameters, binary=True)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._translated(), self.raw.transaction():
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        if self.in_transaction:
            raise errors.InTransaction(
                "The rows are read in a transaction of their own.", hint="COMMIT or ROLLBACK first."
            )
        with self._translated(), self.raw.transaction():
            self.raw.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._role = self.raw.execute(SET_FORMS).fetchall()[0]["role"]
            yield

    def _as_role(self) -> str:
        return self._role or self.raw.info.user

    def try_lock(self, kind: Lock, key: int) -> bool:
        query = load("locks").lock_hop if kind == "hop" else load("locks").lock_run
        return bool(self.rows(query, key=key % 2**31)[0]["locked"])

    def unlock(self, kind: Lock, key: int) -> None:
        self.run(load("locks").unlock_run, key=key % 2**31)

    def columns(self, select: str) -> list[tuple[str, ColumnType]]:
        with on_own_tables("SELECT", self._as_role):
            return columns_postgres(self.raw, select)

    def prepare(self, statement: str) -> None:
        with self._translated(), refused_by_postgres():
            found = self.raw.pgconn.prepare(b"", statement.encode())
            if found.status != psycopg.pq.ExecStatus.COMMAND_OK:
                raise psycopg.errors.error_from_result(found)

    def exhaust(self, statement: str) -> None:
        """Run one statement of the user's and pass over its rows, in the memory of a few."""
        self.prepare(statement)
        has_rows = self.raw.pgconn.describe_prepared(b"").nfields > 0
        with self._translated(), self.raw.cursor() as cursor:
            if not has_rows:
                cursor.execute(statement.encode(), binary=True)
                return
            for _ in cursor.stream(statement.encode(), binary=True):
                pass

    def scan(self, select: str, kinds: Sequence[tuple[str, Kind]]) -> Iterator[Batch]:
        with on_own_tables("SELECT", self._as_role):
            yield from scan_copy(self.raw, select, kinds)

    def relation(self, name: TableName, beside: Relation | None = None) -> Relation | None:
        return find_postgres(self, name)

    def find_target(self, target: PredictionTarget) -> NamedTable:
        return prediction_table.find_postgres(self, target)

    def key_type(self, select: str, key: str) -> str:
        return str(self.select(prediction_table.key_type_postgres(select, key))[0]["type"])

    def create_target(self, table: NamedTable, select: str, key: str) -> None:
        with self._translated(), prediction_table.made_once():
            self.raw.execute(prediction_table.create_statement(table, select, key))

    def append_predictions(
        self, table: NamedTable, model: str, batches: Iterable[pa.RecordBatch]
    ) -> None:
        insert, _ = prediction_table.insert_postgres(table, lambda _: "%b", percent="%%")
        own = on_own_tables("INSERT", self._as_role)
        with self._translated(), own, self.raw.cursor() as cursor:
            for batch in batches:
                cursor.execute(insert, (model, *prediction_table.sent(table, batch)))

    def notifications(self, timeout_s: float) -> list[str]:
        """Wait for the next notification that the session listens to; return what came."""
        with self._translated():
            return [n.payload for n in self.raw.notifies(timeout=timeout_s, stop_after=1)]

    def cancel(self) -> None:
        """Cancel the statement that another thread runs over this connection."""
        with suppress(psycopg.Error):
            self.raw.cancel_safe(timeout=2)

    def sever(self) -> None:
        """End the session although another thread waits for it; that one gets `ConnectionLost`."""
        with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self.raw.fileno())) as s:
            s.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.raw.close()
