"""Features in the database: known once, stored whole or not at all, counted and collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch

from mmdb import errors
from mmdb.api import Database, connect
from mmdb.store import stored_features
from mmdb.store.garbage import gc, gc_and_reclaim
from mmdb.store.verify import verify
from tests import run_rows
from tests.feature_rows import KEY, OTHER_KEY, add, blocks, use

NOW = timedelta(0)
COLUMN_KINDS = ("table", "column", "unresolved")


def prepare(db: Database) -> None:
    """Make a dataset of three partitions, a run on it and a candidate; each has number 1."""
    db.sql("CREATE TABLE points AS SELECT i AS x, i % 2 AS y FROM generate_series(1, 40) AS g (i)")
    db.create_dataset("points", "SELECT x, y FROM points", partitions=2, validation=0.25)
    run_rows.add_run(db, "heads", 1, epochs=1, strategy="mop", metric="accuracy")
    run_rows.insert(db, "candidate", run_id=1, ordinal=0, config="{}", seed=0)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield a database with a run, on each engine."""
    with connect(database_url) as opened:
        prepare(opened)
        yield opened


def bytes_of(db: Database) -> int:
    """Return the bytes of all blocks of features."""
    sql = "SELECT coalesce(sum(octet_length(data)), 0) AS n FROM mmdb.feature_block"
    return int(db.sql(sql)[0]["n"])


def bytes_by_feature(db: Database) -> dict[int, int]:
    """Return the bytes of the blocks of features that have some, as they are noted."""
    rows = db.sql(
        "SELECT feature_id, sum(byte_count)::bigint AS n FROM mmdb.feature_part GROUP BY feature_id"
    )
    return {row["feature_id"]: row["n"] for row in rows}


def test_features_are_known_by_their_key(db: Database) -> None:
    first = add(db)
    assert add(db, row_bytes=99) == first  # there already
    other = add(db, OTHER_KEY, seed=2**62, backbone=None, model_id=None, shape=(3, 4, 5))
    assert (other.shape, other.seed, other.backbone) == ((3, 4, 5), 2**62, None)
    assert stored_features.find(db.connection, 1, "", [KEY, b"x" * 32]) == {KEY: first}
    assert stored_features.find(db.connection, 1, "someone", [KEY]) == {}
    assert stored_features.owner_of(db.connection, 1) == ""
    with pytest.raises(errors.RunNotFound):
        stored_features.owner_of(db.connection, 99)


def test_a_partition_is_stored_whole_and_once(db: Database) -> None:
    feature = add(db)
    written = blocks()
    assert list(stored_features.read_blocks(db.connection, feature.feature_id, 1)) == []
    assert stored_features.add_blocks(db.connection, feature.feature_id, 1, written) == 600_000
    assert stored_features.add_blocks(db.connection, feature.feature_id, 1, blocks(3)) == 0
    assert list(stored_features.read_blocks(db.connection, feature.feature_id, 1)) == written
    with pytest.raises(ZeroDivisionError), db.connection.transaction():
        stored_features.add_blocks(db.connection, feature.feature_id, 2, written)
        raise ZeroDivisionError
    parts = stored_features.find_parts(db.connection, [feature.feature_id, 99])
    assert {k: list(v) for k, v in parts.items()} == {feature.feature_id: [1], 99: []}
    assert parts[feature.feature_id][1].row_count == 60
    assert parts[feature.feature_id][1] == stored_features.find_part(
        db.connection, feature.feature_id, 1
    )
    assert bytes_by_feature(db) == {feature.feature_id: 600_000}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            "UPDATE mmdb.feature_block SET digest = digest || digest WHERE ordinal = 5",
            "has changed",
        ),
        ("DELETE FROM mmdb.feature_block WHERE ordinal = 2", "are missing"),
    ],
)
def test_damage_is_found(db: Database, damage: str, reason: str) -> None:
    feature = add(db)
    stored_features.add_blocks(db.connection, feature.feature_id, 1, blocks())
    db.sql(damage)
    with pytest.raises(errors.FeatureCorrupt, match=reason):
        list(stored_features.read_blocks(db.connection, feature.feature_id, 1))
    (check,) = [check for check in verify(db.connection) if check.name == "features"]
    assert not check.ok and "layer2" in check.detail
    stored_features.evict(db.connection, [feature.feature_id])
    assert stored_features.find_part(db.connection, feature.feature_id, 1) is None
    assert stored_features.add_blocks(db.connection, feature.feature_id, 1, blocks()) == 600_000
    (check,) = [check for check in verify(db.connection) if check.name == "features"]
    assert check.ok


