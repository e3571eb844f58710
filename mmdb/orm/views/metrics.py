"""What a monitor reads."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import View


class Metric(View):
    """What mmdb does, as samples for a monitor."""

    __tablename__ = "metric"

    name: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str | None]
    help: Mapped[str | None]
    label: Mapped[str | None]
    label_value: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]


class ServerMetric(View):
    """What the server holds and does for mmdb, as samples for a monitor."""

    __tablename__ = "server_metric"

    name: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str | None]
    help: Mapped[str | None]
    label: Mapped[str | None]
    label_value: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]
