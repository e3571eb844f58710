"""Who serves the runs that were handed to worker processes."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, View


class WorkerStatus(View):
    """The slots of worker processes, and what each is doing now."""

    __tablename__ = "worker_status"

    worker: Mapped[str | None]
    process: Mapped[str | None]
    node: Mapped[str | None]
    device: Mapped[str | None]
    mode: Mapped[str | None]
    state: Mapped[str | None]
    run: Mapped[str | None]
    candidate_id: Mapped[BigInt | None]
    epoch: Mapped[int | None]
    role: Mapped[str | None]
    partition: Mapped[int | None]
    since: Mapped[datetime | None]
    last_beat: Mapped[datetime | None]
    hops: Mapped[BigInt | None]
    busy_share: Mapped[float | None]
    started_at: Mapped[datetime | None]
    worker_id: Mapped[BigInt] = mapped_column(primary_key=True)
