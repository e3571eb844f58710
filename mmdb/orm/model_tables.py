"""Tables of architectures, of saved models, and of what people say about models."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, foreign, mapped_column, relationship, remote

from mmdb.orm.base import Base, BigInt, Json, foreign_key, many, one, unread

if TYPE_CHECKING:
    from mmdb.orm.data_tables import Dataset
    from mmdb.orm.run_tables import Candidate
    from mmdb.orm.tensor_tables import (
        Manifest,
        ModelOrigin,
        ModelTensor,
        Prediction,
        Tensor,
        Transfer,
        ZooEvent,
    )


class Architecture(Base, written_by="Database.save"):
    """Graphs of models without weights and names; equal graphs are one row."""

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


class ArchitecturePrefix(Base, written_by="Database.save"):
    """Every beginning of an architecture, once; a search for common ones looks here first."""

    prefix_hash: Mapped[bytes] = mapped_column(primary_key=True)
    node_count: Mapped[int]
    parameter_bytes: Mapped[BigInt]

    nodes: Mapped[list[ArchitectureNode]] = many(
        "(ArchitectureNode.architecture_id, ArchitectureNode.ordinal)"
    )


class ArchitectureNode(Base, written_by="Database.save"):
    """Layers and operations of an architecture, in topological order."""

    architecture_id: Mapped[BigInt] = foreign_key("architecture.architecture_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    op: Mapped[str]
    attributes: Mapped[Json]
    parameters: Mapped[Json]
    parameter_bytes: Mapped[BigInt]
    prefix_hash: Mapped[bytes] = foreign_key("architecture_prefix.prefix_hash")

    architecture: Mapped[Architecture] = one()
    prefix: Mapped[ArchitecturePrefix] = one()


class ArchitectureEdge(Base, written_by="Database.save"):
    """What feeds each node; position is the place among the node's inputs."""

    architecture_id: Mapped[BigInt] = foreign_key("architecture.architecture_id", primary_key=True)
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


