"""Partitions out of the database: blocks verified and decoded into the cache, or only verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mmdb.data import arrays, node_cache
from mmdb.data.arrays import Decoded
from mmdb.data.assembly import Values
from mmdb.data.dataset import StoredDataset, dataset_of
from mmdb.data.decoding import Decoding
from mmdb.data.pack import dataset_hash, digest, partition_hash, unpack, unpack_columns
from mmdb.db.check import Verified
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import BlockCorrupt, DatasetDropped, DatasetNotFound, PartitionNotFound

_Q = load("datasets")
#: Blocks that one query reads: some MB.
BLOCKS = 4


def ensure_partition(
    connection: Connection, part_id: int, content_hash: bytes, model: Decoding | None = None
) -> bytes:
    """Have a partition decoded in the node's cache; return the key that `node_cache.map` takes.

    The cache knows no rights: what another session has decoded is for those alone who may read the
    blocks that it was decoded from.

    Args:
        model: whose inputs the rows become; None: those of their own dataset.
    Raises:
        PartitionNotFound, DatasetDropped
        BlockCorrupt: the stored blocks do not match their digests or `content_hash`.
    """
    written = False

    def write(folder: Path) -> None:
        nonlocal written
        written = True
        _write_partition(connection, part_id, content_hash, folder, model)

    key = content_hash if model is None else digest(content_hash + model.canonical_json())
    node_cache.ensure(key, write)
    if not written:
        decoding, found = _find(connection, part_id)
        query = _Q.find_shared_digests if found["is_shared"] else _Q.find_digests
        digests = [block_digest(row) for row in connection.rows(query, part_id=part_id)]
        _check(digests, decoding, part_id, content_hash)
    return key


def read_partition(
    connection: Connection, part_id: int, content_hash: bytes, model: Decoding | None = None
) -> Decoded:
    """Return the rows of a partition, through the cache; see `ensure_partition`."""
    while True:
        key = ensure_partition(connection, part_id, content_hash, model)
        try:
            return node_cache.map(key)
        except node_cache.NotCached:  # another process made room; decode it again
            continue


def read_columns(
    connection: Connection, part_id: int, decoding: Decoding
) -> Iterator[dict[str, Values]]:
    """Yield the features of a partition's rows as they came from the query, block by block."""
    for block in read_blocks(connection, part_id):
        yield unpack_columns(block["data"], decoding, block.get("masked"))


def _write_partition(
    connection: Connection,
    part_id: int,
    content_hash: bytes,
    folder: Path,
    model: Decoding | None,
) -> None:
    decoding, found = _find(connection, part_id)
    rows, digests = int(found["row_count"]), []
    shaped = decoding if model is None else replace(model, labels=decoding.labels)
    with arrays.writing(folder, shaped, rows) as add:
        for block in read_blocks(connection, part_id, is_shared=found["is_shared"]):
            masked = block.get("masked")
            decoded = unpack(block["data"], decoding, model, masked)
            count = len(decoded.label_arrays[0])
            if count != block["row_count"] - len(masked or ()):
                raise BlockCorrupt(f"Block {block['ordinal']} of partition {part_id} lost rows.")
            add(decoded)
            digests.append(block_digest(block))
            rows -= count
    if rows:
        raise BlockCorrupt(f"Partition {part_id} has not as many rows as it should.")
    _check(digests, decoding, part_id, content_hash)


def _find(connection: Connection, part_id: int) -> tuple[Decoding, Row]:
    """Return how a partition is decoded, and its row of `find_partition`."""
    found = connection.rows(_Q.find_partition, part_id=part_id)
    if not found:
        raise PartitionNotFound(f"Partition {part_id} does not exist.")
    partition = found[0]
    if partition["dropped"]:
        raise DatasetDropped(f"Dataset {partition['dataset']!r} has been dropped.")
    columns = connection.rows(_Q.find_columns, dataset_id=partition["dataset_id"])
    return Decoding.from_rows(partition, columns), partition


def block_digest(block: Row) -> bytes:
    """Return what stands for a block in the content hash of its partition."""
    own, masked = bytes(block["digest"]), block.get("masked")
    return digest(own + np.asarray(masked, "<u4").tobytes()) if masked else own


def _check(digests: Sequence[bytes], decoding: Decoding, part_id: int, content_hash: bytes) -> None:
    if partition_hash(digests, decoding) != content_hash:
        raise BlockCorrupt(f"The blocks of partition {part_id} do not match its content hash.")


def read_blocks(
    connection: Connection, part_id: int, *, is_shared: bool | None = None
) -> Iterator[Row]:
    """Yield the blocks of a partition, checked: ordinal, row_count, digest, data, maybe masked.

    Args:
        is_shared: whether it reads blocks of other partitions; None: to be found out.
    """
    if is_shared is None:
        is_shared = _find(connection, part_id)[1]["is_shared"]
    query, low = _Q.read_shared_blocks if is_shared else _Q.read_blocks, 0
    while found := connection.rows(query, part_id=part_id, low=low, high=low + BLOCKS):
        for block in found:
            if digest(block["data"]) != block["digest"]:
                raise BlockCorrupt(
                    f"Block {block['ordinal']} of partition {part_id} does not match its digest."
                )
            yield block
        low += BLOCKS


_VERIFY_QUERIES = load("verify")


def verify_blocks(connection: Connection, on_progress: Callable[[int], None]) -> Verified:
    """Return what was read of the datasets' blocks, and what is wrong with it."""
    found = Verified("blocks")
    for row in connection.rows(_VERIFY_QUERIES.find_datasets):
        try:
            dataset = dataset_of(connection, row["dataset_id"])
        except DatasetNotFound:
            continue
        wrong = _verify_dataset(connection, dataset, found, on_progress)
        if wrong and connection.rows(
            _VERIFY_QUERIES.is_dataset_there, dataset_id=dataset.dataset_id
        ):
            found.wrong += [f"dataset {dataset.name!r}, {text}" for text in wrong]
    return found


def _verify_dataset(
    connection: Connection,
    dataset: StoredDataset,
    found: Verified,
    on_progress: Callable[[int], None],
) -> list[str]:
    wrong = []
    for partition in dataset.slices:
        digests, count = [], 0
        for block in _checked_blocks(connection, partition.part_id):
            size = len(block["data"])
            found.add(size)
            on_progress(size)
            actual = digest(block["data"])
            digests.append(block_digest({**block, "digest": actual}))
            count += block["row_count"] - len(block.get("masked") or ())
            if actual != bytes(block["digest"]):
                wrong.append(f"partition {partition.part_id}, block {block['ordinal']}: changed")
        whole = partition_hash(digests, dataset.decoding) == partition.content_hash
        if not whole or count != partition.row_count:
            wrong.append(f"partition {partition.part_id}: its blocks are not those of its hash")
    if dataset_hash(p.content_hash for p in dataset.slices) != dataset.content_hash:
        wrong.append("its partitions are not those of its hash")
    return wrong


def _checked_blocks(connection: Connection, part_id: int) -> Iterator[Row]:
    """Yield the blocks of a partition, read a few at a time."""
    is_shared = _find(connection, part_id)[1]["is_shared"]
    query, low = _Q.read_shared_blocks if is_shared else _Q.read_blocks, 0
    while found := connection.rows(query, part_id=part_id, low=low, high=low + BLOCKS):
        yield from found
        low += BLOCKS
