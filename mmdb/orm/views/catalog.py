"""Datasets, partitions and where they come from."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, Json, View


class DatasetOverview(View):
    """The registered datasets."""

    __tablename__ = "dataset_overview"

    name: Mapped[str] = mapped_column(primary_key=True)
    query: Mapped[str | None]
    label: Mapped[str | None]
    task: Mapped[str | None]
    row_count: Mapped[BigInt | None]
    byte_count: Mapped[BigInt | None]
    partitions: Mapped[int | None]
    validation: Mapped[float | None]
    seed: Mapped[BigInt | None]
    input_shape: Mapped[list[int] | None]
    classes: Mapped[Json | None]
    created_at: Mapped[datetime] = mapped_column(primary_key=True)
    dropped_at: Mapped[datetime | None]
    targets: Mapped[Json | None]
    inputs: Mapped[Json | None]
    class_counts: Mapped[Json | None]


class PartitionOverview(View):
    """The partitions of each dataset."""

    __tablename__ = "partition_overview"

    dataset: Mapped[str | None]
    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    ordinal: Mapped[int | None]
    role: Mapped[str | None]
    row_count: Mapped[BigInt | None]
    byte_count: Mapped[BigInt | None]


class DatasetLineage(View):
    """Tables and columns that each dataset was read from."""

    __tablename__ = "dataset_lineage"

    dataset: Mapped[str | None] = mapped_column(primary_key=True)
    table_name: Mapped[str | None] = mapped_column(primary_key=True)
    column_name: Mapped[str | None] = mapped_column(primary_key=True)
    output_name: Mapped[str | None] = mapped_column(primary_key=True)
    schema_name: Mapped[str | None] = mapped_column(primary_key=True)
    via: Mapped[str | None] = mapped_column(primary_key=True)
    resolution: Mapped[str | None] = mapped_column(primary_key=True)
