"""Tables of tensors, and of where models come from: parents, transfers, origins, predictions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import UniqueConstraint, and_, func, select, union
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, BigInts, Json, foreign_key, keyed, many, one, unread
from mmdb.orm.model_tables import Model, ModelChange

if TYPE_CHECKING:
    from mmdb.orm.model_tables import Model
    from mmdb.orm.run_tables import Candidate


class Tensor(Base, written_by="Database.save"):
    """Content-addressed tensors; the same bytes are one row."""

    __table_args__ = (UniqueConstraint("tensor_hash"),)

    tensor_id: Mapped[BigInt] = mapped_column(primary_key=True)
    tensor_hash: Mapped[bytes] = unread()
    dtype: Mapped[str]
    shape: Mapped[BigInts]
    byte_count: Mapped[BigInt]
    minimum: Mapped[float | None]
    maximum: Mapped[float | None]
    mean: Mapped[float | None]
    deviation: Mapped[float | None]
    zeros: Mapped[BigInt | None]
    nans: Mapped[BigInt | None]
    created_at: Mapped[datetime]
    owner: Mapped[str | None]

    encoding: Mapped[Encoding | None] = one("Tensor.tensor_id == foreign(Encoding.tensor_id)")
    chunks: Mapped[list[TensorChunk]] = many(
        "TensorChunk.ordinal", "Tensor.tensor_id == foreign(TensorChunk.tensor_id)"
    )
    entries: Mapped[list[ManifestTensor]] = many(
        "(ManifestTensor.manifest_id, ManifestTensor.ordinal)"
    )


class Encoding(Base, written_by="Database.save"):
    """How a tensor lies in its chunks; small tensors have none, they lie in their model's pack."""

    tensor_id: Mapped[BigInt] = foreign_key("tensor.tensor_id", primary_key=True)
    base_id: Mapped[BigInt | None] = foreign_key("tensor.tensor_id")
    word: Mapped[int]
    chunk_bytes: Mapped[int]
    chunks: Mapped[int]
    stored_bytes: Mapped[BigInt]

    tensor: Mapped[Tensor] = one("foreign(Encoding.tensor_id) == Tensor.tensor_id")
    base: Mapped[Tensor | None] = one("foreign(Encoding.base_id) == Tensor.tensor_id")


class TensorChunk(Base, written_by="Database.save"):
    """The bytes of tensors, each chunk encoded by itself."""

    tensor_id: Mapped[BigInt] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    codec: Mapped[int]
    digest: Mapped[bytes] = unread()
    data: Mapped[bytes] = unread()

    tensor: Mapped[Tensor] = one("foreign(TensorChunk.tensor_id) == Tensor.tensor_id")


class Manifest(Base, written_by="Database.save"):
    """Lists of tensors by path, which models share; see model_change."""

    manifest_id: Mapped[BigInt] = mapped_column(primary_key=True)
    created_at: Mapped[datetime]
    owner: Mapped[str | None]

    entries: Mapped[list[ManifestTensor]] = many("ManifestTensor.ordinal")
    models: Mapped[list[Model]] = many("Model.model_id")


