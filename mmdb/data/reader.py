"""Partitions out of the database: blocks read a few at a time, verified, decoded into the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mmdb.data import arrays, node_cache
from mmdb.data.decoded import Decoded
from mmdb.data.decoding import Decoding
from mmdb.data.pack import digest, partition_hash, unpack
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import BlockCorrupt, DatasetDropped, PartitionNotFound

_Q = load("datasets")
#: Blocks that one query reads: some MB.
BLOCKS = 4


def ensure_partition(connection: Connection, part_id: int, content_hash: bytes) -> None:
    """Have a partition decoded in the node's cache, where `node_cache.map` finds it.

    The cache knows no rights: what another session has decoded is for those alone who may read the
    blocks that it was decoded from.

    Raises:
        PartitionNotFound, DatasetDropped
        BlockCorrupt: the stored blocks do not match their digests or `content_hash`.
    """
    written = False

    def write(folder: Path) -> None:
        nonlocal written
        written = True
        _write_partition(connection, part_id, content_hash, folder)

    node_cache.ensure(content_hash, write)
    if not written:
        decoding, _ = _find(connection, part_id)
        rows = connection.rows(_Q.find_digests, part_id=part_id)
        _check([bytes(row["digest"]) for row in rows], decoding, part_id, content_hash)


def read_partition(connection: Connection, part_id: int, content_hash: bytes) -> Decoded:
    """Return the rows of a partition, through the cache."""
    while True:
        ensure_partition(connection, part_id, content_hash)
        try:
            return node_cache.map(content_hash)
        except node_cache.NotCached:  # another process made room; decode it again
            continue


def _write_partition(
    connection: Connection, part_id: int, content_hash: bytes, folder: Path
) -> None:
    decoding, rows = _find(connection, part_id)
    digests = []
    with arrays.writing(folder, decoding, rows) as add:
        for block in _blocks(connection, part_id):
            decoded = unpack(block["data"], decoding)
            count = len(decoded.label_arrays[0])
            if count != block["row_count"]:
                raise BlockCorrupt(f"Block {block['ordinal']} of partition {part_id} lost rows.")
            add(decoded)
            digests.append(bytes(block["digest"]))
            rows -= count
    if rows:
        raise BlockCorrupt(f"Partition {part_id} has not as many rows as it should.")
    _check(digests, decoding, part_id, content_hash)


def _find(connection: Connection, part_id: int) -> tuple[Decoding, int]:
    """Return how a partition is decoded, and its rows."""
    found = connection.rows(_Q.find_partition, part_id=part_id)
    if not found:
        raise PartitionNotFound(f"Partition {part_id} does not exist.")
    partition = found[0]
    if partition["dropped"]:
        raise DatasetDropped(f"Dataset {partition['dataset']!r} has been dropped.")
    columns = connection.rows(_Q.find_columns, dataset_id=partition["dataset_id"])
    return Decoding.from_rows(partition, columns), int(partition["row_count"])


def _check(digests: Sequence[bytes], decoding: Decoding, part_id: int, content_hash: bytes) -> None:
    if partition_hash(digests, decoding) != content_hash:
        raise BlockCorrupt(f"The blocks of partition {part_id} do not match its content hash.")


def _blocks(connection: Connection, part_id: int) -> Iterator[Row]:
    low = 0
    while found := connection.rows(_Q.read_blocks, part_id=part_id, low=low, high=low + BLOCKS):
        for block in found:
            if digest(block["data"]) != block["digest"]:
                raise BlockCorrupt(
                    f"Block {block['ordinal']} of partition {part_id} does not match its digest."
                )
            yield block
        low += BLOCKS
