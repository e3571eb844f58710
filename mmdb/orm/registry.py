"""What people say about models."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, Json, one

if TYPE_CHECKING:
    from mmdb.orm.model import Model


class AliasEvent(Base):
    """Every move of an alias; its last event says where it is."""

    __tablename__ = "alias_event"
    written_by = "Database.set_alias"

    event_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model: Mapped[str]
    alias: Mapped[str]
    version: Mapped[int | None]
    happened_at: Mapped[datetime]
    author: Mapped[str]

    of_model: Mapped[Model | None] = one(
        "and_(foreign(AliasEvent.model) == Model.name, "
        "foreign(AliasEvent.version) == Model.version)"
    )


class ModelTag(Base):
    """Tags of a model, one value for each key."""

    __tablename__ = "model_tag"
    written_by = "Database.tag"

    model_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.model.model_id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    created_at: Mapped[datetime]

    model: Mapped[Model] = one()


class ModelMetric(Base):
    """Metrics of a model, those of its training among them."""

    __tablename__ = "model_metric"
    written_by = "Database.log_metric"

    model_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.model.model_id"), primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    dataset: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float]
    created_at: Mapped[datetime]

    model: Mapped[Model] = one()


class ModelNote(Base):
    """What people wrote about a model."""

    __tablename__ = "model_note"
    written_by = "Database.note"

    note_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.model.model_id"))
    note: Mapped[str]
    created_at: Mapped[datetime]
    author: Mapped[str]

    model: Mapped[Model] = one()


class Probe(Base):
    """Layer-by-layer digests of forward and backward passes, to compare later."""

    __tablename__ = "probe"
    written_by = "Database.save_probe"

    probe_id: Mapped[BigInt] = mapped_column(primary_key=True)
    name: Mapped[str]
    model_id: Mapped[BigInt | None] = mapped_column(ForeignKey("mmdb.model.model_id"))
    summary: Mapped[Json]
    created_at: Mapped[datetime]

    model: Mapped[Model | None] = one()
