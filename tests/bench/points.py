"""Arrays into tables, the same bits on each engine."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from psycopg import sql

from mmdb.api import Database
from mmdb.db.postgres import PostgresConnection

REAL_OID = 700  # of float4 in pg_type
ROWS_AT_ONCE = 20_000


def load_points(db: Database, table: str, x: np.ndarray, y: np.ndarray) -> None:
    """Create a table (id integer, x real[], y integer) of float32 (n, w) and int32 (n,)."""
    if isinstance(db.connection, PostgresConnection):
        _copy_binary(db.connection, table, x, y)
    else:
        _read_parquet(db, table, x, y)


def _read_parquet(db: Database, table: str, x: np.ndarray, y: np.ndarray) -> None:
    flat = pa.array(x.reshape(-1))
    columns = {
        "id": pa.array(np.arange(len(x), dtype=np.int32)),
        "x": pa.FixedSizeListArray.from_arrays(flat, x.shape[1]).cast(pa.list_(pa.float32())),
        "y": pa.array(y),
    }
    with tempfile.TemporaryDirectory(prefix="mmdb-bench-") as folder:
        file = Path(folder) / "points.parquet"
        pyarrow.parquet.write_table(pa.table(columns), file)
        db.sql(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{file}')")


def _copy_binary(connection: PostgresConnection, table: str, x: np.ndarray, y: np.ndarray) -> None:
    name = sql.Identifier(table)
    create = "CREATE TABLE {} (id integer NOT NULL, x real[] NOT NULL, y integer NOT NULL)"
    with connection.transaction(), connection.raw.cursor() as cursor:
        cursor.execute(sql.SQL(create).format(name))
        copy = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(name)
        with cursor.copy(copy) as stream:
            stream.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
            for start in range(0, len(x), ROWS_AT_ONCE):
                part = slice(start, start + ROWS_AT_ONCE)
                stream.write(_tuples(x[part], y[part], start).tobytes())
            stream.write(b"\xff\xff")


def _tuples(x: np.ndarray, y: np.ndarray, first_id: int) -> np.ndarray:
    """Return rows as COPY's binary format has them: big-endian, a length before each value."""
    width = x.shape[1]
    element = np.dtype([("size", ">i4"), ("value", ">f4")])
    row = np.dtype(
        [
            ("fields", ">i2"),
            ("id_size", ">i4"),
            ("id", ">i4"),
            ("x_size", ">i4"),
            ("dimensions", ">i4"),
            ("nulls", ">i4"),
            ("type", ">i4"),
            ("length", ">i4"),
            ("base", ">i4"),
            ("x", element, (width,)),
            ("y_size", ">i4"),
            ("y", ">i4"),
        ]
    )
    rows = np.zeros(len(x), row)
    rows["fields"], rows["id_size"], rows["y_size"] = 3, 4, 4
    rows["id"] = np.arange(first_id, first_id + len(x))
    rows["x_size"] = 20 + 8 * width
    rows["dimensions"], rows["type"] = 1, REAL_OID
    rows["length"], rows["base"] = width, 1
    rows["x"]["size"], rows["x"]["value"] = 4, x
    rows["y"] = y
    return rows
