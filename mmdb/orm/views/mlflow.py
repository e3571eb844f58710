"""Runs and models in the shape of an MLflow tracking store."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, View


class MlflowExperiments(View):
    """The runs, as MLflow shows experiments."""

    __tablename__ = "mlflow_experiments"

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

    __tablename__ = "mlflow_runs"

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

    __tablename__ = "mlflow_registered_models"

    name: Mapped[str] = mapped_column(primary_key=True)
    creation_time: Mapped[BigInt | None]
    last_updated_time: Mapped[BigInt | None]
    versions: Mapped[BigInt | None]


class MlflowModelVersions(View):
    """The saved models that are not dropped, as MLflow shows versions."""

    __tablename__ = "mlflow_model_versions"

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

    __tablename__ = "mlflow_params"

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str | None]
    run_uuid: Mapped[str] = mapped_column(primary_key=True)
    experiment: Mapped[str | None]


class MlflowMetrics(View):
    """What the candidates reached in each epoch, as MLflow shows metrics."""

    __tablename__ = "mlflow_metrics"

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    timestamp: Mapped[BigInt | None]
    run_uuid: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[BigInt] = mapped_column(primary_key=True)
    is_nan: Mapped[bool | None]
    experiment: Mapped[str | None]
