"""Views of models, of the zoo of parents and of predictions."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, BigInts, Json, View


class ModelOverview(View):
    """The saved models, dropped ones too."""

    model: Mapped[str | None]
    version: Mapped[int | None]
    dataset: Mapped[str | None]
    run: Mapped[str | None]
    candidate_id: Mapped[BigInt | None]
    epoch: Mapped[int | None]
    metrics: Mapped[Json | None]
    architecture: Mapped[Json | None]
    arguments: Mapped[Json | None]
    tensors: Mapped[int | None]
    byte_count: Mapped[BigInt | None]
    created_at: Mapped[datetime | None]
    approach: Mapped[str | None]
    parent: Mapped[str | None]
    stored_bytes: Mapped[BigInt | None]
    save_s: Mapped[float | None]
    reason: Mapped[Json | None]
    nodes: Mapped[int | None]
    parameters: Mapped[BigInt | None]
    dropped_at: Mapped[datetime | None]
    model_id: Mapped[BigInt] = mapped_column(primary_key=True)
    calibration: Mapped[Json | None]
    members: Mapped[BigInt | None]


class ModelLineage(View):
    """From each model to its parents, run, dataset, tables and columns."""

    model: Mapped[str | None] = mapped_column(primary_key=True)
    version: Mapped[int | None] = mapped_column(primary_key=True)
    run: Mapped[str | None] = mapped_column(primary_key=True)
    candidate_id: Mapped[BigInt | None] = mapped_column(primary_key=True)
    epoch: Mapped[int | None] = mapped_column(primary_key=True)
    dataset: Mapped[str | None] = mapped_column(primary_key=True)
    table_name: Mapped[str | None] = mapped_column(primary_key=True)
    column_name: Mapped[str | None] = mapped_column(primary_key=True)
    output_name: Mapped[str | None] = mapped_column(primary_key=True)
    approach: Mapped[str | None] = mapped_column(primary_key=True)
    parent: Mapped[str | None] = mapped_column(primary_key=True)
    warm_parent: Mapped[str | None] = mapped_column(primary_key=True)
    similarity: Mapped[float | None] = mapped_column(primary_key=True)
    coverage: Mapped[float | None] = mapped_column(primary_key=True)


class TensorStorage(View):
    """The tensors of each model, with their statistics and how they lie in the database; a small
    one has no chunks of its own.
    """

    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str | None]
    kind: Mapped[str | None]
    trainable: Mapped[bool | None]
    tied_to: Mapped[int | None]
    dtype: Mapped[str | None]
    shape: Mapped[BigInts | None]
    byte_count: Mapped[BigInt | None]
    stored_bytes: Mapped[BigInt | None]
    chunks: Mapped[int | None]
    chunk_bytes: Mapped[int | None]
    base_id: Mapped[BigInt | None]
    minimum: Mapped[float | None]
    maximum: Mapped[float | None]
    mean: Mapped[float | None]
    deviation: Mapped[float | None]
    zeros: Mapped[BigInt | None]
    nans: Mapped[BigInt | None]
    created_at: Mapped[datetime | None]
    tensor_id: Mapped[BigInt | None]


class AliasHistory(View):
    """Every move of every alias, and who moved it; the version is null where it was taken away."""

    model: Mapped[str | None]
    alias: Mapped[str | None]
    version: Mapped[int | None]
    happened_at: Mapped[datetime | None]
    author: Mapped[str | None]
    event_id: Mapped[BigInt] = mapped_column(primary_key=True)


class ModelAlias(View):
    """Where each alias is now."""

    model: Mapped[str] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int | None]
    since: Mapped[datetime | None]
    author: Mapped[str | None]


class TagOverview(View):
    """The tags of the models."""

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str | None]
    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    created_at: Mapped[datetime | None]


class MetricOverview(View):
    """The metrics of the models; the dataset is empty where it was not said."""

    metric: Mapped[str] = mapped_column(primary_key=True)
    dataset: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    created_at: Mapped[datetime | None]


class RetrainingOverview(View):
    """Models that were retrained, and whether what came of it took their place."""

    run: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str | None]
    new_model: Mapped[str | None]
    dataset: Mapped[str | None]
    mode: Mapped[str | None]
    metric: Mapped[str | None]
    old_value: Mapped[float | None]
    new_value: Mapped[float | None]
    chance: Mapped[float | None]
    passed: Mapped[bool | None]
    alias: Mapped[str | None]
    reason: Mapped[str | None]
    created_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class ForgettingOverview(View):
    """Things that forgotten rows had reached, with what became of each."""

    forgetting_id: Mapped[BigInt] = mapped_column(primary_key=True)
    dataset: Mapped[str | None]
    step: Mapped[int] = mapped_column(primary_key=True)
    entity: Mapped[str | None]
    action: Mapped[str | None]
    row_count: Mapped[BigInt | None]
    before_hash: Mapped[str | None]
    after_hash: Mapped[str | None]
    new_model: Mapped[str | None]
    reason: Mapped[str | None]
    note: Mapped[str | None]
    author: Mapped[str | None]
    begun_at: Mapped[datetime | None]
    done_at: Mapped[datetime | None]


class NoteOverview(View):
    """What people wrote about the models."""

    model: Mapped[str | None]
    version: Mapped[int | None]
    note: Mapped[str | None]
    created_at: Mapped[datetime | None]
    author: Mapped[str | None]
    note_id: Mapped[BigInt] = mapped_column(primary_key=True)


class Zoo(View):
    """The models that are not dropped, and whether they are offered as parents."""

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


class PredictionOverview(View):
    """Predictions and embeddings that were written to tables, one row a call of predict_into or
    embed_into.
    """

    prediction_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model: Mapped[str | None]
    version: Mapped[int | None]
    schema_name: Mapped[str | None]
    table_name: Mapped[str | None]
    key_name: Mapped[str | None]
    query: Mapped[str | None]
    row_count: Mapped[BigInt | None]
    seconds: Mapped[float | None]
    embedding: Mapped[str | None]
    author: Mapped[str | None]
    predicted_at: Mapped[datetime | None]


class EvaluationOverview(View):
    """Metrics that evaluate measured, one row each: of all rows, or of those with a value of a
    column.
    """

    evaluation_id: Mapped[BigInt] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    model: Mapped[str | None]
    version: Mapped[int | None]
    dataset: Mapped[str | None]
    slice: Mapped[str | None]
    query: Mapped[str | None]
    metric: Mapped[str | None]
    by_name: Mapped[str | None]
    by_value: Mapped[str | None]
    row_count: Mapped[BigInt | None]
    value: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    author: Mapped[str | None]
    evaluated_at: Mapped[datetime | None]


class GroupOverview(View):
    """What each group of a model per group was measured by when it was saved, one row a group."""

    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[int] = mapped_column(primary_key=True)
    column_name: Mapped[str | None]
    group_value: Mapped[str | None]
    train_rows: Mapped[BigInt | None]
    train_loss: Mapped[float | None]
    held_out_rows: Mapped[BigInt | None]
    held_out_loss: Mapped[float | None]
    metric: Mapped[str | None]
    value: Mapped[float | None]
    maximize: Mapped[bool | None]


class EvaluationFigures(View):
    """Figures that reports draw of evaluate and importance, one row a call."""

    evaluation_id: Mapped[BigInt] = mapped_column(primary_key=True)
    model: Mapped[str | None]
    version: Mapped[int | None]
    dataset: Mapped[str | None]
    slice: Mapped[str | None]
    query: Mapped[str | None]
    row_count: Mapped[BigInt | None]
    figures: Mapped[Json | None]
    author: Mapped[str | None]
    evaluated_at: Mapped[datetime | None]


class DriftOverview(View):
    """What drift found of the last 100 calls of each model, one row a column."""

    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    checked_at: Mapped[datetime] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    column_name: Mapped[str | None]
    role: Mapped[str | None]
    row_count: Mapped[BigInt | None]
    psi: Mapped[float | None]
    distance: Mapped[float | None]
    p_value: Mapped[float | None]
    nulls_before: Mapped[float | None]
    nulls_now: Mapped[float | None]
    unseen: Mapped[float | None]
    value_before: Mapped[float | None]
    value_now: Mapped[float | None]
    drifted: Mapped[bool | None]
    drifted_since: Mapped[datetime | None]
    author: Mapped[str | None]


class OriginOverview(View):
    """Models that were not made in this database, and where they came from."""

    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str | None]
    source: Mapped[str | None]
    format: Mapped[str | None]
    happened_at: Mapped[datetime | None]
