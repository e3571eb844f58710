"""The zoo of parents, what was decided about it, and what was carried over from whom."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, View


class Zoo(View):
    """The models that are not dropped, and whether they are offered as parents."""

    __tablename__ = "zoo"

    model: Mapped[str | None]
    version: Mapped[int | None]
    status: Mapped[str | None]
    reason: Mapped[str | None]
    decided_at: Mapped[datetime | None]
    dataset: Mapped[str | None]
    task: Mapped[str | None]
    metric: Mapped[str | None]
    value: Mapped[float | None]
    hits: Mapped[BigInt | None]
    last_hit_at: Mapped[datetime | None]
    nodes: Mapped[int | None]
    parameters: Mapped[BigInt | None]
    is_traced: Mapped[bool | None]
    byte_count: Mapped[BigInt | None]
    stored_bytes: Mapped[BigInt | None]
    created_at: Mapped[datetime | None]
    model_id: Mapped[BigInt] = mapped_column(primary_key=True)


class ZooDecisions(View):
    """Every decision about a model in the zoo, and every time that it was taken as a parent."""

    __tablename__ = "zoo_decisions"

    model: Mapped[str | None]
    version: Mapped[int | None]
    event: Mapped[str | None]
    reason: Mapped[str | None]
    by_rule: Mapped[bool | None]
    happened_at: Mapped[datetime | None]
    dropped_at: Mapped[datetime | None]
    event_id: Mapped[BigInt] = mapped_column(primary_key=True)


class TransferMap(View):
    """Where each tensor of a child that was warm-started came from."""

    __tablename__ = "transfer_map"

    transfer_id: Mapped[BigInt] = mapped_column(primary_key=True)
    run: Mapped[str | None]
    candidate_id: Mapped[BigInt | None]
    model: Mapped[str | None]
    parent: Mapped[str | None]
    parent_candidate_id: Mapped[BigInt | None]
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str | None]
    parent_path: Mapped[str | None]
    operator: Mapped[str | None]
    fraction: Mapped[float | None]
    reason: Mapped[str | None]
    similarity: Mapped[float | None]
    coverage: Mapped[float | None]
    created_at: Mapped[datetime | None]
