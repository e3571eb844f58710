"""Edges of lineage by what they are about."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, View


class LineageSource(View):
    """Tables and columns that datasets, and predictions written to tables, were read from."""

    __tablename__ = "lineage_source"

    reader_kind: Mapped[str | None] = mapped_column(primary_key=True)
    reader: Mapped[str | None] = mapped_column(primary_key=True)
    reader_id: Mapped[BigInt | None] = mapped_column(primary_key=True)
    reader_table: Mapped[str | None] = mapped_column(primary_key=True)
    schema_name: Mapped[str | None] = mapped_column(primary_key=True)
    table_name: Mapped[str | None] = mapped_column(primary_key=True)
    column_name: Mapped[str | None] = mapped_column(primary_key=True)
    output_name: Mapped[str | None] = mapped_column(primary_key=True)
    through: Mapped[str | None] = mapped_column(primary_key=True)
    resolution: Mapped[str | None] = mapped_column(primary_key=True)
    happened_at: Mapped[datetime | None] = mapped_column(primary_key=True)
    table_entity: Mapped[str | None] = mapped_column(primary_key=True)
    column_entity: Mapped[str | None] = mapped_column(primary_key=True)


class LineageSourceEdge(View):
    """Edges of lineage between tables, columns and what was read from them."""

    __tablename__ = "lineage_source_edge"

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


class LineageRunEdge(View):
    """Edges of lineage from datasets to runs and their candidates, and to models trained outside
    of runs.
    """

    __tablename__ = "lineage_run_edge"

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


class LineageHopEdge(View):
    """Edges of lineage of hops: from their partition and the state before them to the state after
    their epoch.
    """

    __tablename__ = "lineage_hop_edge"

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


class LineageStateEdge(View):
    """Edges of lineage from states of candidates: to models that were saved, clones and warm
    starts.
    """

    __tablename__ = "lineage_state_edge"

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


class LineageModelEdge(View):
    """Edges of lineage between models, from where they came, and to candidates and tables that
    they went into.
    """

    __tablename__ = "lineage_model_edge"

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


class LineageFeatureEdge(View):
    """Edges of lineage from datasets and frozen models to features, and to candidates on them."""

    __tablename__ = "lineage_feature_edge"

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
