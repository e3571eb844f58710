"""The session that a PL/Python function runs in, as a `Connection`."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from mmdb.db import citus, prediction_table
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
from mmdb.db.owners import on_own_tables
from mmdb.db.prediction_table import NamedTable, PredictionTarget
from mmdb.db.queries import Query, load
from mmdb.db.row_formats import column_batches
from mmdb.db.scan import (
    SET_FORMS,
    columns_plpy,
    prepare_plpy,
    refused_by_postgres,
    scan_cursor,
)
from mmdb.errors import NotASelect, from_sqlstate, stops_the_caller
from mmdb.memory import require

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that a streamed query holds at once: chunks of tensors are 256 KiB each.
_FETCHED_ROWS = 16
#: A parameter that is looked at before it is passed on, and what it takes on its way, in its sizes.
_LARGE, _COPIES = 2**24, 6


class _Undo(Exception):
    """Ends a subtransaction without keeping what it did."""


class PlpyConnection:
    """`plpy` with prepared plans kept for the session."""

    engine: Literal["postgres"] = "postgres"
    threads = 0
    in_transaction = True  # that of the statement which calls the function

    def __init__(self, plpy: Any) -> None:
        self._plpy = plpy
        self._plans: dict[Query, Any] = {}
        self._names: set[str] = set()

    def rows(self, query: Query, /, **parameters: object) -> list[Row]:
        return [dict(row) for row in self._execute(query, parameters)]

    def run(self, query: Query, /, **parameters: object) -> None:
        for row in self._execute(query, parameters):  # of a call of a function that returns nothing
            self._names.update(row)  # else Python's table of names takes its name anew each time

    def script(self, sql: str) -> None:
        """Run statements that a query of `sql/` has written."""
        self._plpy.execute(sql)

    def run_many(self, query: Query, rows: Iterable[Mapping[str, object]]) -> None:
        if query.many is not None and self._has_calls:
            for columns in column_batches(query.parameters, rows):
                self.run(query.many, **columns)
            return
        for row in rows:
            self._execute(query, row)

    def append(self, query: Query, rows: Iterable[Sequence[object]]) -> None:
        names = list(query.parameters)
        self.run_many(query, (dict(zip(names, row, strict=True)) for row in rows))

    def stream(
        self, query: Query, /, **parameters: object
    ) -> Generator[tuple[Any, ...], None, None]:
        cursor = self._plpy.cursor(self._plan(query), self._values(query, parameters))
        try:
            while rows := cursor.fetch(_FETCHED_ROWS):
                for row in rows:
                    yield tuple(row.values())
        except GeneratorExit:  # its portal is closed by PostgreSQL's thread alone
            cursor.close()
            raise

    def _execute(self, query: Query, parameters: Mapping[str, object]) -> Any:
        return self._plan(query).execute(self._values(query, parameters))

    def _plan(self, query: Query) -> Any:
        if query not in self._plans:
            types = list(query.parameters.values())
            text = query.numbered_call if self._has_calls else query.numbered
            self._plans[query] = self._plpy.prepare(text, types)
        return self._plans[query]

    @cached_property
    def _has_calls(self) -> bool:
        """Whether statements are functions, as they are but on a cluster: `mmdb.db.definers`."""
        found = self._plpy.execute(
            "SELECT pg_catalog.to_regnamespace('mmdb_call'::text) IS NOT NULL AS has"
        )
        return bool(found[0]["has"])

    def _values(self, query: Query, parameters: Mapping[str, object]) -> list[object]:
        values = [parameters[name] for name in query.parameters]
        for value in values:
            if isinstance(value, str | bytes) and len(value) > _LARGE:
                require(_COPIES * len(value), "A value of a query")
        return values

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._plpy.subtransaction():
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        # A read-only mode would end with the subtransaction of the statement that sets it, so
        # what the block did is undone, and a transaction that has begun to write is noticed.
        before, wrote = self._has_written(), False
        try:
            with self._plpy.subtransaction():
                self._plpy.execute(SET_FORMS)
                yield
                wrote = self._has_written() and not before
                raise _Undo
        except _Undo:
            pass
        if wrote:
            raise NotASelect("The query writes: it calls a function that changes something.")

    def _has_written(self) -> bool:
        return bool(self.rows(load("catalog").has_written)[0]["written"])

    @cached_property
    def is_spread(self) -> bool:
        """Says whether the tables lie on the nodes of a cluster, where each has its own locks."""
        return citus.is_spread(self)

    def try_lock(self, kind: Lock, key: int) -> bool:
        query = load("locks").lock_hop if kind == "hop" else load("locks").lock_run
        if kind == "hop" and self.is_spread:
            self.run(load("nodes").open_transactions)
            query = load("nodes").lock_hop
        return bool(self.rows(query, key=key % 2**31)[0]["locked"])

    def unlock(self, kind: Lock, key: int) -> None:
        self.run(load("locks").unlock_run, key=key % 2**31)

    def columns(self, select: str) -> list[tuple[str, ColumnType]]:
        with on_own_tables("SELECT", self._as_role):
            return columns_plpy(self._plpy, select)

    def prepare(self, statement: str) -> None:
        prepare_plpy(self._plpy, statement)

    def scan(self, select: str, kinds: Sequence[tuple[str, Kind]]) -> Iterator[Batch]:
        with on_own_tables("SELECT", self._as_role):
            yield from scan_cursor(self._plpy, select, kinds)

    def _as_role(self) -> str:
        return str(self._plpy.execute("SELECT current_user AS role")[0]["role"])

    def relation(self, name: TableName, beside: Relation | None = None) -> Relation | None:
        return find_postgres(self, name)

    def find_target(self, target: PredictionTarget) -> NamedTable:
        return prediction_table.find_postgres(self, target)

    def key_type(self, select: str, key: str) -> str:
        rows = self._plpy.execute(prediction_table.key_type_postgres(select, key))
        return str(rows[0]["type"])

    def create_target(self, table: NamedTable, select: str, key: str) -> None:
        with prediction_table.made_once():
            self._plpy.execute(prediction_table.create_statement(table, select, key))

    def fills_on_nodes(self, table: NamedTable, select: str, key: str) -> bool:
        """Return whether the nodes of a cluster alone would fill a table's key by a SELECT."""
        with self.snapshot():  # undone, for an EXPLAIN ends Citus's local execution
            plan = self._plpy.execute(prediction_table.explain_key(table, select, key))
        lines = [str(row["QUERY PLAN"]) for row in plan]
        own, subplan = "Custom Scan (Citus Adaptive)", "Distributed Subplan"
        return lines[0].startswith(own) and not any(subplan in line for line in lines)

    def predict_blocks(self, table: NamedTable, blocks: str, *given: object) -> int:
        """Fill a table with what the nodes predict of blocks of rows; return the rows.

        Args:
            given: see `insert_of_blocks`.
        """
        with on_own_tables("SELECT", self._as_role):
            try:
                plan = self._plpy.prepare(*prediction_table.insert_of_blocks(table, blocks))
                return int(plan.execute(list(given)).nrows())
            except Exception as error:
                if stops_the_caller(error):
                    raise
                code, _, hint, *_ = getattr(error, "spidata", None) or (0, "", "")
                state = "".join(chr((code >> 6 * place & 63) + 48) for place in range(5))
                text = str(error).removeprefix("plpy.Error: ")
                if known := from_sqlstate(state, text, hint or ""):
                    raise known from error  # of a node's, whose SQLSTATE PL/Python does not tell
                if state.startswith("23"):  # a constraint of the table's, not the query's fault
                    raise
                with refused_by_postgres():
                    raise

    def append_predictions(
        self, table: NamedTable, model: str, batches: Iterable[pa.RecordBatch]
    ) -> None:
        plan = self._plpy.prepare(
            *prediction_table.insert_postgres(table, lambda place: f"${place + 1}")
        )
        with on_own_tables("INSERT", self._as_role):
            for batch in batches:
                plan.execute([model, *prediction_table.sent(table, batch)])
