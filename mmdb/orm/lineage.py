"""What went out to tables, and where models came from."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, many, one, unread

if TYPE_CHECKING:
    from mmdb.orm.model import Model


class Prediction(Base):
    """Predictions of a model that were written to a table."""

    __tablename__ = "prediction"
    written_by = "Database.predict_into"

    prediction_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.model.model_id"))
    schema_name: Mapped[str]
    table_name: Mapped[str]
    key_name: Mapped[str]
    query: Mapped[str]
    row_count: Mapped[BigInt]
    seconds: Mapped[float]
    author: Mapped[str]
    predicted_at: Mapped[datetime]

    model: Mapped[Model] = one()
    sources: Mapped[list[PredictionSource]] = many("PredictionSource.ordinal")


class PredictionSource(Base):
    """Tables and columns that a prediction's query reads."""

    __tablename__ = "prediction_source"
    written_by = "Database.predict_into"

    prediction_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.prediction.prediction_id"), primary_key=True
    )
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    schema_name: Mapped[str | None]
    table_name: Mapped[str]
    column_name: Mapped[str | None]
    output_name: Mapped[str | None]
    via: Mapped[str | None]
    resolution: Mapped[str]

    prediction: Mapped[Prediction] = one()


class ModelOrigin(Base):
    """Where a model came from that was not made in this database."""

    __tablename__ = "model_origin"
    written_by = "Database.import_model"

    model_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.model.model_id"), primary_key=True)
    kind: Mapped[str]
    source: Mapped[str]
    format: Mapped[str | None]
    digest: Mapped[bytes | None] = unread()
    happened_at: Mapped[datetime]

    model: Mapped[Model] = one()
