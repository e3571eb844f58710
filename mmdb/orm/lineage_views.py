"""Views of datasets and features, and of lineage as a graph, edge by edge."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, Json, View


class DatasetOverview(View):
    """The registered datasets."""

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
    dataset_id: Mapped[BigInt]
    version: Mapped[int | None]
    changes: Mapped[Json | None]


class PartitionOverview(View):
    """The partitions of each dataset."""

    dataset: Mapped[str | None]
    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    ordinal: Mapped[int | None]
    role: Mapped[str | None]
    row_count: Mapped[BigInt | None]
    byte_count: Mapped[BigInt | None]


class TransformOverview(View):
    """What the columns of each dataset become, in words."""

    dataset_id: Mapped[BigInt] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    dataset: Mapped[str | None]
    column_name: Mapped[str | None]
    role: Mapped[str | None]
    transform: Mapped[str | None]
    meaning: Mapped[str | None]
    missing: Mapped[BigInt | None]
    fill: Mapped[float | None]


class DatasetLineage(View):
    """Tables and columns that each dataset was read from."""

    dataset: Mapped[str | None] = mapped_column(primary_key=True)
    table_name: Mapped[str | None] = mapped_column(primary_key=True)
    column_name: Mapped[str | None] = mapped_column(primary_key=True)
    output_name: Mapped[str | None] = mapped_column(primary_key=True)
    schema_name: Mapped[str | None] = mapped_column(primary_key=True)
    via: Mapped[str | None] = mapped_column(primary_key=True)
    resolution: Mapped[str | None] = mapped_column(primary_key=True)


class FeatureOverview(View):
    """Outputs of frozen layers for the rows of datasets, and how much of them is stored."""

    feature_id: Mapped[BigInt] = mapped_column(primary_key=True)
    dataset: Mapped[str | None]
    layer: Mapped[str | None]
    pool: Mapped[str | None]
    backbone: Mapped[str | None]
    seed: Mapped[BigInt | None]
    storage: Mapped[str | None]
    shape: Mapped[list[int] | None]
    row_bytes: Mapped[BigInt | None]
    max_error: Mapped[float | None]
    mean_error: Mapped[float | None]
    partitions: Mapped[BigInt | None]
    stored_partitions: Mapped[BigInt | None]
    byte_count: Mapped[BigInt | None]
    runs: Mapped[BigInt | None]
    candidates: Mapped[BigInt | None]
    created_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
    dropped_at: Mapped[datetime | None]


class RunFeatures(View):
    """Where the features of each run came from, why, and what that cost and saved."""

    run: Mapped[str] = mapped_column(primary_key=True)
    feature_id: Mapped[BigInt] = mapped_column(primary_key=True)
    layer: Mapped[str | None]
    pool: Mapped[str | None]
    backbone: Mapped[str | None]
    storage: Mapped[str | None]
    shape: Mapped[list[int] | None]
    choice: Mapped[str | None]
    reason: Mapped[str | None]
    candidates: Mapped[int | None]
    uses: Mapped[BigInt | None]
    hops: Mapped[BigInt | None]
    byte_count: Mapped[BigInt | None]
    compute_s: Mapped[float | None]
    store_s: Mapped[float | None]
    read_s: Mapped[float | None]
    saved_s: Mapped[float | None]
    planned_s: Mapped[float | None]
    created_at: Mapped[datetime | None]


class _Edge(View):
    """The columns of every view of edges: what each of both ends is."""

    __abstract__ = True

    parent_kind: Mapped[str | None] = mapped_column(primary_key=True)
    parent: Mapped[str | None] = mapped_column(primary_key=True)
    child_kind: Mapped[str | None] = mapped_column(primary_key=True)
    child: Mapped[str | None] = mapped_column(primary_key=True)
    via: Mapped[str | None] = mapped_column(primary_key=True)
    happened_at: Mapped[datetime | None] = mapped_column(primary_key=True)
    parent_id: Mapped[BigInt | None] = mapped_column(primary_key=True)
    parent_epoch: Mapped[int | None] = mapped_column(primary_key=True)
    parent_part: Mapped[BigInt | None] = mapped_column(primary_key=True)
    child_id: Mapped[BigInt | None] = mapped_column(primary_key=True)
    child_epoch: Mapped[int | None] = mapped_column(primary_key=True)
    child_part: Mapped[BigInt | None] = mapped_column(primary_key=True)
    parent_table: Mapped[str | None] = mapped_column(primary_key=True)
    parent_column: Mapped[str | None] = mapped_column(primary_key=True)
    child_table: Mapped[str | None] = mapped_column(primary_key=True)
    child_column: Mapped[str | None] = mapped_column(primary_key=True)


class LineageEdge(_Edge):
    """Every edge of lineage, from tables and columns to models and back to tables; filter by
    parent_kind or child_kind.
    """


class LineageEntity(View):
    """What lineage() can be asked for by a name of its own."""

    kind: Mapped[str]
    entity: Mapped[str] = mapped_column(primary_key=True)
    entity_id: Mapped[BigInt | None]
    name: Mapped[str | None]
    version: Mapped[int | None]
    is_dropped: Mapped[bool | None]
    table_name: Mapped[str | None]
    column_name: Mapped[str | None]


class ColumnImpact(View):
    """Which models were trained on which columns; lineage(column, 'down') also follows what was
    made of them.
    """

    schema_name: Mapped[str | None] = mapped_column(primary_key=True)
    table_name: Mapped[str | None] = mapped_column(primary_key=True)
    column_name: Mapped[str | None] = mapped_column(primary_key=True)
    resolution: Mapped[str | None] = mapped_column(primary_key=True)
    output_name: Mapped[str | None] = mapped_column(primary_key=True)
    dataset: Mapped[str | None] = mapped_column(primary_key=True)
    model: Mapped[str | None] = mapped_column(primary_key=True)
    version: Mapped[int | None] = mapped_column(primary_key=True)
    is_direct: Mapped[bool | None] = mapped_column(primary_key=True)
    model_id: Mapped[BigInt | None] = mapped_column(primary_key=True)


class LineageSource(View):
    """Tables and columns that datasets, and predictions written to tables, were read from."""

    reader_kind: Mapped[str | None] = mapped_column(primary_key=True)
    reader: Mapped[str | None] = mapped_column(primary_key=True)
    reader_id: Mapped[BigInt | None] = mapped_column(primary_key=True)
    reader_table: Mapped[str | None] = mapped_column(primary_key=True)
    schema_name: Mapped[str | None] = mapped_column(primary_key=True)
    table_name: Mapped[str | None] = mapped_column(primary_key=True)
    column_name: Mapped[str | None] = mapped_column(primary_key=True)
    output_name: Mapped[str | None] = mapped_column(primary_key=True)
    through: Mapped[str | None] = mapped_column(primary_key=True)
    resolution: Mapped[str | None] = mapped_column(primary_key=True)
    happened_at: Mapped[datetime | None] = mapped_column(primary_key=True)
    table_entity: Mapped[str | None] = mapped_column(primary_key=True)
    column_entity: Mapped[str | None] = mapped_column(primary_key=True)


class LineageSourceEdge(_Edge):
    """Edges of lineage between tables, columns and what was read from them."""


class LineageRunEdge(_Edge):
    """Edges of lineage from datasets to runs and their candidates, and to models trained outside
    of runs.
    """


class LineageHopEdge(_Edge):
    """Edges of lineage of hops: from their partition and the state before them to the state after
    their epoch.
    """


class LineageStateEdge(_Edge):
    """Edges of lineage from states of candidates: to models that were saved, clones and warm
    starts.
    """


class LineageModelEdge(_Edge):
    """Edges of lineage between models, from where they came, and to candidates and tables that
    they went into.
    """


class LineageFeatureEdge(_Edge):
    """Edges of lineage from datasets and frozen models to features, and to candidates on them."""
