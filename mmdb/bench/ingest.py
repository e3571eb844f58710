"""`mmdb bench ingest`: rows per second into a dataset, from Python and inside the server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from mmdb.api import Database, connect
from mmdb.bench.figures import Figure, at_least, at_most
from mmdb.bench.workload import BenchShare, bench_names, make_points

ROWS, COLUMNS, ROUNDS = 1_000_000, 32, 3
PYTHON_BAR, SERVER_BAR, MEMORY_BAR_MB = 300_000, 250_000, 500.0


def bench_ingest(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Measure every database in one run."""
    for db in databases:
        yield from _measure(db, share.of(ROWS), share.of(ROUNDS))


def _measure(db: Database, rows: int, rounds: int) -> Iterator[Figure]:
    engine = db.connection.engine
    with bench_names(db) as prefix:
        make_points(db, prefix, rows, COLUMNS, 10)
        if engine == "postgres":
            yield from _from_python(db.connection.url, prefix, rows, rounds)
            yield from _inside_server(db.connection.url, prefix, rows, rounds)
        else:
            rates = []
            for k in range(rounds):
                started = perf_counter()
                db.create_dataset(f"{prefix}-{k}", f"SELECT * FROM {prefix}")
                rates.append(rows / (perf_counter() - started))
            yield at_least("duckdb: from Python", rates, "rows/s", PYTHON_BAR)


def _from_python(url: str, prefix: str, rows: int, rounds: int) -> Iterator[Figure]:
    """Each round in a process of its own, whose peak memory is the call's."""
    rates, peaks = [], []
    for k in range(rounds):
        command = [sys.executable, "-m", "mmdb.bench.ingest", url, prefix, f"{prefix}-python-{k}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)
        rates.append(rows / found["seconds"])
        peaks.append(max(found["client_mb"], found["server_mb"]))
    yield at_least("postgres: from Python", rates, "rows/s", PYTHON_BAR)
    yield at_most("postgres: peak memory, from Python", [max(peaks)], "MB", MEMORY_BAR_MB)


def _inside_server(url: str, prefix: str, rows: int, rounds: int) -> Iterator[Figure]:
    rates, peaks = [], []
    for k in range(rounds):
        with connect(url) as db:
            pid = db.sql("SELECT pg_backend_pid() AS pid")[0]["pid"]
            started = perf_counter()
            db.sql(
                "SELECT * FROM mmdb.create_dataset(%(name)s, %(query)s)",
                {"name": f"{prefix}-server-{k}", "query": f"SELECT * FROM {prefix}"},
            )
            rates.append(rows / (perf_counter() - started))
            peaks.append(peak_mb(pid))
    yield at_least("postgres: SELECT inside the server", rates, "rows/s", SERVER_BAR)
    yield at_most("postgres: peak memory, inside", [max(peaks)], "MB", MEMORY_BAR_MB)


def peak_mb(pid: int | str) -> float:
    """Return a process's own peak memory in MB (10^6); the server's shared buffers left out."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    kilobytes = {name: int(fields[name].split()[0]) for name in ("VmHWM", "RssShmem")}
    return (kilobytes["VmHWM"] - kilobytes["RssShmem"]) * 1024 / 1e6


def main() -> None:
    """Create one dataset and print its seconds and the peak memory of both processes."""
    url, table, name = sys.argv[1:]
    with connect(url) as db:
        pid = db.sql("SELECT pg_backend_pid() AS pid")[0]["pid"]
        started = perf_counter()
        db.create_dataset(name, f"SELECT * FROM {table}")
        seconds = perf_counter() - started
        found = {"seconds": seconds, "client_mb": peak_mb("self"), "server_mb": peak_mb(pid)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
