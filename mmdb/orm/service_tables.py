"""Tables of settings, of requests to worker processes, and of plans and machine profiles."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, Json, foreign_key, keyed, many, one

if TYPE_CHECKING:
    from mmdb.orm.data_tables import Partition
    from mmdb.orm.run_tables import Candidate, Run


class Migration(Base, written_by="`mmdb install`"):
    """The schema that this database was made with (0), and each change since (1, 2, …)."""

    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    digest: Mapped[str]
    applied_at: Mapped[datetime]


class Setting(Base, written_by="Database.sql"):
    """The owner's configuration; passwords belong into a password file, not here."""

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class Factory(Base, written_by="Database.register_factory"):
    """Allow-list of the Python callables that build models; the only way code enters."""

    name: Mapped[str] = mapped_column(primary_key=True)
    target: Mapped[str]
    created_at: Mapped[datetime]


class Function(Base, written_by="Database.register_function"):
    """Allow-list of the Python callables that datasets and runs may name besides factories."""

    __table_args__ = (PrimaryKeyConstraint("kind", "name"),)

    name: Mapped[str]
    kind: Mapped[str]
    target: Mapped[str]
    created_at: Mapped[datetime]
    definition: Mapped[str | None]


class Trainer(Base, written_by="Database.register_trainer"):
    """Allow-list of the training functions that recipes may name."""

    name: Mapped[str] = mapped_column(primary_key=True)
    target: Mapped[str]
    created_at: Mapped[datetime]


class Share(Base, written_by="Database.share_model"):
    """What teams let other roles read; it means something in databases with teams."""

    kind: Mapped[str] = mapped_column(primary_key=True)
    object_id: Mapped[BigInt] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    shared_at: Mapped[datetime]
    author: Mapped[str]


class RoleLimit(Base, written_by="Database.sql"):
    """How much the owners of datasets, runs and models may use; null is without limit."""

    role: Mapped[str] = mapped_column(primary_key=True)
    workers: Mapped[int | None]
    bytes: Mapped[BigInt | None]
    seconds: Mapped[float | None]
    predict_rows: Mapped[BigInt | None]
    memory_bytes: Mapped[BigInt | None]


class RunRequest(Base, written_by="Run.submit"):
    """Runs handed to the worker processes, and taken back."""

    request_id: Mapped[BigInt] = mapped_column(primary_key=True)
    run_id: Mapped[BigInt] = foreign_key("run.run_id")
    request: Mapped[str]
    priority: Mapped[int]
    requested_at: Mapped[datetime]

    run: Mapped[Run] = one()
    outcome: Mapped[RunOutcome | None] = one(
        "RunRequest.request_id == foreign(RunOutcome.request_id)"
    )


class RunOutcome(Base, written_by="`mmdb worker`"):
    """How worker processes ended what was handed to them; without one it is under way."""

    request_id: Mapped[BigInt] = mapped_column(primary_key=True)
    run_id: Mapped[BigInt] = foreign_key("run.run_id")
    ended_at: Mapped[datetime]
    sqlstate: Mapped[str | None]
    message: Mapped[str | None]

    request: Mapped[RunRequest] = one("foreign(RunOutcome.request_id) == RunRequest.request_id")
    run: Mapped[Run] = one()


class CandidateRequest(Base, written_by="Database.stop_candidate"):
    """Candidates that someone stopped or let go on while their run was trained."""

    request_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = foreign_key("candidate.candidate_id")
    request: Mapped[str]
    requested_at: Mapped[datetime]

    candidate: Mapped[Candidate] = one()


class Schedule(Base, written_by="Database.schedule"):
    """Statements that workers run again and again."""

    __table_args__ = (UniqueConstraint("name"),)

    schedule_id: Mapped[BigInt] = mapped_column(primary_key=True)
    name: Mapped[str]
    statement: Mapped[str]
    search_path: Mapped[str | None]
    every_s: Mapped[float]
    starts_at: Mapped[datetime]
    is_outside: Mapped[bool]
    owner: Mapped[str | None]
    created_at: Mapped[datetime]

    runs: Mapped[list[ScheduleRun]] = many("ScheduleRun.due_at")


class ScheduleRun(Base, written_by="`mmdb worker`"):
    """Runs of schedules, one for each due time that was served."""

    __table_args__ = (UniqueConstraint("schedule_id", "due_at"),)

    schedule_run_id: Mapped[BigInt] = mapped_column(primary_key=True)
    schedule_id: Mapped[BigInt] = foreign_key("schedule.schedule_id")
    due_at: Mapped[datetime]
    tries: Mapped[int]
    failures: Mapped[int]
    retry_at: Mapped[datetime]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    outcome: Mapped[str | None]
    sqlstate: Mapped[str | None]
    message: Mapped[str | None]

    schedule: Mapped[Schedule] = one()


class Scoring(Base, written_by="Database.score_on_insert"):
    """Columns that a model fills in new rows of a table."""

    scoring_id: Mapped[BigInt] = mapped_column(primary_key=True)
    schema_name: Mapped[str]
    table_name: Mapped[str]
    column_name: Mapped[str]
    key_name: Mapped[str]
    model: Mapped[str]
    embedding: Mapped[str | None]
    owner: Mapped[str | None]
    created_at: Mapped[datetime]

    failures: Mapped[list[ScoringFailure]] = many("ScoringFailure.scoring_failure_id")


