"""What frozen layers make of datasets' rows, and which runs and candidates train on it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, many, one, unread

if TYPE_CHECKING:
    from mmdb.orm.data import Dataset, Partition
    from mmdb.orm.model import Model
    from mmdb.orm.run import Candidate, Run


class Feature(Base):
    """Outputs of frozen layers for the rows of a dataset."""

    __tablename__ = "feature"
    written_by = "Run.train"
    __table_args__ = (UniqueConstraint("feature_key", "dataset_id", "owner"),)

    feature_id: Mapped[BigInt] = mapped_column(primary_key=True)
    feature_key: Mapped[bytes] = unread()
    dataset_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.dataset.dataset_id"))
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


class FeaturePart(Base):
    """Partitions whose features are stored, whole."""

    __tablename__ = "feature_part"
    written_by = "Run.train"

    feature_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.feature.feature_id"), primary_key=True
    )
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


class FeatureBlock(Base):
    """Packed runs of a partition's features."""

    __tablename__ = "feature_block"
    written_by = "Run.train"

    feature_id: Mapped[BigInt] = mapped_column(primary_key=True)
    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    row_count: Mapped[int]
    digest: Mapped[bytes] = unread()
    data: Mapped[bytes] = unread()

    feature: Mapped[Feature] = one("foreign(FeatureBlock.feature_id) == Feature.feature_id")
    partition: Mapped[Partition] = one("foreign(FeatureBlock.part_id) == Partition.part_id")


class RunFeature(Base):
    """Where each of a run's features comes from, and what that cost."""

    __tablename__ = "run_feature"
    written_by = "Run.train"

    run_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.run.run_id"), primary_key=True)
    feature_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.feature.feature_id"), primary_key=True
    )
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


class CandidateFeature(Base):
    """The features that a candidate trains on."""

    __tablename__ = "candidate_feature"
    written_by = "Run.train"

    candidate_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.candidate.candidate_id"), primary_key=True
    )
    run_id: Mapped[BigInt]
    feature_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.feature.feature_id"))

    candidate: Mapped[Candidate] = one()
    run: Mapped[Run] = one("foreign(CandidateFeature.run_id) == Run.run_id")
    feature: Mapped[Feature] = one()
