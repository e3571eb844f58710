"""Partitions that read blocks of other partitions, less some of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mmdb.data.column_layout import ClassCounts
from mmdb.data.dataset import StoredDataset, dataset_of
from mmdb.data.decoding import Decoding
from mmdb.data.forms import add_columns
from mmdb.data.ingest import SealedPartition
from mmdb.data.pack import dataset_hash, partition_hash, unpack
from mmdb.data.reader import block_digest
from mmdb.data.registration import block_rows, describe_partition
from mmdb.data.rows import FIT_AGAIN
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import DataError

_Q = load("datasets")


class Overtaken(Exception):
    """Somebody else has added a version to a dataset, or forgotten rows of it, meanwhile."""


def hold(connection: Connection, *versions: StoredDataset) -> None:
    """Let nobody add a version to a dataset, or forget rows of it, in this transaction.

    Raises:
        Overtaken: rows of these versions have been forgotten since they were read.
    """
    first = versions[0]
    connection.rows(_Q.hold_dataset, dataset_id=first.origin_id or first.dataset_id)
    for one in versions:
        if dataset_of(connection, one.dataset_id).content_hash != one.content_hash:
            raise Overtaken


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block that partitions read, with which of its rows are left out."""

    source_id: int
    source_ordinal: int
    row_count: int
    digest: bytes
    masked: np.ndarray  # places, ascending
    hashes: np.ndarray  # (rows left, 1 or 2); (rows left, 0) where they were not read

    @classmethod
    def of(cls, row: Row) -> StoredBlock:
        """Return the block of a row of `find_blocks`, whose hashes were not read."""
        masked = np.asarray(row["masked"] or (), np.int64)
        return cls(
            row["source_id"],
            row["source_ordinal"],
            row["row_count"],
            bytes(row["digest"]),
            masked,
            np.empty((row["row_count"] - len(masked), 0), np.uint64),
        )

    def with_hashes(self, data: bytes) -> StoredBlock:
        """Return the block, given the hashes of all its rows, a lane after the other."""
        hashes = np.frombuffer(data, "<u8").reshape(-1, self.row_count).T
        return replace(
            self, hashes=np.delete(hashes, self.masked, 0) if len(self.masked) else hashes
        )

    @property
    def rows_left(self) -> int:
        """Rows that are not left out."""
        return len(self.hashes)

    def without(self, places: np.ndarray) -> StoredBlock:
        """Return the block less rows, by their places among those that are left."""
        if not len(places):
            return self
        left = np.delete(np.arange(self.row_count), self.masked)
        masked = np.union1d(self.masked, left[places])
        return replace(self, masked=masked, hashes=np.delete(self.hashes, places, 0))

    def said(self) -> dict[str, Any]:
        """Return what mmdb.shared_block says of it."""
        return {
            "source_id": self.source_id,
            "source_ordinal": self.source_ordinal,
            "masked": self.masked.tolist() or None,
        }


def stored_blocks(
    connection: Connection, dataset: StoredDataset, part_id: int, *, hashed: bool = True
) -> list[StoredBlock]:
    """Return the blocks that a partition of a dataset reads, in order.

    Args:
        hashed: whether to read the hashes of their rows.
    Raises:
        DataError: it is not known which rows they hold.
    """
    blocks = [StoredBlock.of(row) for row in connection.rows(_Q.find_blocks, part_id=part_id)]
    if not hashed:
        return blocks
    found = [row["row_hashes"] for row in connection.rows(_Q.find_row_hashes, part_id=part_id)]
    if None in found:
        raise DataError(f"Dataset {dataset.name!r} does not know its rows again.", hint=FIT_AGAIN)
    return [block.with_hashes(data) for block, data in zip(blocks, found, strict=True)]


def shared_row(
    place: tuple[str, int],
    blocks: Sequence[StoredBlock],
    more: SealedPartition | None,
    decoding: Decoding,
    byte_count: int,
) -> dict[str, Any]:
    """Return what mmdb.partition says of a partition that reads stored blocks, then its own.

    Args:
        place: role and ordinal.
        byte_count: of the stored blocks.
    """
    digests = [block_digest(block.said() | {"digest": block.digest}) for block in blocks]
    digests += [block.digest for block in (more.blocks if more else ())]
    rows = sum(block.rows_left for block in blocks)
    return {
        "role": place[0],
        "ordinal": place[1],
        "row_count": rows + (more.row_count if more else 0),
        "byte_count": byte_count + (more.byte_count if more else 0),
        "content_hash": partition_hash(digests, decoding),
    }


def hash_of(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the content hash of a dataset, given what mmdb.partition says of its partitions."""
    ordered = sorted(rows, key=lambda row: (row["role"], row["ordinal"]))
    return dataset_hash(row["content_hash"] for row in ordered)


def add_shared_partition(
    connection: Connection,
    dataset_id: int,
    row: Mapping[str, Any],
    blocks: Sequence[StoredBlock],
    more: SealedPartition | None = None,
    path: Path | None = None,
    drawn: int | None = None,
) -> None:
    """Add a partition that reads stored blocks, then blocks of its own.

    Args:
        row: what mmdb.partition says of it.
        more, path: its own blocks, and the file that they are in.
        drawn: the number drawn for it.
    """
    part_id = describe_partition(connection, {"dataset_id": dataset_id, **row}, drawn)
    shared = [block.said() for block in blocks]
    if more is not None and path is not None:
        connection.run_many(_Q.add_block, block_rows(part_id, more, path))
        own = {"source_id": part_id, "masked": None}
        shared += [own | {"source_ordinal": ordinal} for ordinal in range(len(more.blocks))]
    connection.run_many(
        _Q.add_shared_block,
        [{"part_id": part_id, "ordinal": k, **one} for k, one in enumerate(shared)],
    )


def copy_form(connection: Connection, source: StoredDataset, dataset_id: int) -> None:
    """Give a dataset the columns, transforms and sources of another."""
    # Row by row: on Citus, INSERT INTO … SELECT of what lies everywhere takes the right to UPDATE.
    add_columns(connection, dataset_id, source.decoding, [])
    connection.run(_Q.copy_sources, dataset_id=dataset_id, source_id=source.dataset_id)


def count_classes(
    connection: Connection,
    decoding: Decoding,
    block: StoredBlock,
    counts: ClassCounts,
    places: np.ndarray | None = None,
) -> None:
    """Count the classes of a block's rows.

    Args:
        places: of rows, among those that are left; None: all of them.
    """
    given = {"source_id": block.source_id, "source_ordinal": block.source_ordinal}
    (row,) = connection.rows(_Q.read_block, **given)
    labels = unpack(row["data"], decoding, None, block.masked.tolist()).label_arrays
    for label, values in zip(decoding.labels, labels, strict=False):
        chosen = values if places is None else values[places]
        is_many = label.task == "multilabel"
        counts.add(label.name, chosen.astype(np.uint8) if is_many else chosen.reshape(-1, 1))
