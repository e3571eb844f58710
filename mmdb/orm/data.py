"""Datasets, and what they were made of."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, Json, many, one, unread

if TYPE_CHECKING:
    from mmdb.orm.model import Model
    from mmdb.orm.run import Hop, Run


class Dataset(Base):
    """A registered query, fixed to the rows it returned on that day."""

    __tablename__ = "dataset"
    written_by = "Database.create_dataset"

    dataset_id: Mapped[BigInt] = mapped_column(primary_key=True)
    name: Mapped[str]
    query: Mapped[str]
    label: Mapped[str]
    task: Mapped[str]
    seed: Mapped[BigInt]
    partitions: Mapped[int]
    validation: Mapped[float]
    row_count: Mapped[BigInt]
    byte_count: Mapped[BigInt]
    content_hash: Mapped[bytes] = unread()
    input_shape: Mapped[list[int]]
    classes: Mapped[Json | None]
    options: Mapped[Json]
    created_at: Mapped[datetime]
    dropped_at: Mapped[datetime | None]
    targets: Mapped[Json | None]
    inputs: Mapped[Json | None]
    class_counts: Mapped[Json | None]
    owner: Mapped[str | None]

    columns: Mapped[list[DatasetColumn]] = many("DatasetColumn.ordinal")
    sources: Mapped[list[DatasetSource]] = many("DatasetSource.ordinal")
    slices: Mapped[list[Partition]] = many("Partition.part_id")
    runs: Mapped[list[Run]] = many("Run.run_id")
    models: Mapped[list[Model]] = many("Model.model_id")


class DatasetColumn(Base):
    """The output columns of a dataset's query, in order."""

    __tablename__ = "dataset_column"
    written_by = "Database.create_dataset"

    dataset_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.dataset.dataset_id"), primary_key=True
    )
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    kind: Mapped[str]
    width: Mapped[int]
    categories: Mapped[Json | None]

    dataset: Mapped[Dataset] = one()


class DatasetSource(Base):
    """Tables and columns that a dataset's query reads."""

    __tablename__ = "dataset_source"
    written_by = "Database.create_dataset"

    dataset_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.dataset.dataset_id"), primary_key=True
    )
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    table_name: Mapped[str]
    column_name: Mapped[str | None]
    output_name: Mapped[str | None]
    schema_name: Mapped[str | None]
    via: Mapped[str | None]
    resolution: Mapped[str | None]

    dataset: Mapped[Dataset] = one()


class Partition(Base):
    """Shuffled slices of a dataset: train slices 0..P-1, and the validation slice."""

    __tablename__ = "partition"
    written_by = "Database.create_dataset"

    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    dataset_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.dataset.dataset_id"))
    ordinal: Mapped[int]
    role: Mapped[str]
    row_count: Mapped[BigInt]
    byte_count: Mapped[BigInt]
    content_hash: Mapped[bytes] = unread()

    dataset: Mapped[Dataset] = one()
    blocks: Mapped[list[Block]] = many("Block.ordinal")
    hops: Mapped[list[Hop]] = many("(Hop.candidate_id, Hop.ordinal)")


class Block(Base):
    """Packed runs of a partition's rows."""

    __tablename__ = "block"
    written_by = "Database.create_dataset"

    part_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.partition.part_id"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    row_count: Mapped[int]
    digest: Mapped[bytes] = unread()
    data: Mapped[bytes] = unread()

    partition: Mapped[Partition] = one()