class ManifestTensor(Base, written_by="Database.save"):
    """The tensors of a manifest, in the order of the state dict."""

    manifest_id: Mapped[BigInt] = foreign_key("manifest.manifest_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str]
    tensor_id: Mapped[BigInt] = foreign_key("tensor.tensor_id")
    kind: Mapped[str]
    trainable: Mapped[bool]
    tied_to: Mapped[int | None]
    layout: Mapped[Json | None]

    manifest: Mapped[Manifest] = one()
    tensor: Mapped[Tensor] = one()


class ZooEvent(Base, written_by="Database.zoo_admit"):
    """What became of models in the zoo, with reasons: the last but hits says whether it is in."""

    event_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model_id: Mapped[BigInt] = foreign_key("model.model_id")
    event: Mapped[str]
    reason: Mapped[str]
    by_rule: Mapped[bool]
    happened_at: Mapped[datetime]

    model: Mapped[Model] = one()


class Transfer(Base, written_by="Database.warm_start"):
    """Warm starts: tensors carried over from a parent to a candidate, or a module elsewhere."""

    transfer_id: Mapped[BigInt] = mapped_column(primary_key=True)
    parent_id: Mapped[BigInt | None] = foreign_key("model.model_id")
    parent_candidate_id: Mapped[BigInt | None]
    parent_state: Mapped[bytes | None] = unread()
    candidate_id: Mapped[BigInt | None]
    model_id: Mapped[BigInt | None]
    similarity: Mapped[float]
    coverage: Mapped[float]
    options: Mapped[Json]
    reason: Mapped[str]
    match_s: Mapped[float]
    transfer_s: Mapped[float]
    created_at: Mapped[datetime]

    parent: Mapped[Model | None] = one("foreign(Transfer.parent_id) == Model.model_id")
    parent_candidate: Mapped[Candidate | None] = one(
        "foreign(Transfer.parent_candidate_id) == Candidate.candidate_id"
    )
    candidate: Mapped[Candidate | None] = one(
        "foreign(Transfer.candidate_id) == Candidate.candidate_id"
    )
    model: Mapped[Model | None] = one("foreign(Transfer.model_id) == Model.model_id")
    tensors: Mapped[list[TransferTensor]] = many("TransferTensor.ordinal")


class TransferTensor(Base, written_by="Database.warm_start"):
    """Where each tensor of a warm-started child came from."""

    transfer_id: Mapped[BigInt] = foreign_key("transfer.transfer_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str]
    parent_path: Mapped[str | None]
    operator: Mapped[str]
    fraction: Mapped[float]
    reason: Mapped[str | None]

    transfer: Mapped[Transfer] = one()


class WarmStart(Base, written_by="Run.train"):
    """What candidates of runs with a warm start begin with, decided at their first hop, and why."""

    candidate_id: Mapped[BigInt] = foreign_key("candidate.candidate_id", primary_key=True)
    transfer_id: Mapped[BigInt | None] = foreign_key("transfer.transfer_id")
    state_hash: Mapped[bytes | None] = unread()
    lr_scale: Mapped[float]
    lr_epochs: Mapped[int]
    reason: Mapped[str]
    match_s: Mapped[float]
    decided_at: Mapped[datetime]

    candidate: Mapped[Candidate] = one()
    transfer: Mapped[Transfer | None] = one()


class Prediction(Base, written_by="Database.predict_into"):
    """Predictions of a model that were written to a table."""

    prediction_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model_id: Mapped[BigInt] = foreign_key("model.model_id")
    schema_name: Mapped[str]
    table_name: Mapped[str]
    key_name: Mapped[str]
    query: Mapped[str]
    row_count: Mapped[BigInt]
    seconds: Mapped[float]
    embedding: Mapped[str | None]
    author: Mapped[str]
    predicted_at: Mapped[datetime]

    model: Mapped[Model] = one()
    sources: Mapped[list[PredictionSource]] = many("PredictionSource.ordinal")


class PredictionSource(Base, written_by="Database.predict_into"):
    """Tables and columns that a prediction's query reads."""

    prediction_id: Mapped[BigInt] = foreign_key("prediction.prediction_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    schema_name: Mapped[str | None]
    table_name: Mapped[str]
    column_name: Mapped[str | None]
    output_name: Mapped[str | None]
    via: Mapped[str | None]
    resolution: Mapped[str]

    prediction: Mapped[Prediction] = one()


class Evaluation(Base, written_by="Database.evaluate"):
    """Calls of evaluate: a model on a dataset, or on the rows of a query."""

    evaluation_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model_id: Mapped[BigInt] = foreign_key("model.model_id")
    dataset_id: Mapped[BigInt | None] = foreign_key("dataset.dataset_id")
    slice: Mapped[str | None]
    query: Mapped[str | None]
    row_count: Mapped[BigInt]
    seconds: Mapped[float]
    author: Mapped[str]
    evaluated_at: Mapped[datetime]
    figures: Mapped[Json | None]

    model: Mapped[Model] = one()
    metrics: Mapped[list[EvaluationMetric]] = many("EvaluationMetric.ordinal")
    sources: Mapped[list[EvaluationSource]] = many("EvaluationSource.ordinal")


class EvaluationMetric(Base, written_by="Database.evaluate"):
    """What evaluate measured: of all rows, and of those with a value of a column."""

    evaluation_id: Mapped[BigInt] = foreign_key("evaluation.evaluation_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    metric: Mapped[str]
    by_name: Mapped[str | None]
    by_value: Mapped[str | None]
    row_count: Mapped[BigInt]
    value: Mapped[float]
    low: Mapped[float | None]
    high: Mapped[float | None]

    evaluation: Mapped[Evaluation] = one()


class EvaluationSource(Base, written_by="Database.evaluate"):
    """Tables and columns that an evaluation's query reads."""

    evaluation_id: Mapped[BigInt] = foreign_key("evaluation.evaluation_id", primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    schema_name: Mapped[str | None]
    table_name: Mapped[str]
    column_name: Mapped[str | None]
    output_name: Mapped[str | None]
    via: Mapped[str | None]
    resolution: Mapped[str]

    evaluation: Mapped[Evaluation] = one()


class DriftCheck(Base, written_by="Database.drift"):
    """What drift found, column by column: the last 100 calls of each model."""

    model_id: Mapped[BigInt] = foreign_key("model.model_id", primary_key=True)
    checked_at: Mapped[datetime] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    column_name: Mapped[str]
    role: Mapped[str]
    row_count: Mapped[BigInt]
    psi: Mapped[float | None]
    distance: Mapped[float | None]
    p_value: Mapped[float]
    nulls_before: Mapped[float | None]
    nulls_now: Mapped[float | None]
    unseen: Mapped[float | None]
    value_before: Mapped[float | None]
    value_now: Mapped[float | None]
    drifted: Mapped[bool]
    author: Mapped[str]

    model: Mapped[Model] = one()


class ModelOrigin(Base, written_by="Database.import_model"):
    """Where a model came from that was not made in this database."""

    model_id: Mapped[BigInt] = foreign_key("model.model_id", primary_key=True)
    kind: Mapped[str]
    source: Mapped[str]
    format: Mapped[str | None]
    digest: Mapped[bytes | None] = unread()
    happened_at: Mapped[datetime]

    model: Mapped[Model] = one()


_entry, _change = ManifestTensor.__table__, ModelChange.__table__
_model, _transfer = Model.__table__, Transfer.__table__

#: Pairs of models, the second made of the first.
parentage = union(
    select(_model.c.parent_id.label("parent"), _model.c.model_id.label("child")).where(
        _model.c.parent_id.is_not(None)
    ),
    select(_transfer.c.parent_id, _transfer.c.model_id).where(
        _transfer.c.parent_id.is_not(None), _transfer.c.model_id.is_not(None)
    ),
    select(_transfer.c.parent_id, _model.c.model_id)
    .join(_model, _model.c.candidate_id == _transfer.c.candidate_id)
    .where(_transfer.c.parent_id.is_not(None)),
).subquery("parentage")


class ModelTensor(Base, written_by="Database.save"):
    """A tensor of a model: what its manifest says, but for what stands in its place."""

    __table__ = (
        select(
            _model.c.model_id,
            _entry.c.ordinal,
            _entry.c.path,
            _entry.c.kind,
            _entry.c.trainable,
            func.coalesce(_change.c.tensor_id, _entry.c.tensor_id).label("tensor_id"),
        )
        .join(_entry, _entry.c.manifest_id == _model.c.manifest_id)
        .outerjoin(
            _change,
            and_(_change.c.model_id == _model.c.model_id, _change.c.ordinal == _entry.c.ordinal),
        )
        .where(_entry.c.kind.in_(["parameter", "buffer"]))
        .subquery("model_tensor")
    )
    __mapper_args__ = keyed(__table__.c.model_id, __table__.c.ordinal)

    if TYPE_CHECKING:
        model_id: Mapped[BigInt]
        ordinal: Mapped[int]
        path: Mapped[str]
        kind: Mapped[str]
        trainable: Mapped[bool]
        tensor_id: Mapped[BigInt]

    tensor: Mapped[Tensor] = one("foreign(ModelTensor.tensor_id) == Tensor.tensor_id")
