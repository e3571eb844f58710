"""The graph of lineage, edge by edge, its entities, and which models a column went into."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, View


class LineageEdge(View):
    """Every edge of lineage, from tables and columns to models and back to tables; filter by
    parent_kind or child_kind.
    """

    __tablename__ = "lineage_edge"

    parent_kind: Mapped[str | None] = mapped_column(primary_key=True)
    parent: Mapped[str | None] = mapped_column(primary_key=True)
    child_kind: Mapped[str | None] = mapped_column(primary_key=True)
    child: Mapped[str | None] = mapped_column(primary_key=True)
    via: Mapped[str | None] = mapped_column(primary_key=True)
    happened_at: Mapped[datetime | None] = mapped_column(primary_key=True)
    parent_id: Mapped[BigInt | None] = mapped_column(primary_key=True)
    parent_epoch: Mapped[int | None] = mapped_column(primary_key=True)
    parent_part: Mapped[BigInt | None] = mapped_column(primary_key=True)
    child_id: Mapped[BigInt | None] = mapped_column(primary_key=True)
    child_epoch: Mapped[int | None] = mapped_column(primary_key=True)
    child_part: Mapped[BigInt | None] = mapped_column(primary_key=True)
    parent_table: Mapped[str | None] = mapped_column(primary_key=True)
    parent_column: Mapped[str | None] = mapped_column(primary_key=True)
    child_table: Mapped[str | None] = mapped_column(primary_key=True)
    child_column: Mapped[str | None] = mapped_column(primary_key=True)


class LineageEntity(View):
    """What lineage() can be asked for by a name of its own."""

    __tablename__ = "lineage_entity"

    kind: Mapped[str]
    entity: Mapped[str] = mapped_column(primary_key=True)
    entity_id: Mapped[BigInt | None]
    name: Mapped[str | None]
    version: Mapped[int | None]
    is_dropped: Mapped[bool | None]
    table_name: Mapped[str | None]
    column_name: Mapped[str | None]


class ColumnImpact(View):
    """Which models were trained on which columns; lineage(column, 'down') also follows what was
    made of them.
    """

    __tablename__ = "column_impact"

    schema_name: Mapped[str | None] = mapped_column(primary_key=True)
    table_name: Mapped[str | None] = mapped_column(primary_key=True)
    column_name: Mapped[str | None] = mapped_column(primary_key=True)
    resolution: Mapped[str | None] = mapped_column(primary_key=True)
    output_name: Mapped[str | None] = mapped_column(primary_key=True)
    dataset: Mapped[str | None] = mapped_column(primary_key=True)
    model: Mapped[str | None] = mapped_column(primary_key=True)
    version: Mapped[int | None] = mapped_column(primary_key=True)
    is_direct: Mapped[bool | None] = mapped_column(primary_key=True)
    model_id: Mapped[BigInt | None] = mapped_column(primary_key=True)
