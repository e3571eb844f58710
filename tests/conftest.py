"""Databases for tests: a fresh one each, on DuckDB or on a throw-away PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Cluster
from tests.server_files import NoServer, find_server

TEMPLATE = "mmdb_template"
_numbers = count(1)


def pytest_report_header() -> list[str]:
    """Return the versions that a result depends on."""
    names = ("torch", "numpy", "duckdb", "pyarrow", "sqlglot", "psycopg")
    try:
        server = find_server()
        postgres = f"postgres {server.version} (PL/Python {server.python_version})"
    except NoServer:
        postgres = "no usable postgres"
    return [", ".join([postgres, *(f"{name} {version(name)}" for name in names)])]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Return the server that all tests share."""
    with Cluster() as running:
        yield running


@pytest.fixture(scope="session")
def template(cluster: Cluster) -> str:
    """Return the name of a database with mmdb installed, to be copied."""
    from mmdb.db.install import install  # here, so that tests without a database need none of it

    url = cluster.create_database(TEMPLATE)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
    install(url)
    return TEMPLATE


@pytest.fixture
def postgres_url(cluster: Cluster, template: str) -> Iterator[str]:
    """Return the URL of a fresh PostgreSQL database with mmdb installed."""
    name = f"mmdb_test_{next(_numbers)}"
    yield cluster.create_database(name, template)
    cluster.drop_database(name)


@pytest.fixture
def duckdb_url(tmp_path: Path) -> str:
    """Return the URL of a DuckDB file that is not there yet."""
    return f"duckdb:///{tmp_path / 'mmdb.duckdb'}"


@pytest.fixture(params=["duckdb", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a fresh database, once on each engine."""
    return str(request.getfixturevalue(f"{request.param}_url"))
