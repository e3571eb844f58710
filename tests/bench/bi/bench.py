"""Experiment `bi`: what BI tools ask of the views, on a million hops, models and metrics of years.

An empty database is filled first (tests/bench/bi/fill.py) and stays so; a filled one is measured as
it is. On PostgreSQL the server's own time counts, planning included; on DuckDB, which answers in
this process, it is the time until the rows are in a temporary table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most, seconds_of
from mmdb.bench.workload import BenchShare
from tests.bench.bi.fill import Size, fill

ROUNDS = 3
PAGE_BAR_MS, WHOLE_BAR_MS, CATALOG_BAR_MS = 200.0, 1_500.0, 20.0
#: The page that a table is shown by, and what Metabase and Superset ask for before they draw.
PAGE, SCAN = 100, 10_000
#: Longer than this nobody waits; a view that takes it is not asked again.
PATIENCE_MS = 3_000.0

#: What a dashboard shows of it.
FILTERS = {
    "run": "SELECT r.name AS given FROM mmdb.run AS r ORDER BY r.run_id",
    "model": "SELECT m.name AS given FROM mmdb.model AS m ORDER BY m.model_id",
    "dataset": "SELECT d.name AS given FROM mmdb.dataset AS d ORDER BY d.dataset_id",
}


@dataclass(frozen=True, slots=True)
class View:
    """A view with its columns, and those of its key; none where its rows have none."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


def bench_bi(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Measure every view of every database."""
    for db in databases:
        fill_empty(db, share)
        yield from _measure(db, share.of(ROUNDS))


def fill_empty(db: Database, share: BenchShare) -> None:
    """Fill a database that has no runs."""
    if not db.sql("SELECT r.run_id FROM mmdb.run AS r LIMIT 1"):
        fill(db, Size().scaled(share))


def views(db: Database) -> list[View]:
    """Return the views of the schema by name."""
    columns: dict[str, list[str]] = {}
    for row in db.sql(
        "SELECT c.table_name AS relation, c.column_name AS name"
        " FROM information_schema.columns AS c"
        " INNER JOIN information_schema.tables AS t"
        " ON c.table_schema = t.table_schema AND c.table_name = t.table_name"
        " WHERE c.table_schema = 'mmdb' AND t.table_type = 'VIEW'"
        " ORDER BY c.table_name, c.ordinal_position"
    ):
        columns.setdefault(row["relation"], []).append(row["name"])
    keys: dict[str, list[str]] = {}
    for row in db.sql(
        "SELECT k.view_name, k.column_name FROM mmdb.view_key AS k WHERE k.kind = 'primary'"
        " ORDER BY k.view_name, k.ordinal"
    ):
        keys.setdefault(row["view_name"], []).append(row["column_name"])
    return [View(name, tuple(of_it), tuple(keys.get(name, ()))) for name, of_it in columns.items()]


def questions(view: View, given: dict[str, str]) -> Iterator[tuple[str, str, float]]:
    """Yield what is asked of a view: in words, as SQL, and the milliseconds it may take.

    Args:
        given: a value in the middle of each of FILTERS.
    """
    everything = f"SELECT * FROM mmdb.{view.name}"
    for column, value in given.items():
        if column in view.columns:
            yield f"of a {column}", f"{everything} WHERE {column} = '{value}'", PAGE_BAR_MS
            break
    first = CATALOG_BAR_MS if view.name == "model_overview" else PAGE_BAR_MS
    order = f" ORDER BY {', '.join(view.key)}" if view.key else ""
    yield f"first {PAGE}", f"{everything}{order} LIMIT {PAGE}", first
    yield f"first {SCAN:,} in any order", f"{everything} LIMIT {SCAN}", PAGE_BAR_MS
    yield "all rows", everything, WHOLE_BAR_MS


def _measure(db: Database, rounds: int) -> Iterator[Figure]:
    given = {column: _middle(db, question) for column, question in FILTERS.items()}
    for view in views(db):
        for what, statement, bar in questions(view, given):
            runs: list[float] = []
            while len(runs) < rounds and not (runs and runs[-1] > PATIENCE_MS):
                runs.append(_milliseconds(db, statement))
            yield at_most(f"{db.connection.engine}: {view.name}, {what}", runs, "ms", bar)


def _middle(db: Database, question: str) -> str:
    rows = db.sql(question)
    return str(rows[len(rows) // 2]["given"])


def _milliseconds(db: Database, statement: str) -> float:
    if db.connection.engine == "postgres":
        (row,) = db.sql(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}")
        (found,) = row.values()
        (explained,) = json.loads(found) if isinstance(found, str) else found
        return float(explained["Planning Time"] + explained["Execution Time"])
    create = f"CREATE OR REPLACE TEMPORARY TABLE bench_rows AS {statement}"
    return 1e3 * seconds_of(lambda: db.sql(create))
