"""Models as parents, and what was carried over from them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, Json, many, one, unread

if TYPE_CHECKING:
    from mmdb.orm.model import Model
    from mmdb.orm.run import Candidate


class ZooEvent(Base):
    """What became of models in the zoo, with reasons: the last but hits says whether it is in."""

    __tablename__ = "zoo_event"
    written_by = "Database.zoo_admit"

    event_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.model.model_id"))
    event: Mapped[str]
    reason: Mapped[str]
    by_rule: Mapped[bool]
    happened_at: Mapped[datetime]

    model: Mapped[Model] = one()


class Transfer(Base):
    """Warm starts: tensors carried over from a parent to a candidate, or a module elsewhere."""

    __tablename__ = "transfer"
    written_by = "Database.warm_start"

    transfer_id: Mapped[BigInt] = mapped_column(primary_key=True)
    parent_id: Mapped[BigInt | None] = mapped_column(ForeignKey("mmdb.model.model_id"))
    parent_candidate_id: Mapped[BigInt | None]
    parent_state: Mapped[bytes | None] = unread()
    candidate_id: Mapped[BigInt | None]
    model_id: Mapped[BigInt | None]
    similarity: Mapped[float]
    coverage: Mapped[float]
    options: Mapped[Json]
    reason: Mapped[str]
    match_s: Mapped[float]
    transfer_s: Mapped[float]
    created_at: Mapped[datetime]

    parent: Mapped[Model | None] = one("foreign(Transfer.parent_id) == Model.model_id")
    parent_candidate: Mapped[Candidate | None] = one(
        "foreign(Transfer.parent_candidate_id) == Candidate.candidate_id"
    )
    candidate: Mapped[Candidate | None] = one(
        "foreign(Transfer.candidate_id) == Candidate.candidate_id"
    )
    model: Mapped[Model | None] = one("foreign(Transfer.model_id) == Model.model_id")
    tensors: Mapped[list[TransferTensor]] = many("TransferTensor.ordinal")


class TransferTensor(Base):
    """Where each tensor of a warm-started child came from."""

    __tablename__ = "transfer_tensor"
    written_by = "Database.warm_start"

    transfer_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.transfer.transfer_id"), primary_key=True
    )
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str]
    parent_path: Mapped[str | None]
    operator: Mapped[str]
    fraction: Mapped[float]
    reason: Mapped[str | None]

    transfer: Mapped[Transfer] = one()


class WarmStart(Base):
    """What candidates of runs with a warm start begin with, decided at their first hop, and why."""

    __tablename__ = "warm_start"
    written_by = "Run.train"

    candidate_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.candidate.candidate_id"), primary_key=True
    )
    transfer_id: Mapped[BigInt | None] = mapped_column(ForeignKey("mmdb.transfer.transfer_id"))
    state_hash: Mapped[bytes | None] = unread()
    lr_scale: Mapped[float]
    lr_epochs: Mapped[int]
    reason: Mapped[str]
    match_s: Mapped[float]
    decided_at: Mapped[datetime]

    candidate: Mapped[Candidate] = one()
    transfer: Mapped[Transfer | None] = one()
