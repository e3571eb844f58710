"""Runs that freeze layers, on two nodes: features are computed where rows lie, with equal bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import mmdb
from mmdb.api import Database
from tests.cluster import Cluster
from tests.integration.test_features import RUNS, create, features_of, fill, states

pytestmark = pytest.mark.citus

FIXED = {"options": {"order": "fixed"}}
NAMES = [name for name in RUNS if not name.startswith(("budget", "misfit", "orphan"))]


@pytest.fixture(scope="module")
def pair(
    new_citus_database: Callable[[str], str], cluster: Cluster, template: str
) -> Iterator[tuple[Database, Database]]:
    """Yield a database on two nodes and one PostgreSQL with the same datasets and models."""
    url = cluster.create_database("mmdb_beside_features", template)
    with mmdb.connect(new_citus_database("features")) as many, mmdb.connect(url) as one:
        for db in (many, one):
            fill(db)
        yield many, one
    cluster.drop_database("mmdb_beside_features")


@pytest.mark.parametrize("run", NAMES)
def test_a_run_leaves_the_states_of_one_server(pair: tuple[Database, Database], run: str) -> None:
    found = []
    for db in pair:
        summary = create(db, run, **{**RUNS[run], **FIXED}).train(workers=2)
        layers = [(row["layer"], row["candidates"]) for row in features_of(db, run)]
        found.append((summary.failed, layers, states(db, run)))
    assert found[0] == found[1]
    assert found[0][2]
