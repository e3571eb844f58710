"""Reading a partition: blocks out of the database, and what decoding their rows takes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from mmdb.data import node_cache
from mmdb.data.decoding import ColumnKind
from mmdb.data.reader import BLOCKS
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.plan.profile.measures.blocks import Block
from mmdb.plan.profile.measures.timing import Allowance, Task, measure_sizes
from mmdb.plan.profile.row import Row

_Q = load("datasets")
#: Numbers or bytes of a row.
WIDTHS = (16, 256, 3072)
#: What is measured of which kind of column.
COLUMNS: dict[str, ColumnKind] = {"decode": "tensor", "decode_pixels": "bytes"}


def measure_decoding(allowance: Allowance, seed: int) -> Iterator[Row]:
    """Measure how rows become arrays in the node's cache: seconds of a row over its bytes."""
    made: dict[tuple[str, float], int] = {}  # rows of each block, by kind and size

    def tasks(width: int, folder: Path) -> Iterator[Task]:
        for kind, column in COLUMNS.items():
            block = Block(column, width, seed)
            size = float(block.feature_bytes)
            made[kind, size] = block.rows
            yield Task(kind, size, partial(block.decode, folder))

    # A folder that is left behind is one that the cache clears away.
    place = node_cache.directory()
    with tempfile.TemporaryDirectory(prefix="profile-", suffix=".part", dir=place) as name:
        cases = [partial(lambda width: list(tasks(width, Path(name))), width) for width in WIDTHS]
        for row in measure_sizes(allowance, cases):
            yield replace(row, value=row.value / made[row.kind, row.size])


def measure_queries(allowance: Allowance, connection: Connection) -> Iterator[Row]:
    """Measure a small query, there and back."""
    query = partial(connection.rows, load("catalog").find_setting, name="worker_dsn")
    return measure_sizes(allowance, [lambda: [Task("query", 1.0, query)]])


def measure_reading(allowance: Allowance, connection: Connection, part_id: int) -> Iterator[Row]:
    """Measure queries for the first blocks of a partition: one, and as many as one query reads.

    The first query of each, which may find the blocks on the disk alone, is not counted.
    """
    found = connection.rows(_Q.read_blocks, part_id=part_id, low=0, high=BLOCKS)
    sizes: list[int] = []
    for block in found:
        sizes.append(len(block["data"]) + (sizes[-1] if sizes else 0))

    def read(high: int) -> None:
        connection.rows(_Q.read_blocks, part_id=part_id, low=0, high=high)

    highs = sorted({1, len(sizes)}) if sizes else []
    cases = [
        partial(lambda high: [Task("read", float(sizes[high - 1]), partial(read, high))], high)
        for high in highs
    ]
    yield from measure_sizes(allowance, cases)