class ScoringFailure(Base, written_by="Database.score_on_insert"):
    """New rows that were left without a prediction, and why."""

    scoring_failure_id: Mapped[BigInt] = mapped_column(primary_key=True)
    scoring_id: Mapped[BigInt] = foreign_key("scoring.scoring_id")
    row_count: Mapped[BigInt]
    row_key: Mapped[str | None]
    sqlstate: Mapped[str]
    message: Mapped[str]
    failed_at: Mapped[datetime]

    scoring: Mapped[Scoring] = one()


class Worker(Base, written_by="`mmdb worker`"):
    """Slots that worker processes have offered: one device each."""

    worker_id: Mapped[BigInt] = mapped_column(primary_key=True)
    name: Mapped[str]
    process: Mapped[str]
    node: Mapped[str]
    device: Mapped[str]
    mode: Mapped[str]
    started_at: Mapped[datetime]

    beat: Mapped[WorkerBeat | None] = one("Worker.worker_id == foreign(WorkerBeat.worker_id)")
    assignments: Mapped[list[Assignment]] = many(
        "Assignment.assignment_id", "Worker.worker_id == foreign(Assignment.worker_id)"
    )


class WorkerBeat(Base, written_by="`mmdb worker`"):
    """Signs of life, one row a slot, updated every few seconds."""

    worker_id: Mapped[BigInt] = mapped_column(primary_key=True)
    beat_at: Mapped[datetime]
    stopped_at: Mapped[datetime | None]

    worker: Mapped[Worker] = one("foreign(WorkerBeat.worker_id) == Worker.worker_id")


class Assignment(Base, written_by="`mmdb worker`"):
    """Hops that the leader has given to slots."""

    assignment_id: Mapped[BigInt] = mapped_column(primary_key=True)
    worker_id: Mapped[BigInt]
    candidate_id: Mapped[BigInt]
    epoch: Mapped[int]
    part_id: Mapped[BigInt | None]
    detail: Mapped[Json]
    assigned_at: Mapped[datetime]
    taken_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    sqlstate: Mapped[str | None]
    message: Mapped[str | None]
    hint: Mapped[str | None]
    trace: Mapped[str | None]

    worker: Mapped[Worker] = one("foreign(Assignment.worker_id) == Worker.worker_id")
    candidate: Mapped[Candidate] = one("foreign(Assignment.candidate_id) == Candidate.candidate_id")
    partition: Mapped[Partition | None] = one("foreign(Assignment.part_id) == Partition.part_id")


class Profile(Base, written_by="Database.calibrate"):
    """What calibrate() measured: medians of repeated measurements, by kind and size."""

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


class Plan(Base, written_by="Run.explain"):
    """What explain_train was asked, once for each call; what it said is in estimate."""

    plan_id: Mapped[BigInt] = mapped_column(primary_key=True)
    run_id: Mapped[BigInt] = foreign_key("run.run_id")
    planned_at: Mapped[datetime]
    candidates: Mapped[int]
    measured: Mapped[int]
    options: Mapped[Json]
    notes: Mapped[Json]
    simulated: Mapped[bool]
    assumed: Mapped[bool]

    run: Mapped[Run] = one()
    estimates: Mapped[list[Estimate]] = many("Estimate.rank")


class Estimate(Base, written_by="Run.explain"):
    """What a plan says of each way of training a run, the best first."""

    plan_id: Mapped[BigInt] = foreign_key("plan.plan_id", primary_key=True)
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


class RunStrategy(Base, written_by="Run.train"):
    """How runs with the strategy auto are trained, from their first hop on."""

    run_id: Mapped[BigInt] = foreign_key("run.run_id", primary_key=True)
    strategy: Mapped[str]
    group_size: Mapped[int]
    workers: Mapped[int | None]
    plan_id: Mapped[BigInt | None]
    reason: Mapped[str]
    decided_at: Mapped[datetime]

    run: Mapped[Run] = one()
    plan: Mapped[Plan | None] = one("foreign(RunStrategy.plan_id) == Plan.plan_id")


class StepTime(Base, written_by="Run.explain"):
    """Training steps that a plan measured, on a copy that was thrown away."""

    __mapper_args__ = keyed("candidate_id", "node", "device", "environment", "measured_at")

    candidate_id: Mapped[BigInt] = foreign_key("candidate.candidate_id")
    node: Mapped[str]
    device: Mapped[str]
    environment: Mapped[str]
    row_count: Mapped[BigInt]
    steps: Mapped[int]
    seconds: Mapped[float]
    state_bytes: Mapped[BigInt]
    measured_at: Mapped[datetime]

    candidate: Mapped[Candidate] = one()


class StepPrediction(Base, written_by="Run.explain"):
    """What a profile says of a candidate's steps: what hops took beside it corrects later plans."""

    candidate_id: Mapped[BigInt] = foreign_key("candidate.candidate_id", primary_key=True)
    fingerprint: Mapped[str] = mapped_column(primary_key=True)
    profiled_at: Mapped[datetime] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    batch_size: Mapped[BigInt]
    step_s: Mapped[float]
    row_s: Mapped[float]
    features: Mapped[Json]
    predicted_at: Mapped[datetime]

    candidate: Mapped[Candidate] = one()
