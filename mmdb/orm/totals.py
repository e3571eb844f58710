"""What finished runs came to, added up once."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, Json, one

if TYPE_CHECKING:
    from mmdb.orm.run import Candidate, Run


class EpochTotal(Base):
    """Epochs of the candidates of the runs in run_total, as candidate_progress shows them."""

    __tablename__ = "epoch_total"
    written_by = "Run.train"

    run_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    epoch: Mapped[int] = mapped_column(primary_key=True)
    candidate: Mapped[int]
    hops: Mapped[BigInt]
    row_count: Mapped[BigInt]
    steps: Mapped[BigInt]
    training_loss: Mapped[float | None]
    validation_loss: Mapped[float | None]
    objective: Mapped[float | None]
    metrics: Mapped[Json | None]
    compute_s: Mapped[float]
    total_s: Mapped[float]
    trained_at: Mapped[datetime]
    validated_at: Mapped[datetime | None]
    best_so_far: Mapped[float | None]

    run: Mapped[Run] = one("foreign(EpochTotal.run_id) == Run.run_id")
    of_candidate: Mapped[Candidate] = one(
        "foreign(EpochTotal.candidate_id) == Candidate.candidate_id"
    )


class CandidateTotal(Base):
    """Candidates of the runs in run_total, as candidate_overview shows them."""

    __tablename__ = "candidate_total"
    written_by = "Run.train"

    run_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    status: Mapped[str]
    goal: Mapped[int]
    epochs: Mapped[int | None]
    hops: Mapped[BigInt]
    total_s: Mapped[float | None]
    hops_done: Mapped[BigInt]
    hops_total: Mapped[BigInt]
    spent_s: Mapped[float | None]
    best_value: Mapped[float | None]
    best_epoch: Mapped[int | None]
    validation_loss: Mapped[float | None]
    metrics: Mapped[Json | None]
    error: Mapped[str | None]
    started_at: Mapped[datetime | None]
    last_hop_at: Mapped[datetime | None]
    training_loss: Mapped[float | None]
    rank: Mapped[BigInt]

    run: Mapped[Run] = one("foreign(CandidateTotal.run_id) == Run.run_id")
    candidate: Mapped[Candidate] = one(
        "foreign(CandidateTotal.candidate_id) == Candidate.candidate_id"
    )


class RunTotal(Base):
    """Runs that have finished, as run_progress and run_time show them."""

    __tablename__ = "run_total"
    written_by = "Run.train"

    run_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidates: Mapped[BigInt]
    failed: Mapped[BigInt]
    training: Mapped[BigInt]
    resting: Mapped[BigInt]
    trained: Mapped[BigInt]
    stopped: Mapped[BigInt]
    hops_done: Mapped[BigInt]
    hops_total: Mapped[BigInt]
    started_at: Mapped[datetime | None]
    last_hop_at: Mapped[datetime | None]
    best_candidate_id: Mapped[BigInt | None]
    best_value: Mapped[float | None]
    hops_per_s: Mapped[float | None]
    visits: Mapped[BigInt | None]
    seconds: Mapped[float | None]
    compute_s: Mapped[float | None]
    read_s: Mapped[float | None]
    hop_s: Mapped[float | None]
    validation_s: Mapped[float | None]
    busy_s: Mapped[float | None]
    bytes_moved: Mapped[BigInt | None]
    sealed_at: Mapped[datetime]

    run: Mapped[Run] = one("foreign(RunTotal.run_id) == Run.run_id")


class HourTotal(Base):
    """Hours of the workers in the runs in run_total, as hops_per_hour shows them."""

    __tablename__ = "hour_total"
    written_by = "Run.train"

    run_id: Mapped[BigInt] = mapped_column(primary_key=True)
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    node: Mapped[str] = mapped_column(primary_key=True)
    worker: Mapped[str] = mapped_column(primary_key=True)
    hops: Mapped[BigInt]
    train_hops: Mapped[BigInt]
    row_count: Mapped[BigInt]
    busy_s: Mapped[float]

    run: Mapped[Run] = one("foreign(HourTotal.run_id) == Run.run_id")
