"""A database for the runs of each module, by where hops compute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mmdb
from mmdb.api import Database
from tests.cluster import Cluster


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest) -> str:
    """Return where hops compute: duckdb, server or client."""
    return str(request.param)


@pytest.fixture(scope="module")
def empty(
    place: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """Yield a database with mmdb in it."""
    if place == "duckdb":
        with mmdb.connect(f"duckdb:///{tmp_path_factory.mktemp('devices')}/mmdb.duckdb") as opened:
            yield opened
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    name = f"mmdb_devices_{place}"
    url = cluster.create_database(name, request.getfixturevalue("template"))
    with mmdb.connect(url) as opened:
        yield opened
    cluster.drop_database(name)