class Outline(Base, written_by="Database.save"):
    """Outlines of architectures, packed for the search of parents."""

    architecture_id: Mapped[BigInt] = foreign_key("architecture.architecture_id", primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    layer_count: Mapped[int]
    parameter_count: Mapped[BigInt]
    packed: Mapped[bytes] = unread()

    architecture: Mapped[Architecture] = one()


def _parentage() -> Any:
    from mmdb.orm.tensor_tables import parentage  # which is made of this class

    return parentage


class Model(Base, written_by="Database.save"):
    """Saved models; a new save under an old name is a new version."""

    __table_args__ = (UniqueConstraint("name", "version"),)

    model_id: Mapped[BigInt] = mapped_column(primary_key=True)
    name: Mapped[str]
    version: Mapped[int]
    approach: Mapped[str]
    parent_id: Mapped[BigInt | None] = foreign_key("model.model_id")
    manifest_id: Mapped[BigInt | None] = foreign_key("manifest.manifest_id")
    pack_id: Mapped[BigInt | None] = foreign_key("tensor.tensor_id")
    definition_id: Mapped[BigInt | None] = foreign_key("definition.definition_id")
    architecture_id: Mapped[BigInt | None] = foreign_key("architecture.architecture_id")
    environment_id: Mapped[BigInt | None] = foreign_key("environment.environment_id")
    weights_hash: Mapped[bytes] = unread()
    tensor_count: Mapped[int]
    byte_count: Mapped[BigInt]
    dataset_id: Mapped[BigInt | None] = foreign_key("dataset.dataset_id")
    candidate_id: Mapped[BigInt | None] = foreign_key("candidate.candidate_id")
    epoch: Mapped[int | None]
    metrics: Mapped[Json]
    reason: Mapped[Json]
    stored_bytes: Mapped[BigInt]
    save_s: Mapped[float]
    created_at: Mapped[datetime]
    dropped_at: Mapped[datetime | None]
    owner: Mapped[str | None]
    calibration: Mapped[Json | None]

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
    members: Mapped[list[ModelMember]] = many("ModelMember.ordinal")
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


class ModelChange(Base, written_by="Database.save"):
    """Tensors of a model that stand in place of its manifest's."""

    model_id: Mapped[BigInt] = foreign_key("model.model_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    tensor_id: Mapped[BigInt] = foreign_key("tensor.tensor_id")

    model: Mapped[Model] = one()
    tensor: Mapped[Tensor] = one()


class ModelMember(Base, written_by="Run.train"):
    """The candidates whose mean a model is, in order; the first is its candidate_id, too."""

    model_id: Mapped[BigInt] = foreign_key("model.model_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt] = foreign_key("candidate.candidate_id")
    epoch: Mapped[int]

    model: Mapped[Model] = one()
    candidate: Mapped[Candidate] = one()


class Recipe(Base, written_by="Database.save"):
    """How to make a model again: its candidate's hops, or a trainer on its parent and dataset."""

    model_id: Mapped[BigInt] = foreign_key("model.model_id", primary_key=True)
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


class RecipeTensor(Base, written_by="Database.save"):
    """Tensors that a recipe starts from beside its parent: optimizer and generator states."""

    model_id: Mapped[BigInt] = foreign_key("model.model_id", primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    tensor_id: Mapped[BigInt] = foreign_key("tensor.tensor_id")

    recipe: Mapped[Recipe] = one("foreign(RecipeTensor.model_id) == Recipe.model_id")
    tensor: Mapped[Tensor] = one()


class Definition(Base, written_by="Database.save"):
    """What it takes to build a model's module, each once."""

    __table_args__ = (UniqueConstraint("definition_hash"),)

    definition_id: Mapped[BigInt] = mapped_column(primary_key=True)
    definition_hash: Mapped[bytes] = unread()
    architecture: Mapped[Json]
    arguments: Mapped[Json]
    input_shape: Mapped[list[int]]
    outputs: Mapped[int]
    named: Mapped[Json | None]

    models: Mapped[list[Model]] = many("Model.model_id")


class Environment(Base, written_by="Database.save"):
    """Software and hardware that models were saved in, each once."""

    __table_args__ = (UniqueConstraint("environment_hash"),)

    environment_id: Mapped[BigInt] = mapped_column(primary_key=True)
    environment_hash: Mapped[bytes] = unread()
    details: Mapped[Json]

    models: Mapped[list[Model]] = many("Model.model_id")


class AliasEvent(Base, written_by="Database.set_alias"):
    """Every move of an alias; its last event says where it is."""

    event_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model: Mapped[str]
    alias: Mapped[str]
    version: Mapped[int | None]
    happened_at: Mapped[datetime]
    author: Mapped[str]

    of_model: Mapped[Model | None] = one(
        "and_(foreign(AliasEvent.model) == Model.name, "
        "foreign(AliasEvent.version) == Model.version)"
    )


class ModelTag(Base, written_by="Database.tag"):
    """Tags of a model, one value for each key."""

    model_id: Mapped[BigInt] = foreign_key("model.model_id", primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    created_at: Mapped[datetime]

    model: Mapped[Model] = one()


class ModelMetric(Base, written_by="Database.log_metric"):
    """Metrics of a model, those of its training among them."""

    model_id: Mapped[BigInt] = foreign_key("model.model_id", primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    dataset: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float]
    created_at: Mapped[datetime]

    model: Mapped[Model] = one()


class Retraining(Base, written_by="Database.retrain"):
    """Runs that retrain a model, and whether what they came to takes its place."""

    run_id: Mapped[BigInt] = foreign_key("run.run_id", primary_key=True)
    model_id: Mapped[BigInt]
    mode: Mapped[str]
    new_model_id: Mapped[BigInt | None]
    metric: Mapped[str | None]
    old_value: Mapped[float | None]
    new_value: Mapped[float | None]
    chance: Mapped[float | None]
    passed: Mapped[bool | None]
    alias: Mapped[str | None]
    reason: Mapped[str | None]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]


class Forgetting(Base, written_by="Database.forget"):
    """Calls of forget: rows that were erased from a dataset and its versions."""

    forgetting_id: Mapped[BigInt] = mapped_column(primary_key=True)
    dataset_id: Mapped[BigInt] = foreign_key("dataset.dataset_id")
    row_count: Mapped[BigInt]
    note: Mapped[str | None]
    author: Mapped[str]
    begun_at: Mapped[datetime]


class ForgettingStep(Base, written_by="Database.forget"):
    """Steps of calls of forget: a thing that the rows had reached, and what became of it."""

    forgetting_id: Mapped[BigInt] = foreign_key("forgetting.forgetting_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    entity: Mapped[str]
    action: Mapped[str]
    row_count: Mapped[BigInt | None]
    before_hash: Mapped[str | None]
    after_hash: Mapped[str | None]
    model_id: Mapped[BigInt | None]
    new_model_id: Mapped[BigInt | None]
    reason: Mapped[str | None]
    done_at: Mapped[datetime | None]


class ModelNote(Base, written_by="Database.note"):
    """What people wrote about a model."""

    note_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model_id: Mapped[BigInt] = foreign_key("model.model_id")
    note: Mapped[str]
    created_at: Mapped[datetime]
    author: Mapped[str]

    model: Mapped[Model] = one()


class Probe(Base, written_by="Database.save_probe"):
    """Layer-by-layer digests of forward and backward passes, to compare later."""

    probe_id: Mapped[BigInt] = mapped_column(primary_key=True)
    name: Mapped[str]
    model_id: Mapped[BigInt | None] = foreign_key("model.model_id")
    summary: Mapped[Json]
    created_at: Mapped[datetime]

    model: Mapped[Model | None] = one()
