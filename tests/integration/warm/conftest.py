"""Databases with dataset `d` and the model `parent` on it: made once on each engine, copied."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import mmdb
from mmdb.api import Database
from tests.cluster import Cluster
from tests.warm_runs import add_parent

_numbers = count(1)


@pytest.fixture(scope="session")
def duckdb_parent(installed_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file, to be copied."""
    path = tmp_path_factory.mktemp("parent") / "mmdb.duckdb"
    shutil.copy(installed_file, path)
    with mmdb.connect(f"duckdb:///{path}") as opened:
        add_parent(opened)
    return path


@pytest.fixture(scope="session")
def postgres_parent(cluster: Cluster, template: str) -> str:
    """Return the name of a database, to be copied."""
    name = "mmdb_warm_parent"
    with mmdb.connect(cluster.create_database(name, template)) as opened:
        add_parent(opened)
    return name


@pytest.fixture
def duckdb_copy(duckdb_parent: Path, tmp_path: Path) -> str:
    """Return the URL of a fresh file."""
    shutil.copy(duckdb_parent, tmp_path / "mmdb.duckdb")
    return f"duckdb:///{tmp_path / 'mmdb.duckdb'}"


@pytest.fixture
def postgres_copy(cluster: Cluster, postgres_parent: str) -> Iterator[str]:
    """Yield the URL of a fresh database."""
    name = f"mmdb_warm_{next(_numbers)}"
    yield cluster.create_database(name, postgres_parent)
    cluster.drop_database(name)


@pytest.fixture(params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Yield a fresh database, once on each engine."""
    with mmdb.connect(str(request.getfixturevalue(f"{request.param}_copy"))) as opened:
        yield opened
