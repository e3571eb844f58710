"""Part `inserts` of experiment `living`: vectors of rows that two sessions insert at a pace."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter, sleep

import psycopg
import torch

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_least, at_most
from mmdb.bench.workload import BenchShare
from mmdb.db.postgres import PostgresConnection
from mmdb.graph.factories import mlp

_SESSIONS, _ROWS_A_SECOND, _NUMBERS = 2, 500, 16
_ARRAY = ", ".join(f"i % {place + 5}" for place in range(_NUMBERS))


def bench_inserts(db: Database, share: BenchShare, prefix: str, _: str) -> Iterator[Figure]:
    """Insert arrays of 16 numbers into a table with `embed_on_insert`; on PostgreSQL alone."""
    if not isinstance(db.connection, PostgresConnection):
        return
    table = f"{prefix}_inbox"
    rows = f"SELECT ARRAY[{_ARRAY}]::real[] AS x, i % 2 AS y FROM generate_series(1, 200) AS g (i)"
    db.sql(f"CREATE TABLE {prefix}_rows AS {rows}")
    db.create_dataset(table, f"SELECT x, y FROM {prefix}_rows", label="y")
    torch.manual_seed(0)
    network = "mlp(hidden=[64, 32])"
    db.save(table, mlp((_NUMBERS,), 2, hidden=[64, 32]), architecture=network, dataset=table)
    db.sql(f"CREATE TABLE {table} (id bigint PRIMARY KEY, x real[], embedding real[])")
    db.embed_on_insert(table, table)
    first = 1
    for size in (1, 10):
        seconds = share.time(20, 1)
        count = int(seconds * _ROWS_A_SECOND / _SESSIONS / size)
        with ThreadPoolExecutor(_SESSIONS) as pool:
            begins = [first + k * count * size for k in range(_SESSIONS)]
            given = [(db.connection.url, table, begin, count, size) for begin in begins]
            done = list(pool.map(_insert, *zip(*given, strict=True)))
        late = [seconds for found, _ in done for seconds in found]
        first += _SESSIONS * count * size
        what = f"{size} row{'s' * (size > 1)} a statement"
        rate = sum(count * size / taken for _, taken in done)
        yield at_least(f"{what}: rows a second", [rate], "/s", 0.98 * _ROWS_A_SECOND)
        yield Figure(f"{what}: from due to its vector, median", median(late) * 1e3, "ms")
        yield at_most(f"{what}: from due to its vector, longest", [max(late)], "s", 5)
    (left,) = db.sql(f"SELECT count(*) AS n FROM {table} WHERE embedding IS NULL")
    yield at_most("rows without a vector", [left["n"]], "", 0)
    db.stop_scoring(table, "embedding")


def _insert(url: str, table: str, first: int, count: int, size: int) -> tuple[list[float], float]:
    """Insert at the pace; return each statement's seconds from when it was due, and those of all.

    The first statement loads torch and is made before.
    """
    array = _ARRAY.replace("%", "%%")
    statement = (
        f"INSERT INTO {table} SELECT i, ARRAY[{array}]"
        " FROM generate_series(%s::bigint, %s::bigint) AS g (i)"
    )
    found = []
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(statement, (-first, -first))
        pause, started = size * _SESSIONS / _ROWS_A_SECOND, perf_counter()
        for place in range(count):
            due = started + place * pause
            sleep(max(0.0, due - perf_counter()))
            begin = first + place * size
            session.execute(statement, (begin, begin + size - 1))
            found.append(perf_counter() - due)
        return found, perf_counter() - started
