"""Saved models."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, foreign, mapped_column, relationship, remote

from mmdb.orm.base import Base, BigInt, Json, many, one, unread

if TYPE_CHECKING:
    from mmdb.orm.architecture import Architecture
    from mmdb.orm.data import Dataset
    from mmdb.orm.lineage import ModelOrigin, Prediction
    from mmdb.orm.parts import ModelTensor
    from mmdb.orm.registry import AliasEvent, ModelMetric, ModelNote, ModelTag, Probe
    from mmdb.orm.run import Candidate
    from mmdb.orm.tensor import Manifest, Tensor
    from mmdb.orm.zoo import Transfer, ZooEvent


def _parentage() -> Any:
    from mmdb.orm.parts import parentage  # which is made of this class

    return parentage


class Model(Base):
    """Saved models; a new save under an old name is a new version."""

    __tablename__ = "model"
    written_by = "Database.save"
    __table_args__ = (UniqueConstraint("name", "version"),)

    model_id: Mapped[BigInt] = mapped_column(primary_key=True)
    name: Mapped[str]
    version: Mapped[int]
    approach: Mapped[str]
    parent_id: Mapped[BigInt | None] = mapped_column(ForeignKey("mmdb.model.model_id"))
    manifest_id: Mapped[BigInt | None] = mapped_column(ForeignKey("mmdb.manifest.manifest_id"))
    pack_id: Mapped[BigInt | None] = mapped_column(ForeignKey("mmdb.tensor.tensor_id"))
    definition_id: Mapped[BigInt | None] = mapped_column(
        ForeignKey("mmdb.definition.definition_id")
    )
    architecture_id: Mapped[BigInt | None] = mapped_column(
        ForeignKey("mmdb.architecture.architecture_id")
    )
    environment_id: Mapped[BigInt | None] = mapped_column(
        ForeignKey("mmdb.environment.environment_id")
    )
    weights_hash: Mapped[bytes] = unread()
    tensor_count: Mapped[int]
    byte_count: Mapped[BigInt]
    dataset_id: Mapped[BigInt | None] = mapped_column(ForeignKey("mmdb.dataset.dataset_id"))
    candidate_id: Mapped[BigInt | None] = mapped_column(ForeignKey("mmdb.candidate.candidate_id"))
    epoch: Mapped[int | None]
    metrics: Mapped[Json]
    reason: Mapped[Json]
    stored_bytes: Mapped[BigInt]
    save_s: Mapped[float]
    created_at: Mapped[datetime]
    dropped_at: Mapped[datetime | None]
    owner: Mapped[str | None]

    #: Of the state dict, in its order.
    tensors: Mapped[list[ModelTensor]] = many(
        "ModelTensor.ordinal", "Model.model_id == foreign(ModelTensor.model_id)"
    )
    #: Whatever it was made of: what it updates or was trained from, and parents of warm starts.
    parents: Mapped[list[Model]] = relationship(
        secondary=_parentage,
        primaryjoin=lambda: Model.model_id == foreign(_parentage().c.child),
        secondaryjoin=lambda: remote(Model.model_id) == foreign(_parentage().c.parent),
        order_by="Model.model_id",
        viewonly=True,
    )
    children: Mapped[list[Model]] = relationship(
        secondary=_parentage,
        primaryjoin=lambda: Model.model_id == foreign(_parentage().c.parent),
        secondaryjoin=lambda: remote(Model.model_id) == foreign(_parentage().c.child),
        order_by="Model.model_id",
        viewonly=True,
    )
    parent: Mapped[Model | None] = one("foreign(Model.parent_id) == remote(Model.model_id)")
    dataset: Mapped[Dataset | None] = one()
    candidate: Mapped[Candidate | None] = one()
    architecture: Mapped[Architecture | None] = one()
    environment: Mapped[Environment | None] = one()
    definition: Mapped[Definition | None] = one()
    manifest: Mapped[Manifest | None] = one()
    pack: Mapped[Tensor | None] = one()
    changes: Mapped[list[ModelChange]] = many("ModelChange.ordinal")
    recipe: Mapped[Recipe | None] = one()
    tags: Mapped[list[ModelTag]] = many("ModelTag.key")
    logged: Mapped[list[ModelMetric]] = many("(ModelMetric.metric, ModelMetric.dataset)")
    notes: Mapped[list[ModelNote]] = many("ModelNote.note_id")
    probes: Mapped[list[Probe]] = many("Probe.probe_id")
    aliases: Mapped[list[AliasEvent]] = many(
        "AliasEvent.event_id",
        "and_(Model.name == foreign(AliasEvent.model), "
        "Model.version == foreign(AliasEvent.version))",
    )
    zoo_events: Mapped[list[ZooEvent]] = many("ZooEvent.event_id")
    predictions: Mapped[list[Prediction]] = many("Prediction.prediction_id")
    origin: Mapped[ModelOrigin | None] = one()
    transfers: Mapped[list[Transfer]] = many(
        "Transfer.transfer_id", "Model.model_id == foreign(Transfer.model_id)"
    )


class ModelChange(Base):
    """Tensors of a model that stand in place of its manifest's."""

    __tablename__ = "model_change"
    written_by = "Database.save"

    model_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.model.model_id"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    tensor_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.tensor.tensor_id"))

    model: Mapped[Model] = one()
    tensor: Mapped[Tensor] = one()


class Recipe(Base):
    """How to make a model again: its candidate's hops, or a trainer on its parent and dataset."""

    __tablename__ = "recipe"
    written_by = "Database.save"

    model_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.model.model_id"), primary_key=True)
    trainer: Mapped[str | None]
    arguments: Mapped[Json]
    seed: Mapped[BigInt | None]
    tensor_hashes: Mapped[bytes] = unread()
    train_s: Mapped[float | None]
    replayed_s: Mapped[float | None]

    model: Mapped[Model] = one()
    tensors: Mapped[list[RecipeTensor]] = many(
        "RecipeTensor.path", "Recipe.model_id == foreign(RecipeTensor.model_id)"
    )


class RecipeTensor(Base):
    """Tensors that a recipe starts from beside its parent: optimizer and generator states."""

    __tablename__ = "recipe_tensor"
    written_by = "Database.save"

    model_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.model.model_id"), primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    tensor_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.tensor.tensor_id"))

    recipe: Mapped[Recipe] = one("foreign(RecipeTensor.model_id) == Recipe.model_id")
    tensor: Mapped[Tensor] = one()


class Definition(Base):
    """What it takes to build a model's module, each once."""

    __tablename__ = "definition"
    written_by = "Database.save"
    __table_args__ = (UniqueConstraint("definition_hash"),)

    definition_id: Mapped[BigInt] = mapped_column(primary_key=True)
    definition_hash: Mapped[bytes] = unread()
    architecture: Mapped[Json]
    arguments: Mapped[Json]
    input_shape: Mapped[list[int]]
    outputs: Mapped[int]
    named: Mapped[Json | None]

    models: Mapped[list[Model]] = many("Model.model_id")


class Environment(Base):
    """Software and hardware that models were saved in, each once."""

    __tablename__ = "environment"
    written_by = "Database.save"
    __table_args__ = (UniqueConstraint("environment_hash"),)

    environment_id: Mapped[BigInt] = mapped_column(primary_key=True)
    environment_hash: Mapped[bytes] = unread()
    details: Mapped[Json]

    models: Mapped[list[Model]] = many("Model.model_id")
