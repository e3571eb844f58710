"""Runs that worker processes train."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, Json, many, one

if TYPE_CHECKING:
    from mmdb.orm.data import Partition
    from mmdb.orm.run import Candidate, Run


class RunRequest(Base):
    """Runs handed to the worker processes, and taken back."""

    __tablename__ = "run_request"
    written_by = "Run.submit"

    request_id: Mapped[BigInt] = mapped_column(primary_key=True)
    run_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.run.run_id"))
    request: Mapped[str]
    priority: Mapped[int]
    requested_at: Mapped[datetime]

    run: Mapped[Run] = one()
    outcome: Mapped[RunOutcome | None] = one(
        "RunRequest.request_id == foreign(RunOutcome.request_id)"
    )


class RunOutcome(Base):
    """How worker processes ended what was handed to them; without one it is under way."""

    __tablename__ = "run_outcome"
    written_by = "`mmdb worker`"

    request_id: Mapped[BigInt] = mapped_column(primary_key=True)
    run_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.run.run_id"))
    ended_at: Mapped[datetime]
    sqlstate: Mapped[str | None]
    message: Mapped[str | None]

    request: Mapped[RunRequest] = one("foreign(RunOutcome.request_id) == RunRequest.request_id")
    run: Mapped[Run] = one()


class CandidateRequest(Base):
    """Candidates that someone stopped or let go on while their run was trained."""

    __tablename__ = "candidate_request"
    written_by = "Database.stop_candidate"

    request_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.candidate.candidate_id"))
    request: Mapped[str]
    requested_at: Mapped[datetime]

    candidate: Mapped[Candidate] = one()


class Worker(Base):
    """Slots that worker processes have offered: one device each."""

    __tablename__ = "worker"
    written_by = "`mmdb worker`"

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


class WorkerBeat(Base):
    """Signs of life, one row a slot, updated every few seconds."""

    __tablename__ = "worker_beat"
    written_by = "`mmdb worker`"

    worker_id: Mapped[BigInt] = mapped_column(primary_key=True)
    beat_at: Mapped[datetime]
    stopped_at: Mapped[datetime | None]

    worker: Mapped[Worker] = one("foreign(WorkerBeat.worker_id) == Worker.worker_id")


class Assignment(Base):
    """Hops that the dispatcher has given to slots."""

    __tablename__ = "assignment"
    written_by = "`mmdb worker`"

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
