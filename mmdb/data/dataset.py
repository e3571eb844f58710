"""Datasets as they are registered: their description, decoding and partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.data.decoding import Class, Column, Decoding, Dtype, Target, Task
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import DatasetNotFound
from mmdb.messages import show

_Q = load("datasets")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartition:
    """One slice of a dataset."""

    part_id: int
    dataset_id: int
    ordinal: int
    role: str
    row_count: int
    byte_count: int
    content_hash: bytes

    @classmethod
    def from_row(cls, row: Row) -> StoredPartition:
        """Return the partition of a row of mmdb.partition."""
        return cls(**row)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDataset:
    """A registered query with its partitions."""

    dataset_id: int
    name: str
    query: str
    label: str
    seed: int
    validation: float
    row_count: int
    byte_count: int
    content_hash: bytes
    decoding: Decoding
    options: Mapping[str, object]
    class_counts: Mapping[str, list[int]]  # train rows by class
    dropped: bool
    owner: str | None
    version: int
    origin_id: int | None  # its first version; None of that one
    changes: Mapping[str, Any]  # since the version before; empty of the first
    slices: tuple[StoredPartition, ...]  # test, train by ordinal, validation

    @property
    def partitions(self) -> tuple[StoredPartition, ...]:
        """The partitions that runs read: the train slices by ordinal, then the validation slice."""
        return tuple(part for part in self.slices if part.role != "test")

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of a model: the label, then those of option `labels`."""
        return self.decoding.targets

    @property
    def task(self) -> Task:
        """The task of the first label."""
        return self.decoding.task

    @property
    def input_shape(self) -> tuple[int, ...] | dict[str, tuple[int, ...]]:
        """The shape of one row: of the only input, or of each by name."""
        return self.decoding.input_shape

    @property
    def input_dtype(self) -> Dtype | dict[str, Dtype]:
        """The dtype of the only input, or of each by name."""
        return self.decoding.input_dtype

    @property
    def classes(self) -> tuple[Class, ...] | None:
        """The first label's values in the order of a model's outputs."""
        return self.decoding.classes

    @property
    def columns(self) -> tuple[Column, ...]:
        """The query's output columns."""
        return self.decoding.columns

    @classmethod
    def from_rows(cls, row: Row, columns: list[Row], partitions: list[Row]) -> StoredDataset:
        """Return the dataset of a row of mmdb.dataset and of those that belong to it."""
        same = ("dataset_id", "name", "query", "label", "seed", "validation", "row_count")
        return cls(
            **{name: row[name] for name in (*same, "byte_count", "content_hash", "dropped")},
            owner=row["owner"],
            version=row["version"],
            origin_id=row["origin_id"],
            changes=json.loads(row["changes"] or "{}"),
            decoding=Decoding.from_rows(row, columns),
            options=json.loads(row["options"]),
            class_counts=json.loads(row["class_counts"]),
            slices=tuple(StoredPartition.from_row(partition) for partition in partitions),
        )


def find_dataset(connection: Connection, name: str) -> StoredDataset:
    """Return the dataset of that name: its last version in use, or else the one dropped last.

    Args:
        name: `name@version` means that version.
    Raises:
        DatasetNotFound
    """
    given = str(name)
    is_first = given.endswith("@1")  # which has its name without a number
    found = connection.rows(
        _Q.find_dataset, name=given.removesuffix("@1") if is_first else given, is_first=is_first
    )
    if not found:
        raise DatasetNotFound(f"There is no dataset {show(name)}.")
    return _dataset(connection, found[0])


def dataset_of(connection: Connection, dataset_id: int) -> StoredDataset:
    """Return a dataset by its number; dropped ones keep theirs.

    Raises:
        DatasetNotFound
    """
    found = connection.rows(_Q.find_dataset_of, dataset_id=dataset_id)
    if not found:
        raise DatasetNotFound(f"There is no dataset {dataset_id}.")
    return _dataset(connection, found[0])


def _dataset(connection: Connection, row: Row) -> StoredDataset:
    dataset_id = row["dataset_id"]
    columns = connection.rows(_Q.find_columns, dataset_id=dataset_id)
    parts = connection.rows(_Q.find_partitions, dataset_id=dataset_id)
    return StoredDataset.from_rows(row, columns, [part for part in parts if part["row_count"]])


def find_decoding(connection: Connection, dataset_id: int) -> Decoding:
    """Return how the rows of a dataset are decoded; dropped datasets keep theirs.

    Raises:
        DatasetNotFound
    """
    found = connection.rows(_Q.find_decoding, dataset_id=dataset_id)
    if not found:
        raise DatasetNotFound(f"There is no dataset {dataset_id}.")
    return Decoding.from_rows(found[0], connection.rows(_Q.find_columns, dataset_id=dataset_id))
