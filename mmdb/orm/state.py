"""States of candidates, as they are kept."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, many, marked, one, unread

if TYPE_CHECKING:
    from mmdb.orm.data import Partition
    from mmdb.orm.run import Candidate


class Checkpoint(Base):
    """States made durable at an epoch's end; the last and the best of each candidate are kept."""

    __tablename__ = "checkpoint"
    written_by = "Run.train"

    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    state_hash: Mapped[bytes] = mapped_column(primary_key=True)
    epoch: Mapped[int]
    byte_count: Mapped[BigInt]
    created_at: Mapped[datetime]

    candidate: Mapped[Candidate] = one("foreign(Checkpoint.candidate_id) == Candidate.candidate_id")
    partition: Mapped[Partition] = one("foreign(Checkpoint.part_id) == Partition.part_id")
    chunks: Mapped[list[CheckpointChunk]] = many(
        "CheckpointChunk.ordinal",
        "and_(Checkpoint.part_id == foreign(CheckpointChunk.part_id), "
        "Checkpoint.candidate_id == foreign(CheckpointChunk.candidate_id), "
        "Checkpoint.state_hash == foreign(CheckpointChunk.state_hash))",
    )


class CheckpointChunk(Base):
    """The bytes of checkpoints, in chunks of 1 MiB."""

    __tablename__ = "checkpoint_chunk"
    written_by = "Run.train"

    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    state_hash: Mapped[bytes] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    data: Mapped[bytes] = unread()

    checkpoint: Mapped[Checkpoint] = one(
        "and_(Checkpoint.part_id == foreign(CheckpointChunk.part_id), "
        "Checkpoint.candidate_id == foreign(CheckpointChunk.candidate_id), "
        "Checkpoint.state_hash == foreign(CheckpointChunk.state_hash))"
    )


class StateChunk(Base):
    """States on their way from one session to another; PostgreSQL alone has them."""

    __tablename__ = "state_chunk"
    written_by = "Run.train"
    __table_args__ = marked(engine="postgres")

    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    state_hash: Mapped[bytes] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    data: Mapped[bytes] = unread()

    candidate: Mapped[Candidate] = one("foreign(StateChunk.candidate_id) == Candidate.candidate_id")
    partition: Mapped[Partition] = one("foreign(StateChunk.part_id) == Partition.part_id")
