"""What machines cost, and what plans said."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, Json, keyed, many, one

if TYPE_CHECKING:
    from mmdb.orm.run import Candidate, Run


class Profile(Base):
    """What calibrate() measured: medians of repeated measurements, by kind and size."""

    __tablename__ = "profile"
    written_by = "Database.calibrate"

    fingerprint: Mapped[str] = mapped_column(primary_key=True)
    measured_at: Mapped[datetime] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[float] = mapped_column(primary_key=True)
    size_unit: Mapped[str]
    value: Mapped[float]
    unit: Mapped[str]
    deviation: Mapped[float]
    samples: Mapped[int]
    machine: Mapped[Json]
    versions: Mapped[Json]


class Plan(Base):
    """What explain_train was asked, once for each call; what it said is in estimate."""

    __tablename__ = "plan"
    written_by = "Run.explain"

    plan_id: Mapped[BigInt] = mapped_column(primary_key=True)
    run_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.run.run_id"))
    planned_at: Mapped[datetime]
    candidates: Mapped[int]
    measured: Mapped[int]
    options: Mapped[Json]
    notes: Mapped[Json]
    simulated: Mapped[bool]
    assumed: Mapped[bool]

    run: Mapped[Run] = one()
    estimates: Mapped[list[Estimate]] = many("Estimate.rank")


class Estimate(Base):
    """What a plan says of each way of training a run, the best first."""

    __tablename__ = "estimate"
    written_by = "Run.explain"

    plan_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.plan.plan_id"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    strategy: Mapped[str]
    workers: Mapped[int]
    group_size: Mapped[int]
    partitions: Mapped[int]
    batch_size: Mapped[int | None]
    knobs: Mapped[Json]
    chosen: Mapped[bool]
    t_p10: Mapped[float]
    t_p50: Mapped[float]
    t_p90: Mapped[float]
    lower_bound: Mapped[float]
    compute_s: Mapped[float]
    read_s: Mapped[float]
    hop_s: Mapped[float]
    communication_s: Mapped[float]
    validation_s: Mapped[float]
    idle_s: Mapped[float]
    bytes_moved: Mapped[BigInt]
    peak_memory: Mapped[BigInt]
    hops: Mapped[BigInt]
    feasible: Mapped[bool]
    why_not: Mapped[str | None]
    executed: Mapped[bool]

    plan: Mapped[Plan] = one()


class RunStrategy(Base):
    """How runs with the strategy auto are trained, from their first hop on."""

    __tablename__ = "run_strategy"
    written_by = "Run.train"

    run_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.run.run_id"), primary_key=True)
    strategy: Mapped[str]
    group_size: Mapped[int]
    workers: Mapped[int | None]
    plan_id: Mapped[BigInt | None]
    reason: Mapped[str]
    decided_at: Mapped[datetime]

    run: Mapped[Run] = one()
    plan: Mapped[Plan | None] = one("foreign(RunStrategy.plan_id) == Plan.plan_id")


class StepTime(Base):
    """Training steps that a plan measured, on a copy that was thrown away."""

    __tablename__ = "step_time"
    written_by = "Run.explain"
    __mapper_args__ = keyed("candidate_id", "node", "device", "environment", "measured_at")

    candidate_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.candidate.candidate_id"))
    node: Mapped[str]
    device: Mapped[str]
    environment: Mapped[str]
    row_count: Mapped[BigInt]
    steps: Mapped[int]
    seconds: Mapped[float]
    state_bytes: Mapped[BigInt]
    measured_at: Mapped[datetime]

    candidate: Mapped[Candidate] = one()


class StepPrediction(Base):
    """What a profile says of a candidate's steps: what hops took beside it corrects later plans."""

    __tablename__ = "step_prediction"
    written_by = "Run.explain"

    candidate_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.candidate.candidate_id"), primary_key=True
    )
    fingerprint: Mapped[str] = mapped_column(primary_key=True)
    profiled_at: Mapped[datetime] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    batch_size: Mapped[BigInt]
    step_s: Mapped[float]
    row_s: Mapped[float]
    features: Mapped[Json]
    predicted_at: Mapped[datetime]

    candidate: Mapped[Candidate] = one()
