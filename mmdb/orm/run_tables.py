"""Tables of runs, candidates and hops, and of the totals of finished runs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from mmdb.orm.base import Base, BigInt, Json, foreign_key, keyed, many, one, unread

if TYPE_CHECKING:
    from mmdb.orm.data_tables import Checkpoint, Dataset, Partition
    from mmdb.orm.model_tables import Model
    from mmdb.orm.service_tables import (
        CandidateRequest,
        Plan,
        RunRequest,
        RunStrategy,
        StepPrediction,
        StepTime,
    )
    from mmdb.orm.tensor_tables import WarmStart


class Run(Base, written_by="Database.create_run"):
    """Model-selection workloads: a dataset, candidates, epochs and a strategy."""

    __table_args__ = (UniqueConstraint("name"),)

    run_id: Mapped[BigInt] = mapped_column(primary_key=True)
    name: Mapped[str]
    dataset_id: Mapped[BigInt] = foreign_key("dataset.dataset_id")
    architecture: Mapped[Json]
    search: Mapped[Json]
    epochs: Mapped[int]
    strategy: Mapped[str]
    warm_start: Mapped[str]
    seed: Mapped[BigInt]
    options: Mapped[Json]
    created_at: Mapped[datetime]
    metric: Mapped[str | None]
    maximize: Mapped[bool | None]
    owner: Mapped[str | None]
    dropped_at: Mapped[datetime | None]

    dataset: Mapped[Dataset] = one()
    candidates: Mapped[list[Candidate]] = many("Candidate.ordinal")
    events: Mapped[list[RunEvent]] = many("RunEvent.happened_at")
    decisions: Mapped[list[Decision]] = many(
        "Decision.ordinal", "Run.run_id == foreign(Decision.run_id)"
    )
    plans: Mapped[list[Plan]] = many("Plan.plan_id")
    requests: Mapped[list[RunRequest]] = many("RunRequest.request_id")
    chosen: Mapped[RunStrategy | None] = one()
    #: What its hops add up to; None before it has finished.
    total: Mapped[RunTotal | None] = one("Run.run_id == foreign(RunTotal.run_id)")
    hours: Mapped[list[HourTotal]] = many(
        "(HourTotal.hour, HourTotal.node, HourTotal.worker)",
        "Run.run_id == foreign(HourTotal.run_id)",
    )
    models: Mapped[list[Model]] = relationship(
        secondary="mmdb.candidate",
        primaryjoin="Run.run_id == Candidate.run_id",
        secondaryjoin="Candidate.candidate_id == foreign(Model.candidate_id)",
        order_by="Model.model_id",
        viewonly=True,
    )


class RunEvent(Base, written_by="Run.train"):
    """A row records an event of a run; the last event other than replanned is the run's status."""

    __mapper_args__ = keyed("run_id", "happened_at", "event")

    run_id: Mapped[BigInt] = foreign_key("run.run_id")
    happened_at: Mapped[datetime]
    event: Mapped[str]
    workers: Mapped[int | None]
    message: Mapped[str | None]

    run: Mapped[Run] = one()


class Candidate(Base, written_by="Database.create_run"):
    """The configurations of a run, 0..C-1."""

    __table_args__ = (UniqueConstraint("run_id", "ordinal"),)

    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    run_id: Mapped[BigInt] = foreign_key("run.run_id")
    ordinal: Mapped[int]
    config: Mapped[Json]
    seed: Mapped[BigInt]
    parent_id: Mapped[BigInt | None]
    parent_state: Mapped[bytes | None] = unread()
    architecture_hash: Mapped[bytes | None] = unread()

    run: Mapped[Run] = one()
    hops: Mapped[list[Hop]] = many("Hop.ordinal")
    events: Mapped[list[CandidateEvent]] = many("CandidateEvent.happened_at")
    parent: Mapped[Candidate | None] = one(
        "foreign(Candidate.parent_id) == remote(Candidate.candidate_id)"
    )
    clones: Mapped[list[Candidate]] = many(
        "Candidate.candidate_id", "Candidate.candidate_id == foreign(remote(Candidate.parent_id))"
    )
    checkpoints: Mapped[list[Checkpoint]] = many(
        "Checkpoint.epoch", "Candidate.candidate_id == foreign(Checkpoint.candidate_id)"
    )
    merges: Mapped[list[Merge]] = many(
        "Merge.epoch", "Candidate.candidate_id == foreign(Merge.candidate_id)"
    )
    models: Mapped[list[Model]] = many("Model.model_id")
    total: Mapped[CandidateTotal | None] = one(
        "Candidate.candidate_id == foreign(CandidateTotal.candidate_id)"
    )
    #: As `total`, of finished runs alone; `CandidateProgress` has every epoch.
    epochs: Mapped[list[EpochTotal]] = many(
        "EpochTotal.epoch", "Candidate.candidate_id == foreign(EpochTotal.candidate_id)"
    )
    warm_start: Mapped[WarmStart | None] = one()
    requests: Mapped[list[CandidateRequest]] = many("CandidateRequest.request_id")
    step_times: Mapped[list[StepTime]] = many("StepTime.measured_at")
    step_predictions: Mapped[list[StepPrediction]] = many(
        "(StepPrediction.profiled_at, StepPrediction.version)"
    )


