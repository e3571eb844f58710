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
from mmdb.db.queries import Query, load
from mmdb.errors import InvalidInput
from mmdb.store.garbage import collect_unused

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

#: Tables with rows of a bench's names, in the order in which these can go, and the names' column.
_NAMED = {"model": "name", "factory": "name", "run": "name", "dataset": "name", "worker": "process"}
#: The key by which rows of other tables belong to a table's rows, and those tables.
_PARTS = {
    "model": (
        "model_id",
        "model_change model_member recipe_tensor recipe model_tag model_metric model_note probe"
        " zoo_event model_origin drift_check evaluation prediction transfer.parent_id",
    ),
    "evaluation": ("evaluation_id", "evaluation_metric evaluation_source"),
    "prediction": ("prediction_id", "prediction_source"),
    "transfer": ("transfer_id", "warm_start transfer_tensor"),
    "run": (
        "run_id",
        "retraining run_total candidate_total epoch_total hour_total candidate decision"
        " run_outcome run_request run_event run_strategy run_feature plan",
    ),
    "candidate": (
        "candidate_id",
        "transfer warm_start checkpoint_chunk checkpoint hop candidate_event merge"
        " candidate_request assignment step_time step_prediction candidate_feature",
    ),
    "plan": ("plan_id", "estimate"),
    "dataset": (
        "dataset_id",
        "forgetting feature partition transform dataset_column dataset_source",
    ),
    "forgetting": ("forgetting_id", "forgetting_step"),
    "feature": ("feature_id", "feature_block feature_part"),
    "partition": ("part_id", "shared_block block"),
    "worker": ("worker_id", "worker_beat"),
}


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
        for query in deletions():
            db.connection.run(query, prefix=f"{prefix}%")
        db.connection.run(load("bench").delete_definitions)
    collect_unused(db.connection, "0 seconds")
    for row in db.connection.rows(load("bench").find_tables, prefix=f"{prefix}%"):
        db.sql(f'DROP TABLE "{row["table_name"]}"')


def deletions() -> Iterator[Query]:
    """Yield what deletes the rows of a bench: first those that refer to others."""
    for table, column in _NAMED.items():
        yield from _deletions(table, f"{column} LIKE %(prefix)s::text")


def _deletions(table: str, which: str) -> Iterator[Query]:
    key, parts = _PARTS.get(table, ("", ""))
    for part in parts.split():
        name, _, column = part.partition(".")
        theirs = f"{column or key} IN (SELECT {key} FROM mmdb.{table} WHERE {which})"
        yield from _deletions(name, theirs)
    yield Query(table, "Delete rows of a bench.", f"DELETE FROM mmdb.{table} WHERE {which}")


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