def test_blocks_that_nothing_names_are_found_and_in_nobodys_way(db: Database) -> None:
    number = add(db).feature_id
    stored_features.add_blocks(db.connection, number, 1, blocks())
    mends: list[Callable[[], int]] = [
        lambda: stored_features.add_blocks(db.connection, number, 1, blocks(2)),
        lambda: stored_features.drop_features(db.connection, "points"),
        lambda: db.drop_dataset("points", force=True),
    ]
    for mend in mends:
        if not stored_features.find_parts(db.connection, [number])[number]:
            stored_features.add_blocks(db.connection, number, 1, blocks())
        db.sql("DELETE FROM mmdb.feature_part")
        (check,) = [check for check in verify(db.connection) if check.name == "features"]
        assert not check.ok and "layer 'layer2', partition 1" in check.detail
        mend()
        (check,) = [check for check in verify(db.connection) if check.name == "features"]
        assert check.ok


def test_the_worst_error_is_kept(db: Database) -> None:
    feature = add(db, storage="int8")
    for worst, mean in ((0.002, 0.001), (0.004, 0.0005), (0.003, 0.0007)):
        stored_features.note_error(db.connection, feature.feature_id, worst, mean)
    found = stored_features.find(db.connection, 1, "", [KEY])[KEY]
    assert (found.max_error, found.mean_error) == (0.004, 0.001)


def test_runs_note_how_they_get_features(db: Database) -> None:
    feature = add(db)
    stored_features.put_uses(db.connection, 1, [use(feature)])
    again = use(feature, choice="memory", byte_count=5)
    stored_features.put_uses(db.connection, 1, [again])
    assert stored_features.find_uses(db.connection, 1) == {feature.feature_id: again}
    for _ in range(2):
        stored_features.add_seconds(
            db.connection, 1, feature.feature_id, compute_s=1.5, read_s=0.25
        )
    (row,) = db.sql("SELECT compute_s, store_s, read_s FROM mmdb.run_feature")
    assert (row["compute_s"], row["store_s"], row["read_s"]) == (3.0, 0.0, 0.5)
    (candidate,) = run_rows.ids(db, "candidate", "candidate_id")
    for _ in range(2):
        stored_features.put_candidates(db.connection, 1, {candidate: feature.feature_id})
    assert stored_features.find_candidates(db.connection, 1) == {candidate: feature.feature_id}
    assert stored_features.find_of_run(db.connection, 1) == [feature]


def event(db: Database, name: str) -> None:
    """Let the run start, finish or be interrupted."""
    run_rows.insert(db, "run_event", run_id=1, event=name, workers=1)


def test_gc_takes_what_no_run_needs(db: Database) -> None:
    used, unused = add(db), add(db, OTHER_KEY)
    for feature in (used, unused):
        stored_features.add_blocks(db.connection, feature.feature_id, 1, blocks())
    stored_features.put_uses(db.connection, 1, [use(used)])
    assert [
        (f.items, f.bytes, f.goes, f.reason) for f in gc(db.connection) if f.what == "feature"
    ] == [
        (1, 600_000, False, "a run that has not finished uses them"),
        (1, 600_000, False, "a run used them within the grace period"),
    ]
    report = gc_and_reclaim(db.connection, dry_run=False, grace=NOW)
    assert [(f.what, f.items, f.bytes) for f in report.found if f.goes] == [("feature", 1, 600_000)]
    assert bytes_by_feature(db) == {used.feature_id: 600_000}
    event(db, "started")
    event(db, "finished")
    gc(db.connection, dry_run=False, grace=NOW)
    assert bytes_of(db) == 0
    # What they were stays known, and they can be stored again.
    assert stored_features.find_of_run(db.connection, 1) == [used]
    assert stored_features.add_blocks(db.connection, used.feature_id, 1, blocks()) == 600_000


def test_eviction_and_a_dropped_dataset_leave_no_bytes(db: Database) -> None:
    first, second = add(db), add(db, OTHER_KEY)
    for feature in (first, second):
        stored_features.add_blocks(db.connection, feature.feature_id, 1, blocks())
    stored_features.touch(db.connection, [first.feature_id])
    assert stored_features.evict(db.connection, [first.feature_id]) == 600_000
    assert bytes_of(db) == 600_000
    raw = db.sql("SELECT byte_count FROM mmdb.dataset")[0]["byte_count"]
    assert db.drop_dataset("points", force=True) == raw + 600_000
    assert bytes_of(db) == 0
    stored_features.add_blocks(
        db.connection, second.feature_id, 2, blocks()
    )  # a worker that came late
    (found,) = [f for f in gc(db.connection) if f.what == "feature"]
    assert (found.goes, found.reason) == (True, "their dataset was dropped")


def edges(db: Database, entity: str, direction: str, **given: bool) -> set[tuple[str, str, str]]:
    """Return a lineage's edges, without those of columns."""
    rows = db.lineage(entity, direction, **given)
    return {(r["parent"], r["child"], r["via"]) for r in rows if r["kind"] not in COLUMN_KINDS}


