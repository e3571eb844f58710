"""Datasets that grow and forget rows, on two nodes: the bits of one server, and no byte is left."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.data.dataset import find_dataset
from mmdb.db.citus import places
from tests.citus_cluster import CitusCluster
from tests.cluster import Cluster
from tests.integration import test_sisa as sisa
from tests.integration.test_forgetting import (
    NUMBER,
    QUERY,
    TABLE,
    TEXT,
    check,
    create,
    held,
    traces,
    train,
    weights,
)

pytestmark = pytest.mark.citus

Pair = tuple[Database, Database]
SECOND = {"space": {"lr": [1e-6, 0.05]}}
#: The last of the rows that come at each refresh, and those that go.
CHANGES = [(150, "id % 29 = 3"), (300, "id % 31 = 4"), (300, "id < 40")]
WAITING = """
    SELECT 1 FROM pg_locks WHERE NOT granted AND relation::regclass::text LIKE 'mmdb.block_%'
"""
_NUMBERS = count(1)


@pytest.fixture
def url(citus: CitusCluster, new_citus_database: Callable[[str], str]) -> str:
    """Return the URL by which an admin reaches a database on two nodes with a table."""
    name = f"living_{next(_NUMBERS)}"
    owned = new_citus_database(name)
    with psycopg.connect(owned, autocommit=True) as owner:
        with suppress(psycopg.errors.DuplicateObject):
            password = citus.coordinator.password or ""  # which servers know
            owner.execute(f"CREATE ROLE keeper LOGIN PASSWORD '{password}' IN ROLE mmdb_admin")
        owner.execute("GRANT CREATE ON SCHEMA public TO keeper")
    keeper = owned.replace("//postgres:", "//keeper:")
    with mmdb.connect(keeper) as db:
        db.sql(TABLE)
    return keeper


@pytest.fixture
def pair(url: str, cluster: Cluster, template: str) -> Iterator[Pair]:
    """Yield a database on two nodes and one PostgreSQL with the same table."""
    other = cluster.create_database("beside_living", template)
    with mmdb.connect(url) as many, mmdb.connect(other) as one:
        one.sql(TABLE)
        yield many, one
    cluster.drop_database("beside_living")


def told(ids: set[int]) -> str:
    return f"id IN ({', '.join(map(str, sorted(ids)))})"


def nodes_of(db: Database, dataset: str) -> list[tuple[str, ...]]:
    """Return the role of each partition, its node, and the node of the first block it reads."""
    first = "SELECT s.source_id FROM mmdb.shared_block s WHERE s.part_id = {} AND s.ordinal = 0"
    found = []
    for part in find_dataset(db.connection, dataset).slices:
        rows = db.sql(first.format(part.part_id))
        source = rows[0]["source_id"] if rows else part.part_id
        where = places(db.connection, [part.part_id, source])
        found.append((part.role, *(min(where[one]) for one in (part.part_id, source))))
    return found


def reached(steps: list[Any]) -> list[tuple[Any, ...]]:
    """Return what `forget` did, without the numbers of partitions, which nodes decide on."""
    return [
        (
            row["entity"].split(":")[0 if row["action"] == "erase" else -1],
            row["action"],
            row["row_count"],
        )
        for row in steps
    ]


def test_versions_are_those_of_one_server_and_lie_evenly_beside_their_blocks(pair: Pair) -> None:
    many = pair[0]
    for db in pair:
        db.sql("CREATE TABLE all_points AS SELECT * FROM points")
        db.sql("DELETE FROM points WHERE id > 140")
        create(db, "points")
    for version, (last, gone) in enumerate(CHANGES):
        found = []
        for db in pair:
            db.sql(f"INSERT INTO points SELECT * FROM all_points WHERE id <= {last} AND id > "
                   "(SELECT max(id) FROM points)")  # fmt: skip
            db.sql(f"DELETE FROM points WHERE {gone}")
            db.sql(f"UPDATE points SET a = 0.5 WHERE id % 37 = {version}")
            planned = db.refresh_dataset("points", dry_run=True)
            done = db.refresh_dataset("points")
            assert planned == done
            dataset = find_dataset(db.connection, "points")
            assert set[int]().union(*held(db, "points")) == {r["id"] for r in db.sql(QUERY)}
            check(db)
            found.append((done, dataset.content_hash, dataset.class_counts))
        assert found[0] == found[1]
        lie = nodes_of(many, "points")
        for roles in ({"train"}, {"train", "validation"}):
            on_node = Counter(node for role, node, _ in lie if role in roles)
            assert len(on_node) == 2 and max(on_node.values()) - min(on_node.values()) <= 1
        assert all(node == source for role, node, source in lie if role == "train")


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("rows", {"search": SECOND}),
        ("partition", {"search": SECOND, "strategy": "model_average", "epochs": 2}),
        ("rows", {"per": "c", "search": {}}),
    ],
)
def test_models_are_made_again_to_the_bits_of_one_server(
    pair: Pair, kind: str, given: dict[str, Any]
) -> None:
    found = []
    for db in pair:
        create(db, "points")
        train(db, "m", "points", **given)
        best = db.run("m").leaderboard()[0]["candidate_id"]
        db.save_candidate(best, "recipe", approach="provenance")
        parts = held(db, "points")
        gone = parts[1] if kind == "partition" else set(random.Random(5).sample(range(1, 301), 9))
        steps = db.forget("points", told(gone), note="request 12")
        assert not set[int]().union(*held(db, "points")) & gone
        check(db)
        trained = db.remake(workers=2)
        found.append((reached(steps), trained, weights(db, "m"), weights(db, "recipe")))
    assert found[0] == found[1]


def test_a_shard_that_forgets_is_made_again_alone_to_the_bits_of_one_server(pair: Pair) -> None:
    found = []
    for db in pair:
        sisa.create(db, "points")
        sisa.begin(db, "m", "points").train(workers=2)
        parts = held(db, "points")
        gone = set(sorted(parts[1] | parts[4])[::9])
        steps = reached(db.forget("points", told(gone)))
        assert db.remake(workers=2) == 1
        found.append((steps, [weights(db, name) for name in ("m", *sisa.SHARDS)]))
    assert found[0] == found[1]


def test_a_model_is_retrained_to_the_bits_of_one_server(pair: Pair) -> None:
    found = []
    for db in pair:
        db.sql("CREATE TABLE later AS SELECT * FROM points WHERE id > 260")
        db.sql("DELETE FROM points WHERE id > 260")
        create(db, "points")
        train(db, "m", "points", epochs=3)
        db.sql("INSERT INTO points SELECT * FROM later")
        done = db.retrain("m@1", workers=2)
        assert done["new_model"] == "m@2"
        db.forget("points", told({7, 8, 270}))
        db.remake(workers=2)
        found.append(db.sql("SELECT name, weights_hash FROM mmdb.model ORDER BY name, version"))
    assert found[0] == found[1]


# -- nothing is left -------------------------------------------------------------------


def cached(citus: CitusCluster) -> dict[int, set[Path]]:
    """Return the files that each server keeps in its cache of rows, features and models."""
    return {
        server.port: {
            path for path in server.directory.glob("mmdb-cache-*/*") if path.name != "states"
        }
        for server in citus.servers
    }


def test_no_byte_of_the_rows_is_left_on_any_node(citus: CitusCluster, url: str) -> None:
    owned = url.replace("//keeper:", "//postgres:")
    before = {path for paths in cached(citus).values() for path in paths}
    for path in before:
        path.unlink()
    with mmdb.connect(url) as db, mmdb.connect(owned) as owner:
        db.sql(f"UPDATE points SET c = '{TEXT}', f = {NUMBER}, y = 'no' WHERE id = 42")
        fits = {"c": {"kind": "index", "min_count": 1}, "f": "passthrough"}
        create(db, "points", transforms=fits)
        train(db, "m", "points", epochs=2)
        db.evaluate("m", "points")
        db.evaluate("m", f"{QUERY} WHERE id < 50", by="c")
        assert all(cached(citus).values())
        folders = {server.port: server.directory for server in citus.servers}
        assert traces(owner, citus.coordinator.directory) >= {"block", "transform", "evaluation"}
        db.forget("points", "id = 42")
        assert not any(cached(citus).values())
        for folder in folders.values():
            assert traces(owner, folder) == set()
        db.remake(workers=2)
        for folder in folders.values():
            assert traces(owner, folder) == set()


# -- nodes that are lost ---------------------------------------------------------------


@pytest.mark.parametrize("call", ["forget", "refresh"])
def test_a_node_that_is_killed_meanwhile_leaves_nothing_half_done(
    citus: CitusCluster, url: str, call: str
) -> None:
    with mmdb.connect(url) as db:
        create(db, "points")
        train(db, "m", "points")
        db.sql("INSERT INTO points SELECT id + 300, f + 300, a, b, c, y FROM points WHERE id < 250")

        def act(db: Database) -> object:
            if call == "forget":
                return db.forget("points", told({*range(1, 60)}))
            return db.refresh_dataset("points")

        def said(db: Database) -> object:
            return (
                held(db, "points"),
                db.sql("SELECT name, row_count, content_hash FROM mmdb.dataset ORDER BY name"),
                db.sql("SELECT part_id, content_hash FROM mmdb.partition ORDER BY part_id"),
                db.sql("SELECT status FROM mmdb.run_progress"),
                db.sql("SELECT * FROM mmdb.forgetting_step"),
            )

        before = said(db)
        node, name = citus.nodes[0], url.rpartition("/")[2]
        with mmdb.connect(url) as other, closing(psycopg.connect(node.url(name))) as holder:
            holder.execute("SET citus.enable_manual_changes_to_shards TO on")
            shards = holder.execute(
                "SELECT shard_name FROM citus_shards WHERE table_name = 'mmdb.block'::regclass"
                " AND nodeport = %s", [node.port],
            ).fetchall()  # fmt: skip
            holder.execute(f"LOCK TABLE {', '.join(shard for (shard,) in shards)} IN SHARE MODE")
            with ThreadPoolExecutor(1) as pool:
                done = pool.submit(act, other)
                while not holder.execute(WAITING).fetchall():
                    assert not done.done(), done.result()
                node.kill()
                with pytest.raises(errors.MmdbError) as refused:
                    done.result(60)
        with pytest.raises(errors.NodeLost):  # nor while it is away
            act(db)
        node.start()
        assert said(db) == before
        check(db)
        act(db)
        assert said(db) != before
        check(db)
        assert isinstance(refused.value, errors.NodeLost)