class CandidateEvent(Base, written_by="Run.train"):
    """A row records the error that ended a candidate before its last epoch."""

    __mapper_args__ = keyed("candidate_id", "happened_at", "event")

    candidate_id: Mapped[BigInt] = foreign_key("candidate.candidate_id")
    happened_at: Mapped[datetime]
    event: Mapped[str]
    sqlstate: Mapped[str | None]
    message: Mapped[str | None]
    trace: Mapped[str | None]

    candidate: Mapped[Candidate] = one()


class Hop(Base, written_by="Run.train"):
    """One candidate trained for one pass over one partition, or validated."""

    part_id: Mapped[BigInt] = foreign_key("partition.part_id", primary_key=True)
    candidate_id: Mapped[BigInt] = foreign_key("candidate.candidate_id", primary_key=True)
    epoch: Mapped[int] = mapped_column(primary_key=True)
    ordinal: Mapped[int]
    seed: Mapped[BigInt]
    row_count: Mapped[BigInt]
    steps: Mapped[int]
    loss: Mapped[float]
    metrics: Mapped[Json]
    read_s: Mapped[float]
    load_s: Mapped[float]
    compute_s: Mapped[float]
    store_s: Mapped[float]
    total_s: Mapped[float]
    state_in: Mapped[bytes] = unread()
    state_out: Mapped[bytes] = unread()
    state_bytes: Mapped[BigInt]
    worker: Mapped[str]
    node: Mapped[str]
    device: Mapped[str]
    environment: Mapped[str]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime]
    objective: Mapped[float | None]
    peak_bytes: Mapped[BigInt | None]
    group_size: Mapped[int | None]

    partition: Mapped[Partition] = one()
    candidate: Mapped[Candidate] = one()


class Merge(Base, written_by="Run.train"):
    """Model averaging: one state for each candidate and epoch, out of those that its hops left."""

    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    epoch: Mapped[int] = mapped_column(primary_key=True)
    part_id: Mapped[BigInt]
    state_out: Mapped[bytes] = unread()
    state_bytes: Mapped[BigInt]
    total_s: Mapped[float]
    worker: Mapped[str]
    node: Mapped[str]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime]

    of_candidate: Mapped[Candidate] = one("foreign(Merge.candidate_id) == Candidate.candidate_id")
    partition: Mapped[Partition] = one("foreign(Merge.part_id) == Partition.part_id")


class Decision(Base, written_by="Run.train"):
    """A row records a report to a run's search or one of its decisions."""

    run_id: Mapped[BigInt] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    candidate: Mapped[int | None]
    epoch: Mapped[int | None]
    value: Mapped[float | None]
    detail: Mapped[Json | None]
    decided_at: Mapped[datetime]

    run: Mapped[Run] = one("foreign(Decision.run_id) == Run.run_id")
    of_candidate: Mapped[Candidate | None] = one(
        "and_(foreign(Decision.run_id) == Candidate.run_id, "
        "foreign(Decision.candidate) == Candidate.ordinal)"
    )


class EpochTotal(Base, written_by="Run.train"):
    """Epochs of the candidates of the runs in run_total, as candidate_progress shows them."""

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


class CandidateTotal(Base, written_by="Run.train"):
    """Candidates of the runs in run_total, as candidate_overview shows them."""

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


class RunTotal(Base, written_by="Run.train"):
    """Runs that have finished, as run_progress and run_time show them."""

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


class HourTotal(Base, written_by="Run.train"):
    """Hours of the workers in the runs in run_total, as hops_per_hour shows them."""

    run_id: Mapped[BigInt] = mapped_column(primary_key=True)
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    node: Mapped[str] = mapped_column(primary_key=True)
    worker: Mapped[str] = mapped_column(primary_key=True)
    hops: Mapped[BigInt]
    train_hops: Mapped[BigInt]
    row_count: Mapped[BigInt]
    busy_s: Mapped[float]

    run: Mapped[Run] = one("foreign(HourTotal.run_id) == Run.run_id")
