"""Every block of every dataset, compared with its digest and the hashes made of digests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mmdb.data.dataset import Dataset, dataset_of
from mmdb.data.pack import dataset_hash, digest, partition_hash
from mmdb.data.reader import BLOCKS
from mmdb.db.check import Verified
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import DatasetNotFound

_Q = load("verify")


def verify_blocks(connection: Connection, on_progress: Callable[[int], None]) -> Verified:
    """Return what was read of the datasets' blocks, and what is wrong with it."""
    found = Verified("blocks")
    for row in connection.rows(_Q.find_datasets):
        try:
            dataset = dataset_of(connection, row["dataset_id"])
        except DatasetNotFound:
            continue
        wrong = _verify_dataset(connection, dataset, found, on_progress)
        if wrong and connection.rows(_Q.is_dataset_there, dataset_id=dataset.dataset_id):
            found.wrong += [f"dataset {dataset.name!r}, {text}" for text in wrong]
    return found


def _verify_dataset(
    connection: Connection, dataset: Dataset, found: Verified, on_progress: Callable[[int], None]
) -> list[str]:
    wrong = []
    for partition in dataset.partitions:
        digests, count = [], 0
        for block in _blocks(connection, partition.part_id):
            size = len(block["data"])
            found.add(size)
            on_progress(size)
            digests.append(digest(block["data"]))
            count += block["row_count"]
            if digests[-1] != bytes(block["digest"]):
                wrong.append(f"partition {partition.part_id}, block {block['ordinal']}: changed")
        whole = partition_hash(digests, dataset.decoding) == partition.content_hash
        if not whole or count != partition.row_count:
            wrong.append(f"partition {partition.part_id}: its blocks are not those of its hash")
    if dataset_hash(p.content_hash for p in dataset.partitions) != dataset.content_hash:
        wrong.append("its partitions are not those of its hash")
    return wrong


def _blocks(connection: Connection, part_id: int) -> Iterator[Row]:
    """Yield the blocks of a partition, read a few at a time."""
    query, low = load("datasets").read_blocks, 0
    while found := connection.rows(query, part_id=part_id, low=low, high=low + BLOCKS):
        yield from found
        low += BLOCKS
