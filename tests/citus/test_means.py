"""Runs whose model is a mean, on two nodes: of the best candidates, and of the shards' models."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import mmdb
from mmdb.api import Database
from tests.citus.test_hops import MLP, fill
from tests.cluster import Cluster
from tests.integration.test_means import THINGS, members_of, trained

pytestmark = pytest.mark.citus

Pair = tuple[Database, Database]


@pytest.fixture(scope="module")
def pair(
    new_citus_database: Callable[[str], str], cluster: Cluster, template: str
) -> Iterator[Pair]:
    """Yield a database on two nodes and one PostgreSQL with the same datasets."""
    url = cluster.create_database("mmdb_beside_means", template)
    with mmdb.connect(new_citus_database("means")) as many, mmdb.connect(url) as one:
        for db in (many, one):
            fill(db)
            db.sql(THINGS)
            query, options = "SELECT id, a, b, grade FROM thing", {"roles": {"id": "key"}}
            db.create_dataset("grade", query, label="grade", options=options)
        yield many, one
    cluster.drop_database("mmdb_beside_means")


def test_the_best_candidates_are_averaged_as_on_one_server(pair: Pair) -> None:
    found = []
    for db in pair:
        trained(db, "best", "grade", {"ensemble": 4})
        members = [(row["candidate"], row["epoch"]) for row in members_of(db, "best")]
        found.append((members, bits(db, "best"), db.evaluate("best", "grade")))
    assert found[0] == found[1]
    assert len(found[0][0]) > 1


def test_a_model_of_shards_has_the_bits_of_one_server(pair: Pair) -> None:
    found = []
    for db in pair:
        run = db.create_run(
            "shards", dataset="d", architecture=MLP, search={"space": {"lr": [0.01]}}, epochs=2,
            seed=7, strategy="sisa",
        )  # fmt: skip
        summary = run.train(workers=2)
        shards = [row["candidate"] for row in members_of(db, "shards")]
        found.append((summary.version, summary.hops, shards, bits(db, "shards")))
    assert found[0] == found[1]
    assert len(found[0][2]) == 3


def bits(db: Database, model: str) -> dict[str, list[float]]:
    """Return a model's tensors, whose values float64 holds exactly."""
    state = db.recover(model).state_dict()
    return {name: value.double().flatten().tolist() for name, value in state.items()}
