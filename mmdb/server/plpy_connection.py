"""The session that a PL/Python function runs in, as a `Connection`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from mmdb.db.connection import ColumnType, Kind, Lock, Row
from mmdb.db.queries import Query, load
from mmdb.db.scan import columns_plpy, scan_cursor


class PlpyConnection:
    """`plpy` with prepared plans kept for the session."""

    engine: Literal["postgres"] = "postgres"

    def __init__(self, plpy: Any) -> None:
        self._plpy = plpy
        self._plans: dict[Query, Any] = {}

    def rows(self, query: Query, /, **parameters: object) -> list[Row]:
        return [dict(row) for row in self._execute(query, parameters)]

    def run(self, query: Query, /, **parameters: object) -> None:
        self._execute(query, parameters)

    def run_many(self, query: Query, rows: Iterable[Mapping[str, object]]) -> None:
        for row in rows:
            self._execute(query, row)

    def _execute(self, query: Query, parameters: Mapping[str, object]) -> Any:
        if query not in self._plans:
            types = list(query.parameters.values())
            self._plans[query] = self._plpy.prepare(query.numbered, types)
        return self._plans[query].execute([parameters[name] for name in query.parameters])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._plpy.subtransaction():
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        # PostgreSQL puts transaction_read_only back when the subtransaction ends.
        with self._plpy.subtransaction():
            self._plpy.execute("SET LOCAL transaction_read_only = on")
            yield

    def try_lock(self, kind: Lock, key: int) -> bool:
        query = load("locks").lock_hop if kind == "hop" else load("locks").lock_run
        return bool(self.rows(query, key=key % 2**31)[0]["locked"])

    def unlock(self, kind: Lock, key: int) -> None:
        self.run(load("locks").unlock_run, key=key % 2**31)

    def columns(self, select: str) -> list[tuple[str, ColumnType]]:
        return columns_plpy(self._plpy, select)

    def scan(
        self, select: str, kinds: Sequence[tuple[str, Kind]]
    ) -> Iterator[dict[str, np.ndarray | list[str]]]:
        return scan_cursor(self._plpy, select, kinds)

    def table_columns(self, table: str) -> list[tuple[str, str]] | None:
        rows = self.rows(load("catalog").table_columns, table=table)
        return [(r["name"], r["type"]) for r in rows] or None
