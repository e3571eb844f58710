"""What plans said of runs, and what became of them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, Json, View


class PlanOutcome(View):
    """Trained runs: what the last plan before the start said of what was done, and what it took."""

    __tablename__ = "plan_outcome"

    run: Mapped[str] = mapped_column(primary_key=True)
    plan_id: Mapped[BigInt | None]
    rank: Mapped[int | None]
    strategy: Mapped[str | None]
    workers: Mapped[int | None]
    group_size: Mapped[int | None]
    planned_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    measured: Mapped[int | None]
    assumed: Mapped[bool | None]
    t_p10: Mapped[float | None]
    t_p50: Mapped[float | None]
    t_p90: Mapped[float | None]
    lower_bound: Mapped[float | None]
    actual_s: Mapped[float | None]
    error: Mapped[float | None]
    compute_s: Mapped[float | None]
    actual_compute_s: Mapped[float | None]
    read_s: Mapped[float | None]
    actual_read_s: Mapped[float | None]
    hop_s: Mapped[float | None]
    actual_hop_s: Mapped[float | None]
    validation_s: Mapped[float | None]
    actual_validation_s: Mapped[float | None]
    idle_s: Mapped[float | None]
    actual_idle_s: Mapped[float | None]
    bytes_moved: Mapped[BigInt | None]
    peak_memory: Mapped[BigInt | None]
    hops: Mapped[BigInt | None]
    actual_hops: Mapped[BigInt | None]
    is_comparable: Mapped[bool | None]


class PlanAccuracy(View):
    """How far plans were from the runs, each in the order in which they ended, and over all so
    far.
    """

    __tablename__ = "plan_accuracy"

    run: Mapped[str] = mapped_column(primary_key=True)
    finished_at: Mapped[datetime | None]
    strategy: Mapped[str | None]
    workers: Mapped[int | None]
    measured: Mapped[int | None]
    assumed: Mapped[bool | None]
    t_p50: Mapped[float | None]
    actual_s: Mapped[float | None]
    error: Mapped[float | None]
    is_within: Mapped[bool | None]
    runs: Mapped[BigInt | None]
    mean_error: Mapped[float | None]
    share_within: Mapped[float | None]


class ProfileOverview(View):
    """The last measurements of each machine with its versions, by kind and size."""

    __tablename__ = "profile_overview"

    node: Mapped[str | None]
    kind: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[float] = mapped_column(primary_key=True)
    size_unit: Mapped[str | None]
    value: Mapped[float | None]
    unit: Mapped[str | None]
    per_s: Mapped[float | None]
    deviation: Mapped[float | None]
    samples: Mapped[int | None]
    measured_at: Mapped[datetime | None]
    is_old: Mapped[bool | None]
    processor: Mapped[str | None]
    torch: Mapped[str | None]
    engine: Mapped[str | None]
    fingerprint: Mapped[str] = mapped_column(primary_key=True)


class PlanOverview(View):
    """Every plan of every run: what each way of training it would take, the best first."""

    __tablename__ = "plan_overview"

    run: Mapped[str | None]
    plan_id: Mapped[BigInt] = mapped_column(primary_key=True)
    planned_at: Mapped[datetime | None]
    is_latest: Mapped[bool | None]
    simulated: Mapped[bool | None]
    assumed: Mapped[bool | None]
    candidates: Mapped[int | None]
    measured: Mapped[int | None]
    notes: Mapped[Json | None]
    rank: Mapped[int] = mapped_column(primary_key=True)
    strategy: Mapped[str | None]
    workers: Mapped[int | None]
    group_size: Mapped[int | None]
    partitions: Mapped[int | None]
    batch_size: Mapped[int | None]
    t_p10: Mapped[float | None]
    t_p50: Mapped[float | None]
    t_p90: Mapped[float | None]
    lower_bound: Mapped[float | None]
    compute_s: Mapped[float | None]
    read_s: Mapped[float | None]
    hop_s: Mapped[float | None]
    communication_s: Mapped[float | None]
    validation_s: Mapped[float | None]
    idle_s: Mapped[float | None]
    bytes_moved: Mapped[BigInt | None]
    peak_memory: Mapped[BigInt | None]
    hops: Mapped[BigInt | None]
    feasible: Mapped[bool | None]
    why_not: Mapped[str | None]
    chosen: Mapped[bool | None]
    executed: Mapped[bool | None]
