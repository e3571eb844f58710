"""Graphs of models without weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, Json, many, one, unread

if TYPE_CHECKING:
    from mmdb.orm.model import Model


class Architecture(Base):
    """Graphs of models without weights and names; equal graphs are one row."""

    __tablename__ = "architecture"
    written_by = "Database.save"
    __table_args__ = (UniqueConstraint("canonical_hash"),)

    architecture_id: Mapped[BigInt] = mapped_column(primary_key=True)
    canonical_hash: Mapped[bytes] = unread()
    is_traced: Mapped[bool]
    node_count: Mapped[int]
    parameter_count: Mapped[BigInt]
    parameter_bytes: Mapped[BigInt]

    nodes: Mapped[list[ArchitectureNode]] = many("ArchitectureNode.ordinal")
    edges: Mapped[list[ArchitectureEdge]] = many(
        "(ArchitectureEdge.target, ArchitectureEdge.position)"
    )
    outlines: Mapped[list[Outline]] = many("Outline.version")
    models: Mapped[list[Model]] = many("Model.model_id")


class ArchitecturePrefix(Base):
    """Every beginning of an architecture, once; a search for common ones looks here first."""

    __tablename__ = "architecture_prefix"
    written_by = "Database.save"

    prefix_hash: Mapped[bytes] = mapped_column(primary_key=True)
    node_count: Mapped[int]
    parameter_bytes: Mapped[BigInt]

    nodes: Mapped[list[ArchitectureNode]] = many(
        "(ArchitectureNode.architecture_id, ArchitectureNode.ordinal)"
    )


class ArchitectureNode(Base):
    """Layers and operations of an architecture, in topological order."""

    __tablename__ = "architecture_node"
    written_by = "Database.save"

    architecture_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.architecture.architecture_id"), primary_key=True
    )
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    op: Mapped[str]
    attributes: Mapped[Json]
    parameters: Mapped[Json]
    parameter_bytes: Mapped[BigInt]
    prefix_hash: Mapped[bytes] = mapped_column(ForeignKey("mmdb.architecture_prefix.prefix_hash"))

    architecture: Mapped[Architecture] = one()
    prefix: Mapped[ArchitecturePrefix] = one()


class ArchitectureEdge(Base):
    """What feeds each node; position is the place among the node's inputs."""

    __tablename__ = "architecture_edge"
    written_by = "Database.save"

    architecture_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.architecture.architecture_id"), primary_key=True
    )
    source: Mapped[int]
    target: Mapped[int] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)

    architecture: Mapped[Architecture] = one()
    source_node: Mapped[ArchitectureNode] = one(
        "and_(foreign(ArchitectureEdge.architecture_id) == ArchitectureNode.architecture_id, "
        "foreign(ArchitectureEdge.source) == ArchitectureNode.ordinal)"
    )
    target_node: Mapped[ArchitectureNode] = one(
        "and_(foreign(ArchitectureEdge.architecture_id) == ArchitectureNode.architecture_id, "
        "foreign(ArchitectureEdge.target) == ArchitectureNode.ordinal)"
    )


class Outline(Base):
    """Outlines of architectures, packed for the search of parents."""

    __tablename__ = "outline"
    written_by = "Database.save"

    architecture_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.architecture.architecture_id"), primary_key=True
    )
    version: Mapped[int] = mapped_column(primary_key=True)
    layer_count: Mapped[int]
    parameter_count: Mapped[BigInt]
    packed: Mapped[bytes] = unread()

    architecture: Mapped[Architecture] = one()
