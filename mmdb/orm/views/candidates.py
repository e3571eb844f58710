"""What people and BI tools select from."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, Json, View


class OpenRun(View):
    """The runs without totals, whose hops the other views add up themselves: most have not
    finished.
    """

    __tablename__ = "open_run"

    run_id: Mapped[BigInt | None]
    run: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[BigInt | None]
    epochs: Mapped[int | None]
    metric: Mapped[str | None]
    maximize: Mapped[bool | None]


class OpenCandidate(View):
    """The candidates of open runs, as candidate_overview shows them."""

    __tablename__ = "open_candidate"

    run_id: Mapped[BigInt | None]
    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    parent_id: Mapped[BigInt | None]
    config: Mapped[Json | None]
    status: Mapped[str | None]
    goal: Mapped[int | None]
    epochs: Mapped[int | None]
    hops: Mapped[BigInt | None]
    total_s: Mapped[float | None]
    hops_done: Mapped[BigInt | None]
    hops_total: Mapped[BigInt | None]
    spent_s: Mapped[float | None]
    metric: Mapped[str | None]
    maximize: Mapped[bool | None]
    best_value: Mapped[float | None]
    best_epoch: Mapped[int | None]
    validation_loss: Mapped[float | None]
    metrics: Mapped[Json | None]
    error: Mapped[str | None]
    started_at: Mapped[datetime | None]
    last_hop_at: Mapped[datetime | None]
    training_loss: Mapped[float | None]
    rank: Mapped[BigInt | None]


class CandidateOverview(View):
    """Each candidate of each run: how far it is, what it has reached and what it took."""

    __tablename__ = "candidate_overview"

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    parent_id: Mapped[BigInt | None]
    config: Mapped[Json | None]
    status: Mapped[str | None]
    goal: Mapped[int | None]
    epochs: Mapped[int | None]
    hops: Mapped[BigInt | None]
    total_s: Mapped[float | None]
    hops_done: Mapped[BigInt | None]
    hops_total: Mapped[BigInt | None]
    spent_s: Mapped[float | None]
    metric: Mapped[str | None]
    maximize: Mapped[bool | None]
    best_value: Mapped[float | None]
    best_epoch: Mapped[int | None]
    validation_loss: Mapped[float | None]
    metrics: Mapped[Json | None]
    error: Mapped[str | None]
    started_at: Mapped[datetime | None]
    last_hop_at: Mapped[datetime | None]
    training_loss: Mapped[float | None]
    rank: Mapped[BigInt | None]


class CandidateProgress(View):
    """The learning curves: each epoch of each candidate."""

    __tablename__ = "candidate_progress"

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    epoch: Mapped[int] = mapped_column(primary_key=True)
    hops: Mapped[BigInt | None]
    row_count: Mapped[BigInt | None]
    steps: Mapped[BigInt | None]
    training_loss: Mapped[float | None]
    validation_loss: Mapped[float | None]
    metric: Mapped[str | None]
    objective: Mapped[float | None]
    metrics: Mapped[Json | None]
    compute_s: Mapped[float | None]
    total_s: Mapped[float | None]
    trained_at: Mapped[datetime | None]
    validated_at: Mapped[datetime | None]
    best_so_far: Mapped[float | None]


class CandidateFailures(View):
    """What ended candidates before their last epoch, with the traceback."""

    __tablename__ = "candidate_failures"

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    config: Mapped[Json | None]
    sqlstate: Mapped[str | None]
    message: Mapped[str | None]
    trace: Mapped[str | None]
    happened_at: Mapped[datetime] = mapped_column(primary_key=True)
