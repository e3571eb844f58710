"""Views for plots, monitors and MLflow, and the keys of all views."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, View


class MetricHistory(View):
    """The metric of each candidate over its epochs and over time, with the best value so far."""

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    epoch: Mapped[int] = mapped_column(primary_key=True)
    validated_at: Mapped[datetime | None]
    metric: Mapped[str | None]
    value: Mapped[float | None]
    best_so_far: Mapped[float | None]


class HopsPerHour(View):
    """Hops that each worker ended in each hour, by run; hours without any have no row."""

    hour: Mapped[datetime] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(primary_key=True)
    node: Mapped[str] = mapped_column(primary_key=True)
    worker: Mapped[str] = mapped_column(primary_key=True)
    hops: Mapped[BigInt | None]
    train_hops: Mapped[BigInt | None]
    row_count: Mapped[BigInt | None]
    busy_s: Mapped[float | None]


class ScheduleOverview(View):
    """Schedules: when each is due next, and how it went last."""

    schedule: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str | None]
    statement: Mapped[str | None]
    every_s: Mapped[float | None]
    starts_at: Mapped[datetime | None]
    next_at: Mapped[datetime | None]
    last_due: Mapped[datetime | None]
    last_outcome: Mapped[str | None]
    last_start: Mapped[datetime | None]
    last_end: Mapped[datetime | None]
    failures: Mapped[int | None]
    done: Mapped[BigInt | None]
    tries: Mapped[BigInt | None]
    message: Mapped[str | None]
    schedule_id: Mapped[BigInt | None]


class ScheduleHistory(View):
    """Runs of schedules, one for each due time that was served."""

    schedule: Mapped[str | None]
    due_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    outcome: Mapped[str | None]
    tries: Mapped[int | None]
    failures: Mapped[int | None]
    sqlstate: Mapped[str | None]
    message: Mapped[str | None]
    schedule_run_id: Mapped[BigInt] = mapped_column(primary_key=True)


class ScoringOverview(View):
    """Columns that models fill in new rows."""

    schema_name: Mapped[str | None]
    table_name: Mapped[str | None]
    column_name: Mapped[str | None]
    key_name: Mapped[str | None]
    model: Mapped[str | None]
    embedding: Mapped[str | None]
    owner: Mapped[str | None]
    created_at: Mapped[datetime | None]
    unscored: Mapped[BigInt | None]
    last_failure: Mapped[datetime | None]
    scoring_id: Mapped[BigInt] = mapped_column(primary_key=True)


class ScoringFailures(View):
    """New rows that were left without a prediction, and why."""

    schema_name: Mapped[str | None]
    table_name: Mapped[str | None]
    column_name: Mapped[str | None]
    model: Mapped[str | None]
    row_count: Mapped[BigInt | None]
    row_key: Mapped[str | None]
    sqlstate: Mapped[str | None]
    message: Mapped[str | None]
    failed_at: Mapped[datetime | None]
    scoring_failure_id: Mapped[BigInt] = mapped_column(primary_key=True)


class StorageOverview(View):
    """What each model takes in the database, and what sharing tensors and encoding them saved: the
    three add up to its bytes.
    """

    model: Mapped[str | None]
    version: Mapped[int | None]
    approach: Mapped[str | None]
    created_at: Mapped[datetime | None]
    tensors: Mapped[int | None]
    byte_count: Mapped[BigInt | None]
    stored_bytes: Mapped[BigInt | None]
    shared_bytes: Mapped[BigInt | None]
    encoded_away_bytes: Mapped[BigInt | None]
    model_id: Mapped[BigInt] = mapped_column(primary_key=True)


class RunCost(View):
    """What each run took of its workers, and what that cost where a price is set."""

    run: Mapped[str] = mapped_column(primary_key=True)
    dataset: Mapped[str | None]
    strategy: Mapped[str | None]
    workers: Mapped[int | None]
    hops: Mapped[BigInt | None]
    worker_s: Mapped[float | None]
    compute_s: Mapped[float | None]
    overhead_s: Mapped[float | None]
    wait_s: Mapped[float | None]
    bytes_moved: Mapped[BigInt | None]
    seconds: Mapped[float | None]
    price_per_worker_hour: Mapped[float | None]
    cost: Mapped[float | None]
    created_at: Mapped[datetime | None]


class ZooHits(View):
    """How often each model was taken as a parent, by day; days without a hit have no row."""

    day: Mapped[datetime] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    hits: Mapped[BigInt | None]
    hits_so_far: Mapped[BigInt | None]


class _Sample(View):
    """The columns of every view of samples."""

    __abstract__ = True

    name: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str | None]
    help: Mapped[str | None]
    label: Mapped[str | None]
    label_value: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]


class Metric(_Sample):
    """What mmdb does, as samples for a monitor."""


class ServerMetric(_Sample):
    """What the server holds and does for mmdb, as samples for a monitor."""


class WorkerStatus(View):
    """The slots of worker processes, and what each is doing now."""

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


class MlflowExperiments(View):
    """The runs, as MLflow shows experiments."""

    experiment_id: Mapped[BigInt] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    lifecycle_stage: Mapped[str | None]
    creation_time: Mapped[BigInt | None]
    last_update_time: Mapped[BigInt | None]
    dataset: Mapped[str | None]
    metric: Mapped[str | None]
    strategy: Mapped[str | None]
    epochs: Mapped[int | None]


class MlflowRuns(View):
    """The candidates, as MLflow shows runs."""

    run_uuid: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    experiment_id: Mapped[BigInt | None]
    status: Mapped[str | None]
    start_time: Mapped[BigInt | None]
    end_time: Mapped[BigInt | None]
    lifecycle_stage: Mapped[str | None]
    experiment: Mapped[str | None]
    candidate: Mapped[int | None]
    error: Mapped[str | None]


class MlflowRegisteredModels(View):
    """The names of the saved models, as MLflow shows registered models."""

    name: Mapped[str] = mapped_column(primary_key=True)
    creation_time: Mapped[BigInt | None]
    last_updated_time: Mapped[BigInt | None]
    versions: Mapped[BigInt | None]


class MlflowModelVersions(View):
    """The saved models that are not dropped, as MLflow shows versions."""

    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    creation_time: Mapped[BigInt | None]
    last_updated_time: Mapped[BigInt | None]
    current_stage: Mapped[str | None]
    source: Mapped[str | None]
    run_id: Mapped[str | None]
    status: Mapped[str | None]
    dataset: Mapped[str | None]
    approach: Mapped[str | None]
    parent: Mapped[str | None]
    byte_count: Mapped[BigInt | None]


class MlflowParams(View):
    """What the candidates were configured with, as MLflow shows params."""

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str | None]
    run_uuid: Mapped[str] = mapped_column(primary_key=True)
    experiment: Mapped[str | None]


class MlflowMetrics(View):
    """What the candidates reached in each epoch, as MLflow shows metrics."""

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    timestamp: Mapped[BigInt | None]
    run_uuid: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[BigInt] = mapped_column(primary_key=True)
    is_nan: Mapped[bool | None]
    experiment: Mapped[str | None]


class ViewKey(View):
    """The keys of views: what is unique in them, and what refers to which other one."""

    view_name: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[int] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    column_name: Mapped[str | None]
    kind: Mapped[str | None]
    refers_to: Mapped[str | None]
    refers_column: Mapped[str | None]
