"""What people plot."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, View


class MetricHistory(View):
    """The metric of each candidate over its epochs and over time, with the best value so far."""

    __tablename__ = "metric_history"

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    epoch: Mapped[int] = mapped_column(primary_key=True)
    validated_at: Mapped[datetime | None]
    metric: Mapped[str | None]
    value: Mapped[float | None]
    best_so_far: Mapped[float | None]


class HopsPerHour(View):
    """Hops that each worker ended in each hour, by run; hours without any have no row."""

    __tablename__ = "hops_per_hour"

    hour: Mapped[datetime] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(primary_key=True)
    node: Mapped[str] = mapped_column(primary_key=True)
    worker: Mapped[str] = mapped_column(primary_key=True)
    hops: Mapped[BigInt | None]
    train_hops: Mapped[BigInt | None]
    row_count: Mapped[BigInt | None]
    busy_s: Mapped[float | None]


class StorageOverview(View):
    """What each model takes in the database, and what sharing tensors and encoding them saved: the
    three add up to its bytes.
    """

    __tablename__ = "storage_overview"

    model: Mapped[str | None]
    version: Mapped[int | None]
    approach: Mapped[str | None]
    created_at: Mapped[datetime | None]
    tensors: Mapped[int | None]
    byte_count: Mapped[BigInt | None]
    stored_bytes: Mapped[BigInt | None]
    shared_bytes: Mapped[BigInt | None]
    encoded_away_bytes: Mapped[BigInt | None]
    model_id: Mapped[BigInt] = mapped_column(primary_key=True)


class RunCost(View):
    """What each run took of its workers, and what that cost where a price is set."""

    __tablename__ = "run_cost"

    run: Mapped[str] = mapped_column(primary_key=True)
    dataset: Mapped[str | None]
    strategy: Mapped[str | None]
    workers: Mapped[int | None]
    hops: Mapped[BigInt | None]
    worker_s: Mapped[float | None]
    compute_s: Mapped[float | None]
    overhead_s: Mapped[float | None]
    wait_s: Mapped[float | None]
    bytes_moved: Mapped[BigInt | None]
    seconds: Mapped[float | None]
    price_per_worker_hour: Mapped[float | None]
    cost: Mapped[float | None]
    created_at: Mapped[datetime | None]


class ZooHits(View):
    """How often each model was taken as a parent, by day; days without a hit have no row."""

    __tablename__ = "zoo_hits"

    day: Mapped[datetime] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    hits: Mapped[BigInt | None]
    hits_so_far: Mapped[BigInt | None]
