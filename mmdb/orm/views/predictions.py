"""What went out to tables, and what came in from elsewhere."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, View


class PredictionOverview(View):
    """Predictions that were written to tables, one row a call of predict_into."""

    __tablename__ = "prediction_overview"

    prediction_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model: Mapped[str | None]
    version: Mapped[int | None]
    schema_name: Mapped[str | None]
    table_name: Mapped[str | None]
    key_name: Mapped[str | None]
    query: Mapped[str | None]
    row_count: Mapped[BigInt | None]
    seconds: Mapped[float | None]
    author: Mapped[str | None]
    predicted_at: Mapped[datetime | None]


class OriginOverview(View):
    """Models that were not made in this database, and where they came from."""

    __tablename__ = "origin_overview"

    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str | None]
    source: Mapped[str | None]
    format: Mapped[str | None]
    happened_at: Mapped[datetime | None]
