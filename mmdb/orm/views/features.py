"""Features of frozen layers."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, View


class FeatureOverview(View):
    """Outputs of frozen layers for the rows of datasets, and how much of them is stored."""

    __tablename__ = "feature_overview"

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

    __tablename__ = "run_features"

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
