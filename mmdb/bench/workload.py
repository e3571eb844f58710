"""Synthetic workloads that every bench cleans up after itself, at a share of their full size."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mmdb.api import Database, connect
from mmdb.db.queries import load
from mmdb.errors import InvalidInput

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchShare:
    """A share of a bench; those of benches with options of their own have them as fields.

    Attributes:
        share: above 0; of rows, runs, models, rounds and seconds, those of options too. At 1 they
            are what the bars are for.
    """

    share: float = 1.0

    @property
    def is_full(self) -> bool:
        """Whether nothing is left out."""
        return self.share >= 1

    def of(self, full: int, least: int = 1) -> int:
        """Return the share of a number, at least `least` or all there is."""
        return max(min(least, full), round(self.share * full))

    def time(self, full: float, least: float = 0.0) -> float:
        """Return the share of some seconds, at least `least` or all there are."""
        return max(min(least, full), self.share * full)

    def first(self, values: Sequence[_T], least: int = 1) -> Sequence[_T]:
        """Return the first of the values: their share, at least `least` or all there are."""
        return values[: self.of(len(values), least)]


FULL = BenchShare()


@contextmanager
def bench_database(url: str | None) -> Iterator[Database]:
    """Yield the database at `url`, or a fresh DuckDB file that is deleted afterwards."""
    if url is not None:
        with connect(url) as db:
            yield db
        return
    with (
        tempfile.TemporaryDirectory(prefix="mmdb-bench-") as folder,
        connect(f"duckdb:///{Path(folder) / 'bench.duckdb'}") as db,
    ):
        yield db


def servers_of(databases: list[Database]) -> list[Database]:
    """Return the PostgreSQL databases, of a bench that starts processes of its own.

    Raises:
        InvalidInput: there are none.
    """
    found = [db for db in databases if db.connection.engine == "postgres"]
    if not found:
        raise InvalidInput(
            "The bench connects from several processes, and a DuckDB file belongs to one.",
            hint="Give it a PostgreSQL server: --database postgresql://...",
        )
    return found


@contextmanager
def bench_names(db: Database) -> Iterator[str]:
    """Yield a prefix for names, and delete every table, dataset and run that starts with it."""
    prefix = new_prefix()
    try:
        yield prefix
    finally:
        clean(db, prefix)


def new_prefix() -> str:
    """Return a prefix for names that nothing has."""
    return f"bench_{secrets.token_hex(4)}"


def clean(db: Database, prefix: str) -> None:
    """Delete every table, model, dataset and run whose name starts so."""
    with db.connection.transaction():
        for query in (*load("bench_store"), *load("bench")):  # models first: they name datasets
            if query.name.startswith("delete_"):
                mine = {"prefix": f"{prefix}%"} if query.parameters else {}
                db.connection.run(query, **mine)
    for row in db.connection.rows(load("bench").find_tables, prefix=f"{prefix}%"):
        db.sql(f'DROP TABLE "{row["table_name"]}"')


def make_points(db: Database, table: str, rows: int, columns: int, classes: int) -> None:
    """Create a table with `columns` real columns and an integer label y."""
    names = ", ".join(f"random()::real AS c{k}" for k in range(columns))
    series = (
        f"generate_series(1, {rows})" if db.connection.engine == "postgres" else f"range({rows})"
    )
    db.sql(
        f"CREATE TABLE {table} AS SELECT q.*, floor(q.c0 * {classes})::integer AS y "
        f"FROM (SELECT {names} FROM {series}) AS q"
    )
    if db.connection.engine == "postgres":
        db.sql(f"VACUUM ANALYZE {table}")
