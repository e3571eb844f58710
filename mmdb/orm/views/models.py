"""Models, where they come from, what they hold and what people say about them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, BigInts, Json, View


class ModelOverview(View):
    """The saved models, dropped ones too."""

    __tablename__ = "model_overview"

    model: Mapped[str | None]
    version: Mapped[int | None]
    dataset: Mapped[str | None]
    run: Mapped[str | None]
    candidate_id: Mapped[BigInt | None]
    epoch: Mapped[int | None]
    metrics: Mapped[Json | None]
    architecture: Mapped[Json | None]
    arguments: Mapped[Json | None]
    tensors: Mapped[int | None]
    byte_count: Mapped[BigInt | None]
    created_at: Mapped[datetime | None]
    approach: Mapped[str | None]
    parent: Mapped[str | None]
    stored_bytes: Mapped[BigInt | None]
    save_s: Mapped[float | None]
    reason: Mapped[Json | None]
    nodes: Mapped[int | None]
    parameters: Mapped[BigInt | None]
    dropped_at: Mapped[datetime | None]
    model_id: Mapped[BigInt] = mapped_column(primary_key=True)


class ModelLineage(View):
    """From each model to its parents, run, dataset, tables and columns."""

    __tablename__ = "model_lineage"

    model: Mapped[str | None] = mapped_column(primary_key=True)
    version: Mapped[int | None] = mapped_column(primary_key=True)
    run: Mapped[str | None] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt | None] = mapped_column(primary_key=True)
    epoch: Mapped[int | None] = mapped_column(primary_key=True)
    dataset: Mapped[str | None] = mapped_column(primary_key=True)
    table_name: Mapped[str | None] = mapped_column(primary_key=True)
    column_name: Mapped[str | None] = mapped_column(primary_key=True)
    output_name: Mapped[str | None] = mapped_column(primary_key=True)
    approach: Mapped[str | None] = mapped_column(primary_key=True)
    parent: Mapped[str | None] = mapped_column(primary_key=True)
    warm_parent: Mapped[str | None] = mapped_column(primary_key=True)
    similarity: Mapped[float | None] = mapped_column(primary_key=True)
    coverage: Mapped[float | None] = mapped_column(primary_key=True)


class TensorStorage(View):
    """The tensors of each model, with their statistics and how they lie in the database; a small
    one has no chunks of its own.
    """

    __tablename__ = "tensor_storage"

    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str | None]
    kind: Mapped[str | None]
    trainable: Mapped[bool | None]
    tied_to: Mapped[int | None]
    dtype: Mapped[str | None]
    shape: Mapped[BigInts | None]
    byte_count: Mapped[BigInt | None]
    stored_bytes: Mapped[BigInt | None]
    chunks: Mapped[int | None]
    chunk_bytes: Mapped[int | None]
    base_id: Mapped[BigInt | None]
    minimum: Mapped[float | None]
    maximum: Mapped[float | None]
    mean: Mapped[float | None]
    deviation: Mapped[float | None]
    zeros: Mapped[BigInt | None]
    nans: Mapped[BigInt | None]
    created_at: Mapped[datetime | None]
    tensor_id: Mapped[BigInt | None]


class AliasHistory(View):
    """Every move of every alias, and who moved it; the version is null where it was taken away."""

    __tablename__ = "alias_history"

    model: Mapped[str | None]
    alias: Mapped[str | None]
    version: Mapped[int | None]
    happened_at: Mapped[datetime | None]
    author: Mapped[str | None]
    event_id: Mapped[BigInt] = mapped_column(primary_key=True)


class ModelAlias(View):
    """Where each alias is now."""

    __tablename__ = "model_alias"

    model: Mapped[str] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int | None]
    since: Mapped[datetime | None]
    author: Mapped[str | None]


class TagOverview(View):
    """The tags of the models."""

    __tablename__ = "tag_overview"

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str | None]
    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    created_at: Mapped[datetime | None]


class MetricOverview(View):
    """The metrics of the models; the dataset is empty where it was not said."""

    __tablename__ = "metric_overview"

    metric: Mapped[str] = mapped_column(primary_key=True)
    dataset: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    created_at: Mapped[datetime | None]


class NoteOverview(View):
    """What people wrote about the models."""

    __tablename__ = "note_overview"

    model: Mapped[str | None]
    version: Mapped[int | None]
    note: Mapped[str | None]
    created_at: Mapped[datetime | None]
    author: Mapped[str | None]
    note_id: Mapped[BigInt] = mapped_column(primary_key=True)
