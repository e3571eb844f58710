"""Candidates with a warm start, beside those without."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, View


class WarmStartOverview(View):
    """What candidates with a warm start began with, and the optimizer steps that it took them to
    what the best cold candidate reached.
    """

    __tablename__ = "warm_start_overview"

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    parent: Mapped[str | None]
    similarity: Mapped[float | None]
    coverage: Mapped[float | None]
    reason: Mapped[str | None]
    lr_scale: Mapped[float | None]
    lr_epochs: Mapped[int | None]
    target: Mapped[float | None]
    steps_to_target: Mapped[BigInt | None]
    cold_steps: Mapped[BigInt | None]
    steps_saved: Mapped[BigInt | None]
    match_s: Mapped[float | None]
    transfer_s: Mapped[float | None]
    decided_at: Mapped[datetime | None]
    transfer_id: Mapped[BigInt | None]
