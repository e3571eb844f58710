"""Raw tables of mixed columns, and of pictures, into datasets: rows a second and peak memory.

`python -m tests.bench.tables.ingest URL [ROWS]` measures one database by hand.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from PIL import Image

from mmdb.api import Database, connect

TABLE, PICTURES = "mixed_rows", "picture_rows"
#: Different texts of each column of texts.
DISTINCT = (2, 5, 8, 40, 300, 1_500, 4_000, 9_000)
#: Types of the columns of numbers, in turn.
TYPES = ("double precision", "integer", "double precision", "bigint", "real", "numeric(12, 2)")
MOMENTS, NUMBERS = 4, 20
#: Different pictures; each is in the table many times.
DRAWN, SIDE = 500, 64


def make_mixed_table(db: Database, rows: int) -> None:
    """Create table mixed_rows: id, 8 columns of texts, 4 of timestamps, 20 of numbers, label y.

    Each but id and y is NULL in some rows. Both engines get the same rows.
    """
    columns = [
        *(_or_null(f"'value ' || {_drawn(k, n)}", k, f"t{k}") for k, n in enumerate(DISTINCT)),
        *(_or_null(_moment(k), 10 + k, f"m{k}") for k in range(MOMENTS)),
        *(_or_null(_number(k), 20 + k, f"n{k}") for k in range(NUMBERS)),
    ]
    db.sql(f"DROP TABLE IF EXISTS {TABLE}")
    db.sql(
        f"CREATE TABLE {TABLE} AS SELECT i AS id, {', '.join(columns)}, "
        f"CASE WHEN {_drawn(50, 100)} < 40 THEN 'yes' ELSE 'no' END AS y "
        f"FROM (SELECT i::bigint AS i FROM generate_series(1, {rows}) AS g (i)) AS q"
    )
    if db.connection.engine == "postgres":
        db.sql(f"VACUUM ANALYZE {TABLE}")


def _drawn(seed: int, below: int) -> str:
    """Return a whole number below another one that looks random, of row i."""
    mixed = f"(i * {2654435761 + 2 * seed} + {seed * 7919}) % 2147483647"
    return f"(({mixed} * 48271) % 2147483647 % {below})"


def _or_null(value: str, seed: int, name: str) -> str:
    return f"CASE WHEN (i + {seed}) % {11 + seed} <> 0 THEN {value} END AS {name}"


def _moment(k: int) -> str:
    return f"timestamp '2013-01-01' + {_drawn(10 + k, 100_000_000)} * interval '1 second'"


def _number(k: int) -> str:
    kind = TYPES[k % len(TYPES)]
    value = _drawn(20 + k, 1_000_000)
    is_whole = kind in ("integer", "bigint")
    return f"({value})::{kind}" if is_whole else f"({value} * 0.01)::{kind}"


def ingest_rows_per_s(url: str, rows: int) -> tuple[float, int]:
    """Return rows a second of create_dataset over the mixed table, and the peak memory in bytes.

    On PostgreSQL, of the server's process, all that it touched; on DuckDB, by how much the process
    of the call grew.
    """
    command = [sys.executable, "-m", "tests.bench.tables.ingest", url, "--once"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak = json.loads(done.stdout)
    return rows / seconds, peak


def _once(db: Database) -> tuple[float, int]:
    """Return seconds and peak memory of one call in this process, or its server's."""
    if db.connection.engine == "postgres":
        pid = db.sql("SELECT pg_backend_pid() AS pid")[0]["pid"]
        return _timed(db, f"SELECT * FROM {TABLE}"), _memory(pid, "VmHWM")
    before = _memory("self", "VmRSS")
    seconds = _timed(db, f"SELECT * FROM {TABLE}")
    return seconds, _memory("self", "VmHWM") - before


def _timed(db: Database, query: str) -> float:
    """Return the seconds of a create_dataset; on PostgreSQL it is the SQL function."""
    started = perf_counter()
    if db.connection.engine == "postgres":
        db.sql("SELECT * FROM mmdb.create_dataset('measured', %(query)s)", {"query": query})
    else:
        db.create_dataset("measured", query)
    seconds = perf_counter() - started
    db.drop_dataset("measured")
    return seconds


def _memory(pid: int | str, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields[name].split()[0]) * 1024


def pictures_per_s(url: str, pictures: int) -> float:
    """Return JPEGs of 64 x 64 a second of create_dataset, in a session that has made one before."""
    with connect(url) as db:
        _make_pictures(db, pictures)
        _timed(db, f"SELECT picture, y FROM {PICTURES} WHERE n < 200")
        seconds = _timed(db, f"SELECT picture, y FROM {PICTURES}")
        db.sql(f"DROP TABLE {PICTURES}")
    return pictures / seconds


def _make_pictures(db: Database, pictures: int) -> None:
    blob = "bytea" if db.connection.engine == "postgres" else "blob"
    db.sql(f"DROP TABLE IF EXISTS {PICTURES}")
    db.sql(f"CREATE TABLE {PICTURES} (n integer, picture {blob}, y integer)")
    mark = "%({})s" if db.connection.engine == "postgres" else "${}"
    insert = f"INSERT INTO {PICTURES} VALUES ({', '.join(map(mark.format, 'npy'))})"
    for n, file in enumerate(_files(min(DRAWN, pictures))):
        db.sql(insert, {"n": n, "p": file, "y": n % 10})
    times = -(-pictures // DRAWN)
    db.sql(
        f"INSERT INTO {PICTURES} SELECT p.n + {DRAWN} * k, p.picture, p.y "
        f"FROM {PICTURES} AS p, generate_series(1, {times - 1}) AS g (k) "
        f"WHERE p.n + {DRAWN} * k < {pictures}"
    )


def _files(count: int) -> Iterator[bytes]:
    random = np.random.default_rng(0)
    for _ in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8))
        file = io.BytesIO()
        coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
        yield file.getvalue()


def main() -> None:
    """Measure a database, or one call alone in this process."""
    url, option = sys.argv[1], (sys.argv[2:] or ["1000000"])[0]
    if option == "--once":
        with connect(url) as db:
            print(json.dumps(_once(db)))
        return
    rows = int(option)
    with connect(url) as db:
        make_mixed_table(db, rows)
    for _ in range(3):
        rate, peak = ingest_rows_per_s(url, rows)
        print(f"{rate:,.0f} rows/s, {peak / 1e6:,.0f} MB")
    print(f"{pictures_per_s(url, rows // 100):,.0f} pictures/s")


if __name__ == "__main__":
    main()
