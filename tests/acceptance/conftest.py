"""Databases with the tables `digits` and `penguins`, which examples of README.md and docs/ read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import mmdb
from mmdb.cli.demo import load_digits
from tests.acceptance.pages import PASSWORD, WORKER
from tests.cluster import Cluster
from tests.real_tables import load_real_table

DIGITS, SHOP = "mmdb_digits", "mmdb_shop"  # databases


def load(url: str) -> None:
    """Create the tables that examples read."""
    with mmdb.connect(url) as db:
        load_digits(db)
        load_real_table(db, "penguins")


@pytest.fixture(scope="session")
def digits_database(cluster: Cluster, template: str) -> str:
    """Return the name of a database with the digits, to be copied."""
    load(cluster.create_database(DIGITS, template))
    return DIGITS


@pytest.fixture(scope="session")
def digits_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a DuckDB file with the digits, to be copied."""
    path = tmp_path_factory.mktemp("digits") / "zoo.duckdb"
    load(f"duckdb:///{path}")
    return path


@pytest.fixture
def shop_url(digits_database: str, cluster: Cluster) -> Iterator[str]:
    """Yield the URL of a database with the digits, whose server knows the workers' password."""
    cluster.keep_password(WORKER, PASSWORD)
    url = cluster.create_database(SHOP, digits_database)
    yield url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {WORKER}".encode())
    cluster.drop_database(SHOP)
