"""Tables of datasets, of features that frozen layers make of them, and of candidates' states."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, Json, foreign_key, many, marked, one, unread

if TYPE_CHECKING:
    from mmdb.orm.model_tables import Model
    from mmdb.orm.run_tables import Candidate, Hop, Run


class Dataset(Base, written_by="Database.create_dataset"):
    """A registered query, fixed to the rows it returned on that day."""

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
    version: Mapped[int]
    origin_id: Mapped[BigInt | None]
    changes: Mapped[Json | None]

    columns: Mapped[list[DatasetColumn]] = many("DatasetColumn.ordinal")
    transforms: Mapped[list[Transform]] = many("Transform.ordinal")
    sources: Mapped[list[DatasetSource]] = many("DatasetSource.ordinal")
    slices: Mapped[list[Partition]] = many("Partition.part_id")
    runs: Mapped[list[Run]] = many("Run.run_id")
    models: Mapped[list[Model]] = many("Model.model_id")


class DatasetColumn(Base, written_by="Database.create_dataset"):
    """The output columns of a dataset's query, in order."""

    dataset_id: Mapped[BigInt] = foreign_key("dataset.dataset_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    kind: Mapped[str]
    width: Mapped[int]

    dataset: Mapped[Dataset] = one()


class Transform(Base, written_by="Database.create_dataset"):
    """What the values of a dataset's column become, fitted on its train rows."""

    dataset_id: Mapped[BigInt] = foreign_key("dataset.dataset_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    source: Mapped[str]
    parameters: Mapped[Json]
    statistics: Mapped[Json]
    categories: Mapped[Json | None]

    dataset: Mapped[Dataset] = one()


class DatasetSource(Base, written_by="Database.create_dataset"):
    """Tables and columns that a dataset's query reads."""

    dataset_id: Mapped[BigInt] = foreign_key("dataset.dataset_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    table_name: Mapped[str]
    column_name: Mapped[str | None]
    output_name: Mapped[str | None]
    schema_name: Mapped[str | None]
    via: Mapped[str | None]
    resolution: Mapped[str | None]

    dataset: Mapped[Dataset] = one()


class Partition(Base, written_by="Database.create_dataset"):
    """Shuffled slices of a dataset: train slices 0..P-1, and the validation slice."""

    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    dataset_id: Mapped[BigInt] = foreign_key("dataset.dataset_id")
    ordinal: Mapped[int]
    role: Mapped[str]
    row_count: Mapped[BigInt]
    byte_count: Mapped[BigInt]
    content_hash: Mapped[bytes] = unread()

    dataset: Mapped[Dataset] = one()
    blocks: Mapped[list[Block]] = many("Block.ordinal")
    shared_blocks: Mapped[list[SharedBlock]] = many("SharedBlock.ordinal")
    hops: Mapped[list[Hop]] = many("(Hop.candidate_id, Hop.ordinal)")


class Block(Base, written_by="Database.create_dataset"):
    """Packed runs of a partition's rows."""

    part_id: Mapped[BigInt] = foreign_key("partition.part_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    row_count: Mapped[int]
    digest: Mapped[bytes] = unread()
    data: Mapped[bytes] = unread()
    row_hashes: Mapped[bytes | None] = unread()

    partition: Mapped[Partition] = one()


class SharedBlock(Base, written_by="Database.refresh_dataset"):
    """The blocks of a partition that reads blocks of other partitions, all of them in order."""

    part_id: Mapped[BigInt] = foreign_key("partition.part_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    source_id: Mapped[BigInt]
    source_ordinal: Mapped[int]
    masked: Mapped[list[int] | None]

    partition: Mapped[Partition] = one()


class Feature(Base, written_by="Run.train"):
    """Outputs of frozen layers for the rows of a dataset."""

    __table_args__ = (UniqueConstraint("feature_key", "dataset_id", "owner"),)

    feature_id: Mapped[BigInt] = mapped_column(primary_key=True)
    feature_key: Mapped[bytes] = unread()
    dataset_id: Mapped[BigInt] = foreign_key("dataset.dataset_id")
    owner: Mapped[str]
    prefix_key: Mapped[bytes] = unread()
    layer: Mapped[str]
    pool: Mapped[str]
    storage: Mapped[str]
    shape: Mapped[list[int]]
    architecture_hash: Mapped[bytes] = unread()
    tensors_hash: Mapped[bytes] = unread()
    network_hash: Mapped[bytes] = unread()
    depth: Mapped[int]
    backbone: Mapped[str | None]
    model_id: Mapped[BigInt | None]
    seed: Mapped[BigInt | None]
    row_bytes: Mapped[BigInt]
    max_error: Mapped[float | None]
    mean_error: Mapped[float | None]
    created_at: Mapped[datetime]
    used_at: Mapped[datetime]

    dataset: Mapped[Dataset] = one()
    model: Mapped[Model | None] = one("foreign(Feature.model_id) == Model.model_id")
    parts: Mapped[list[FeaturePart]] = many("FeaturePart.part_id")
    uses: Mapped[list[RunFeature]] = many("RunFeature.run_id")
    candidates: Mapped[list[CandidateFeature]] = many("CandidateFeature.candidate_id")


class FeaturePart(Base, written_by="Run.train"):
    """Partitions whose features are stored, whole."""

    feature_id: Mapped[BigInt] = foreign_key("feature.feature_id", primary_key=True)
    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    row_count: Mapped[BigInt]
    byte_count: Mapped[BigInt]
    blocks: Mapped[int]
    digest: Mapped[bytes] = unread()
    created_at: Mapped[datetime]

    feature: Mapped[Feature] = one()
    partition: Mapped[Partition] = one("foreign(FeaturePart.part_id) == Partition.part_id")
    packed: Mapped[list[FeatureBlock]] = many(
        "FeatureBlock.ordinal",
        "and_(FeaturePart.feature_id == foreign(FeatureBlock.feature_id), "
        "FeaturePart.part_id == foreign(FeatureBlock.part_id))",
    )


class FeatureBlock(Base, written_by="Run.train"):
    """Packed runs of a partition's features."""

    feature_id: Mapped[BigInt] = mapped_column(primary_key=True)
    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    row_count: Mapped[int]
    digest: Mapped[bytes] = unread()
    data: Mapped[bytes] = unread()

    feature: Mapped[Feature] = one("foreign(FeatureBlock.feature_id) == Feature.feature_id")
    partition: Mapped[Partition] = one("foreign(FeatureBlock.part_id) == Partition.part_id")


class RunFeature(Base, written_by="Run.train"):
    """Where each of a run's features comes from, and what that cost."""

    run_id: Mapped[BigInt] = foreign_key("run.run_id", primary_key=True)
    feature_id: Mapped[BigInt] = foreign_key("feature.feature_id", primary_key=True)
    choice: Mapped[str]
    reason: Mapped[str]
    candidates: Mapped[int]
    uses: Mapped[BigInt]
    byte_count: Mapped[BigInt]
    compute_s: Mapped[float]
    store_s: Mapped[float]
    read_s: Mapped[float]
    saved_s: Mapped[float]
    planned_s: Mapped[float]
    layer: Mapped[str]
    network_hash: Mapped[bytes] = unread()
    depth: Mapped[int]
    backbone: Mapped[str | None]
    model_id: Mapped[BigInt | None]
    created_at: Mapped[datetime]

    run: Mapped[Run] = one()
    feature: Mapped[Feature] = one()


class CandidateFeature(Base, written_by="Run.train"):
    """The features that a candidate trains on."""

    candidate_id: Mapped[BigInt] = foreign_key("candidate.candidate_id", primary_key=True)
    run_id: Mapped[BigInt]
    feature_id: Mapped[BigInt] = foreign_key("feature.feature_id")

    candidate: Mapped[Candidate] = one()
    run: Mapped[Run] = one("foreign(CandidateFeature.run_id) == Run.run_id")
    feature: Mapped[Feature] = one()


class Checkpoint(Base, written_by="Run.train"):
    """States made durable at an epoch's end; the last and the best of each candidate are kept."""

    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    state_hash: Mapped[bytes] = mapped_column(primary_key=True)
    epoch: Mapped[int]
    byte_count: Mapped[BigInt]
    created_at: Mapped[datetime]

    candidate: Mapped[Candidate] = one("foreign(Checkpoint.candidate_id) == Candidate.candidate_id")
    partition: Mapped[Partition] = one("foreign(Checkpoint.part_id) == Partition.part_id")
    chunks: Mapped[list[CheckpointChunk]] = many(
        "CheckpointChunk.ordinal",
        "and_(Checkpoint.part_id == foreign(CheckpointChunk.part_id), "
        "Checkpoint.candidate_id == foreign(CheckpointChunk.candidate_id), "
        "Checkpoint.state_hash == foreign(CheckpointChunk.state_hash))",
    )


class CheckpointChunk(Base, written_by="Run.train"):
    """The bytes of checkpoints, in chunks of 1 MiB."""

    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    state_hash: Mapped[bytes] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    data: Mapped[bytes] = unread()

    checkpoint: Mapped[Checkpoint] = one(
        "and_(Checkpoint.part_id == foreign(CheckpointChunk.part_id), "
        "Checkpoint.candidate_id == foreign(CheckpointChunk.candidate_id), "
        "Checkpoint.state_hash == foreign(CheckpointChunk.state_hash))"
    )


class StateChunk(Base, written_by="Run.train"):
    """States on their way from one session to another; PostgreSQL alone has them."""

    __table_args__ = marked(engine="postgres")

    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    state_hash: Mapped[bytes] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    data: Mapped[bytes] = unread()

    candidate: Mapped[Candidate] = one("foreign(StateChunk.candidate_id) == Candidate.candidate_id")
    partition: Mapped[Partition] = one("foreign(StateChunk.part_id) == Partition.part_id")
