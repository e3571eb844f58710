"""MLflow's model registry on PostgreSQL, its artifacts in a local folder."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from torch import nn


class Registry:
    """A registry in a database and a folder of its own."""

    def __init__(self, url: str, folder: Path, mlflow: Any) -> None:
        self._url, self._folder, self._mlflow = url, folder, mlflow

    def save(self, name: str, module: nn.Module) -> None:
        """Log a module and register it as the next version of a model.

        The requirements are given: else MLflow loads each model in a process of its own to find
        them, which takes seconds.
        """
        with self._mlflow.start_run():
            self._mlflow.pytorch.log_model(
                module,
                name="model",
                registered_model_name=name,
                serialization_format="pickle",
                pip_requirements=["torch"],
            )

    def recover(self, name: str, version: int) -> nn.Module:
        """Return a version of a model."""
        module: nn.Module = self._mlflow.pytorch.load_model(f"models:/{name}/{version}")
        return module

    def stored_bytes(self) -> tuple[int, int]:
        """Return the bytes of the artifact files and of the database."""
        files = sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return files, int(row[0])


@contextlib.contextmanager
def registry(server_url: str, folder: Path) -> Iterator[Registry]:
    """Yield a registry in a new database of a PostgreSQL server, dropped afterwards."""
    name = f"bench_mlflow_{secrets.token_hex(4)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        url = _other_database(server_url, name)
        try:
            yield Registry(url, folder, _started(url, folder))
        finally:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            connection.execute(drop)


def _started(url: str, folder: Path) -> Any:
    """Return MLflow set up to use the database and the folder; it makes its tables at once."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow = importlib.import_module("mlflow")
    importlib.import_module("mlflow.pytorch")
    for noisy in ("mlflow", "mlflow.pytorch", "mlflow.store", "mlflow.tracking", "alembic"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    driver = url.replace("postgresql://", "postgresql+psycopg://", 1)
    mlflow.set_tracking_uri(driver)
    mlflow.set_registry_uri(driver)
    experiment = mlflow.create_experiment("bench", artifact_location=folder.as_uri())
    mlflow.set_experiment(experiment_id=experiment)
    return mlflow


def _other_database(url: str, name: str) -> str:
    head, _, _ = url.rpartition("/")
    return f"{head}/{name}"