def test_lineage_and_views_go_through_features(db: Database) -> None:
    db.save("resnet", torch.nn.Linear(3, 3))
    db.save("best", torch.nn.Linear(3, 4))
    db.sql("UPDATE mmdb.model SET candidate_id = 1, epoch = 0, dataset_id = 1 WHERE name = 'best'")
    feature, other = add(db, model_id=1, backbone="resnet@1"), add(db, OTHER_KEY, layer="layer4")
    stored_features.add_blocks(db.connection, feature.feature_id, 1, blocks())
    stored_features.put_uses(db.connection, 1, [use(feature), use(other, choice="streamed")])
    stored_features.put_candidates(db.connection, 1, {1: feature.feature_id})

    read = {("dataset:points", "feature:1", "layer2")}
    frozen = {("model:resnet@1", "feature:1", "backbone")}
    used = {("feature:1", "candidate:1", "features")}
    kept = {("candidate:1", "checkpoint:1/0", "train"), ("checkpoint:1/0", "model:best@1", "save")}
    run = {("dataset:points", "run:heads", "train"), ("run:heads", "candidate:1", "search")}
    assert edges(db, "best", "up", hops=False) == read | frozen | used | kept | run
    assert read | frozen | used <= edges(db, "candidate:1", "up", hops=True)
    assert edges(db, "feature:1", "up") == read | frozen
    assert edges(db, "feature:1", "down") == used | kept
    assert used <= edges(db, "feature:1", "down", hops=True)
    assert edges(db, "resnet", "down") == frozen | used | kept
    unused = {("dataset:points", "feature:2", "layer4")}
    assert edges(db, "dataset:points", "down") == unused | read | run | used | kept
    with pytest.raises(errors.EntityNotFound):
        db.lineage("feature:99")

    rows = db.sql(
        "SELECT layer, backbone, partitions, stored_partitions, byte_count, runs, candidates"
        " FROM mmdb.feature_overview ORDER BY feature_id"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("layer2", "resnet@1", 3, 1, 600_000, 1, 8),
        ("layer4", "resnet@3", 3, 0, 0, 1, 8),
    ]
    rows = db.sql(
        "SELECT run, layer, choice, candidates, hops, saved_s FROM mmdb.run_features ORDER BY layer"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("heads", "layer2", "stored", 8, 0, 12.5),
        ("heads", "layer4", "streamed", 8, 0, 12.5),
    ]
    (metric,) = db.sql("SELECT value FROM mmdb.metric WHERE name = 'mmdb_feature_bytes'")
    assert metric["value"] == 600_000


def test_sessions_beside_each_other(postgres_url: str) -> None:
    with connect(postgres_url) as one, connect(postgres_url) as two:
        prepare(one)
        feature, other = add(one), add(one, OTHER_KEY)
        for known in (feature, other):
            stored_features.add_blocks(one.connection, known.feature_id, 1, blocks(1))
        with one.connection.transaction():  # what a run begins to use, or stores, is left alone
            stored_features.touch(one.connection, [feature.feature_id])
            stored_features.add_blocks(one.connection, other.feature_id, 2, blocks(1))
            went = gc(two.connection, dry_run=False, grace=NOW)
            assert [f for f in went if f.what == "feature" and f.goes and f.items] == []
        assert set(bytes_by_feature(two)) == {1, 2}
        with ThreadPoolExecutor(1) as pool:  # the same partition twice: the second one waits
            with one.connection.transaction():
                stored_features.add_blocks(one.connection, 1, 3, blocks(2))
                second = pool.submit(stored_features.add_blocks, two.connection, 1, 3, blocks(2))
                waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
                while not (one.sql(waiting) or second.done()):
                    pass
                assert not second.done()
            assert second.result() == 0
            with one.connection.transaction():  # an eviction waits for who stores
                stored_features.add_blocks(one.connection, 1, 2, blocks(2))
                second = pool.submit(stored_features.evict, two.connection, [1])
                while not (one.sql(waiting) or second.done()):
                    pass
                assert not second.done()
            assert second.result() == 500_000
            assert stored_features.add_blocks(one.connection, 1, 3, blocks(2)) == 200_000
            with one.connection.transaction():  # who stores waits for an eviction
                stored_features.evict(one.connection, [1])
                second = pool.submit(stored_features.add_blocks, two.connection, 1, 3, blocks(2))
                while not (one.sql(waiting) or second.done()):
                    pass
                assert not second.done()
            assert second.result() == 200_000
            assert all(check.ok for check in verify(one.connection))
        assert len(list(stored_features.read_blocks(two.connection, 1, 3))) == 2
