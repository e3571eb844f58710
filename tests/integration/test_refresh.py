"""Refreshing a dataset: its versions hold what its query returned then."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mmdb
from mmdb import errors
from mmdb.data import ingest
from mmdb.data.dataset import StoredDataset, find_dataset
from mmdb.data.reader import read_columns, read_partition, verify_blocks
from mmdb.data.replay_sample import sample_since, shard_of
from mmdb.data.shared_blocks import StoredBlock, stored_blocks
from mmdb.db.connection import Texts

TABLE = """
    CREATE TABLE sales (
        id integer, a double precision, b integer, c text, y integer, sold timestamp
    )
"""
QUERY = "SELECT id, a, b, c, y FROM sales"


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        database.sql(TABLE)
        yield database


class Rows:
    """Rows of a table that come, change and go."""

    def __init__(self, db: mmdb.Database, seed: int) -> None:
        self.db, self.random, self.next = db, random.Random(seed), 0

    def add(self, count: int) -> None:
        values = []
        for _ in range(count):
            a = "NULL" if self.random.random() < 0.1 else str(self.random.randint(0, 3))
            c = self.random.choice(["'x'", "'y'", "'z'", "NULL"])
            b, y, k = self.random.randint(0, 2), self.random.randint(0, 1), self.next
            at = f"timestamp '2024-01-01' + interval '{k}' minute"
            values.append(f"({k}, {a}, {b}, {c}, {y}, {at})")
            self.next += 1
        self.db.sql(f"INSERT INTO sales VALUES {', '.join(values)}")

    def change(self) -> None:
        k = self.random.randrange(self.next)
        self.db.sql(f"UPDATE sales SET b = b + 1 WHERE id % 17 = {k % 17}")

    def remove(self) -> None:
        k = self.random.randrange(self.next)
        self.db.sql(f"DELETE FROM sales WHERE id % 23 = {k % 23}")


def held(db: mmdb.Database, dataset: StoredDataset) -> Counter[tuple[Any, ...]]:
    """Return a dataset's rows as its blocks have them, with how often each is there."""
    found: Counter[tuple[Any, ...]] = Counter()
    classes = dataset.classes
    assert classes is not None
    for part in dataset.slices:
        rows: list[tuple[Any, ...]] = []
        for given in read_columns(db.connection, part.part_id, dataset.decoding):
            rows += zip(*(_plain(given[name]) for name in ("a", "b", "c")), strict=True)
        labels = read_partition(db.connection, part.part_id, part.content_hash).label_arrays[0]
        assert len(rows) == len(labels) == part.row_count
        found.update((*row, classes[y]) for row, y in zip(rows, labels.tolist(), strict=True))
    return found


def _plain(values: Any) -> list[Any]:
    if isinstance(values, Texts):
        return [values.distinct[place] for place in values.places]
    return [None if np.isnan(value) else float(value) for value in np.asarray(values)]


def asked(db: mmdb.Database) -> Counter[tuple[Any, ...]]:
    return Counter((r["a"], float(r["b"]), r["c"], r["y"]) for r in db.sql(QUERY))


@pytest.mark.parametrize("roles", [{"id": "key"}, {"id": "excluded"}], ids=["key", "no-key"])
def test_versions_hold_what_the_query_returned(db: mmdb.Database, roles: dict[str, str]) -> None:
    for seed in range(4):
        rows, name = Rows(db, seed), f"sales-{seed}"
        rows.add(300)
        db.create_dataset(name, QUERY, partitions=3, seed=seed, options={"roles": roles})
        then = {f"{name}@1": asked(db)}
        for _ in range(4):
            for act in rows.random.sample(["add", "change", "remove"], 2):
                rows.add(40) if act == "add" else getattr(rows, act)()
            before = find_dataset(db.connection, name)
            done = db.refresh_dataset(name)
            after = find_dataset(db.connection, name)
            assert done.name == after.name
            assert done.rows == after.row_count == sum(part.row_count for part in after.slices)
            assert done.added is not None
            gone = (done.deleted or 0) - done.added
            assert after.row_count == before.row_count - gone
            then[after.name] = asked(db)
        for version, expected in then.items():
            assert held(db, find_dataset(db.connection, version)) == expected
        for label, counts in after.class_counts.items():
            train = [part for part in after.slices if part.role == "train"]
            ys = [read_partition(db.connection, p.part_id, p.content_hash) for p in train]
            found = np.concatenate([one.label_arrays[0] for one in ys])
            assert label == "y"
            assert counts == np.bincount(found, minlength=2).tolist()
        db.sql("DELETE FROM sales")


def test_added_changed_and_deleted_are_told_apart_by_key(db: mmdb.Database) -> None:
    Rows(db, 0).add(200)
    db.create_dataset("sales", QUERY, options={"roles": {"id": "key"}})
    db.sql("UPDATE sales SET a = 77 WHERE id < 5")
    db.sql("DELETE FROM sales WHERE id BETWEEN 10 AND 12")
    db.sql("INSERT INTO sales VALUES (1000, 1, 1, 'x', 1, NULL), (1001, 1, 1, 'x', 1, NULL)")
    planned = db.refresh_dataset("sales", dry_run=True)
    assert db.sql("SELECT count(*) AS n FROM mmdb.dataset")[0]["n"] == 1
    done = db.refresh_dataset("sales")
    assert (done.added, done.changed, done.deleted) == (2, 5, 3)
    assert planned == done
    again = db.refresh_dataset("sales")
    assert (again.added, again.changed, again.deleted, again.is_new) == (0, 0, 0, False)
    assert again.version == 2


def test_rows_are_read_from_the_last_value_that_grew(db: mmdb.Database) -> None:
    query = QUERY.replace("y FROM", "y, sold FROM")
    rows = Rows(db, 1)
    rows.add(200)
    db.create_dataset("sales", query, options={"roles": {"id": "key", "sold": "excluded"}})
    rows.add(50)
    assert db.refresh_dataset("sales", grows="sold").added == 50
    db.sql("DELETE FROM sales WHERE id = 3")  # which nobody looks for from now on
    db.sql("UPDATE sales SET a = 9 WHERE id = 249")
    db.sql("INSERT INTO sales SELECT 1000, a, b, c, y, sold FROM sales WHERE id = 249")
    done = db.refresh_dataset("sales", grows="sold")
    assert (done.added, done.changed, done.deleted, done.version) == (1, 1, None, 3)
    assert db.refresh_dataset("sales").deleted == 1
    with pytest.raises(errors.UnknownColumn):
        db.refresh_dataset("sales", grows="nothing")
    db.sql("INSERT INTO sales SELECT 2000, a, b, c, y, sold FROM sales WHERE id = 1000")
    assert db.refresh_dataset("sales", grows="sold").added == 1  # equal to another but for its key
    db.create_dataset("nameless", QUERY.replace("id, ", ""))
    with pytest.raises(errors.InvalidOption, match="no key"):
        db.refresh_dataset("nameless", grows="a")


def test_rows_beyond_the_last_key_are_new_and_old_hashes_are_not_read(
    db: mmdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(added: int, grows: str | None = "id") -> None:
        done = db.refresh_dataset("sales", grows=grows)
        found = find_dataset(db.connection, "sales")
        assert (done.added, done.rows) == (added, found.row_count)
        assert held(db, found) == asked(db)

    rows = Rows(db, 3)
    rows.add(200)
    db.create_dataset("sales", QUERY, partitions=2, options={"roles": {"id": "key"}})
    rows.add(30)
    check(30)  # the first reads everything
    rows.add(40)
    with monkeypatch.context() as patched:
        patched.setattr(StoredBlock, "with_hashes", lambda *_: pytest.fail("hashes were read"))
        check(40)
        check(0)
    rows.add(10)
    check(10, grows=None)  # it says how far the column has grown, too
    rows.add(5)
    check(5)
    db.sql("DELETE FROM sales WHERE id >= 280")
    check(0, grows=None)
    db.sql("INSERT INTO sales VALUES (284, 1, 1, 'x', 1, NULL)")  # a key that is free again
    check(1)
    db.sql("INSERT INTO sales VALUES (281, 1, 1, 'x', 1, NULL)")  # below what was read: missed
    assert db.refresh_dataset("sales", grows="id").added == 0
    check(1, grows=None)


def test_rows_that_come_while_others_are_read_are_read_the_next_time(
    db: mmdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Rows(db, 4)
    rows.add(100)
    db.create_dataset("sales", QUERY, options={"roles": {"id": "key"}})
    gathered = ingest.gather

    def later(*args: Any, **kwargs: Any) -> Any:
        rows.add(7)
        return gathered(*args, **kwargs)

    rows.add(20)
    for at_once, seen in ((20, 120), (7, 127), (7, 134)):
        with monkeypatch.context() as patched:
            patched.setattr("mmdb.data.refresh.gather", later)
            done = db.refresh_dataset("sales", grows="id")
        assert (done.added, done.rows) == (at_once, seen)
    db.refresh_dataset("sales", grows="id")
    assert held(db, find_dataset(db.connection, "sales")) == asked(db)


def test_shares_stay_and_handfuls_make_no_partitions(db: mmdb.Database) -> None:
    rows = Rows(db, 2)
    rows.add(200)
    db.create_dataset("sales", QUERY, partitions=2, validation=0.2)
    for night in range(20):
        rows.add(1)
        assert db.refresh_dataset("sales").version == night + 2
    slices = find_dataset(db.connection, "sales").slices
    assert sum(part.row_count for part in slices if part.role == "validation") == 44
    assert [part.row_count for part in slices if part.role == "train"] == [80, 80, 16]


def test_a_split_by_time_holds_the_last_of_the_new_rows_out(db: mmdb.Database) -> None:
    rows = Rows(db, 3)
    rows.add(100)
    options = {"roles": {"id": "excluded"}, "split": {"by": "time", "column": "sold"}}
    query = QUERY.replace("y FROM", "y, sold FROM")
    db.create_dataset("sales", query, partitions=2, validation=0.2, options=options)
    rows.add(50)
    db.refresh_dataset("sales")
    dataset = find_dataset(db.connection, "sales")
    (part,) = [part for part in dataset.slices if part.role == "validation"]
    held_out = [
        moment
        for given in read_columns(db.connection, part.part_id, dataset.decoding)
        for moment in np.asarray(given["sold"]).tolist()
    ]
    first = min(held_out)
    places = sorted(round((moment - first) / 60) for moment in held_out)
    assert places == [*range(20), *range(60, 70)]
    done = db.refresh_dataset("sales", fit=True)  # now the last of all rows
    anew = find_dataset(db.connection, done.name)
    held_rows = {part.role: part.row_count for part in anew.slices}
    assert (held_rows["validation"], anew.row_count) == (30, 150)


@pytest.mark.parametrize(
    ("kind", "ways"),
    [
        ("timestamptz", ("TimeZone = 'Europe/London'", "DateStyle = 'SQL, DMY'")),
        ("timestamp", ("TimeZone = 'Asia/Tokyo'", "DateStyle = 'German'")),
        ("date", ("TimeZone = 'Asia/Tokyo'", "DateStyle = 'SQL, DMY'")),
        ("bytea", ("TimeZone = 'Asia/Tokyo'", "bytea_output = 'escape'")),
        ("float8", ("TimeZone = 'Asia/Tokyo'", "extra_float_digits = -5")),
        ("interval", ("TimeZone = 'Asia/Tokyo'", "IntervalStyle = 'iso_8601'")),
        ("a_domain", ("TimeZone = 'Asia/Tokyo'", "DateStyle = 'SQL, DMY'")),
    ],
)
@pytest.mark.parametrize("role", ["key", "group"])
def test_no_setting_of_a_session_makes_other_rows(
    db: mmdb.Database, kind: str, ways: tuple[str, str], role: str
) -> None:
    is_postgres = db.connection.engine == "postgres"
    stamp = "CAST('2013-01-01 12:00:00.5+00' AS timestamptz) + i * interval '37 hour'"
    value = {
        "timestamptz": stamp,
        "timestamp": "CAST('2013-01-01' AS timestamp) + i * interval '1 day'",
        "date": "CAST(CAST('2013-01-01' AS date) + i * interval '1 day' AS date)",
        "bytea": "CAST(CAST(i AS text) AS bytea)",
        "float8": "CAST(i AS float8) / 7",
        "interval": "i * interval '1 month' + i * interval '37 minute'",
        "a_domain": f"CAST({stamp} AS a_domain)" if is_postgres else stamp,
    }[kind]
    db.sql("SET TimeZone = 'UTC'")
    if is_postgres:
        db.sql("CREATE DOMAIN a_domain AS timestamptz")
    db.sql(
        f"CREATE TABLE seen AS SELECT i AS id, {value} AS k, i % 7 AS a, i % 2 AS y "
        "FROM generate_series(1, 300) AS g (i)"
    )
    options: dict[str, Any] = {"roles": {"id": "excluded", "k": "key"}}
    if role == "group":
        options = {"roles": {"id": "excluded", "k": "excluded"}}
        options["split"] = {"by": "group", "column": "k"}
    made = db.create_dataset("seen", "SELECT id, k, a, y FROM seen", label="y", options=options)
    for number, way in enumerate(ways[: 2 if is_postgres else 1]):
        db.sql(f"SET {way}")
        before = db.sql(f"SELECT current_setting('{way.partition(' ')[0]}') AS now")
        told = db.refresh_dataset("seen", dry_run=True)
        assert (told.added, told.changed or 0, told.deleted) == (0, 0, 0)
        if is_postgres:
            (row,) = db.sql("SELECT * FROM mmdb.refresh_dataset('seen', dry_run => true)")
            assert (row["added"], row["changed"] or 0, row["deleted"]) == (0, 0, 0)
        assert db.sql(f"SELECT current_setting('{way.partition(' ')[0]}') AS now") == before
        found = db.create_dataset(
            f"again-{number}", "SELECT id, k, a, y FROM seen", label="y", options=options
        )
        assert found.content_hash == made.content_hash


def test_nights_of_one_date_each_are_held_out_by_the_shares(db: mmdb.Database) -> None:
    db.sql("CREATE TABLE stays (id integer, a real, day date, y integer)")
    add = (
        "INSERT INTO stays SELECT i, i % 7, CAST('{day}' AS date), i % 2 "
        "FROM generate_series({first}, {last}) AS g (i)"
    )
    for night in range(10):
        day = f"2013-01-{night + 1:02}"
        db.sql(add.format(day=day, first=100 * night, last=100 * night + 99))
    options = {"roles": {"id": "key"}, "split": {"by": "time", "column": "day", "test": 0.1}}
    query = "SELECT id, a, day, y FROM stays"
    db.create_dataset("stays", query, label="y", validation=0.2, options=options)
    for night in range(10, 20):
        day = f"2013-01-{night + 1:02}"
        db.sql(add.format(day=day, first=100 * night, last=100 * night + 99))
        db.refresh_dataset("stays")
    rows = dict.fromkeys(("train", "validation", "test"), 0)
    for part in find_dataset(db.connection, "stays").slices:
        rows[part.role] += part.row_count
    assert rows == {"train": 1400, "validation": 400, "test": 200}


def test_versions_are_trained_on_and_judged_by_name(db: mmdb.Database) -> None:
    rows = Rows(db, 4)
    rows.add(200)
    db.create_dataset("sales", QUERY, options={"roles": {"id": "key"}})
    rows.add(60)
    rows.remove()
    db.refresh_dataset("sales")
    for dataset, run in (("sales@1", "first"), ("sales", "last"), ("sales@2", "second")):
        db.create_run(run, dataset=dataset, architecture="mlp", epochs=1)
        db.run(run).train()
    rows_of = {
        row["name"]: row["dataset"]
        for row in db.sql(
            "SELECT r.name, d.name AS dataset FROM mmdb.run AS r"
            " INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id"
        )
    }
    assert rows_of == {"first": "sales", "last": "sales@2", "second": "sales@2"}
    states = db.sql(
        "SELECT r.name, h.state_out FROM mmdb.hop AS h"
        " INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id"
        " INNER JOIN mmdb.run AS r ON c.run_id = r.run_id ORDER BY h.ordinal"
    )
    by_run = {
        name: [bytes(s["state_out"]) for s in states if s["name"] == name] for name in rows_of
    }
    assert by_run["last"] == by_run["second"] != by_run["first"]


def test_dropping_a_dataset_takes_its_versions(db: mmdb.Database) -> None:
    rows = Rows(db, 5)
    rows.add(200)
    db.create_dataset("sales", QUERY)
    rows.add(60)
    db.refresh_dataset("sales")
    assert db.drop_dataset("sales") > 0
    for table in ("block", "shared_block"):
        assert db.sql(f"SELECT count(*) AS n FROM mmdb.{table}")[0]["n"] == 0
    db.create_dataset("sales", QUERY)
    assert find_dataset(db.connection, "sales").version == 1


def test_a_version_is_pushed_with_its_rows(installed_duckdb_url: str, postgres_url: str) -> None:
    with mmdb.connect(installed_duckdb_url) as here, mmdb.connect(postgres_url) as there:
        here.sql(TABLE)
        rows = Rows(here, 9)
        rows.add(200)
        here.create_dataset("sales", QUERY)
        rows.add(40)
        rows.remove()
        here.refresh_dataset("sales")
        here.create_run("m", dataset="sales", architecture="mlp", epochs=1).train(workers=1)
        here.push("m", to=postgres_url, data=True, weights="never")
        copied, own = (find_dataset(one.connection, "sales@2") for one in (there, here))
        assert copied.content_hash == own.content_hash
        assert held(there, copied) == held(here, own) == asked(here)


def test_a_query_that_no_longer_fits_changes_nothing(db: mmdb.Database) -> None:
    rows = Rows(db, 6)
    rows.add(200)
    db.create_dataset("sales", QUERY, options={"roles": {"id": "key"}})
    before = db.sql("SELECT count(*) AS n FROM mmdb.partition")
    db.sql("INSERT INTO sales VALUES (500, 1, 1, 'x', 7, NULL)")
    with pytest.raises(errors.DataError, match="class"):
        db.refresh_dataset("sales")
    assert db.refresh_dataset("sales", fit=True, dry_run=True).is_new
    done = db.refresh_dataset("sales", fit=True)
    assert done.name == "sales@2"
    assert find_dataset(db.connection, "sales").classes == (0, 1, 7)
    db.sql("INSERT INTO sales SELECT * FROM sales WHERE id = 9")
    db.sql("UPDATE sales SET a = 55 WHERE id = 9")
    with pytest.raises(errors.DataError, match="one key"):
        db.refresh_dataset("sales")
    db.sql("UPDATE sales SET y = NULL, id = NULL WHERE id = 9")  # some are NULL in a and c
    with pytest.raises(errors.NullValues, match=r"NULLs: y \(2\), id \(2\)\."):
        db.refresh_dataset("sales")
    db.sql("DROP TABLE sales")
    with pytest.raises(errors.QueryError):
        db.refresh_dataset("sales")
    with pytest.raises(errors.DatasetNotFound):
        db.refresh_dataset("nothing")
    for version in ("sales@1", "sales@2"):
        with pytest.raises(errors.InvalidOption, match="one version"):
            db.refresh_dataset(version)
    with pytest.raises(errors.InvalidOption, match="one version"):
        db.drop_dataset("sales@2", force=True)
    assert db.sql("SELECT count(*) AS n FROM mmdb.partition")[0]["n"] == 2 * before[0]["n"]


def test_both_engines_make_the_same_versions(postgres_url: str, installed_duckdb_url: str) -> None:
    hashes = []
    for url in (postgres_url, installed_duckdb_url):
        with mmdb.connect(url) as db:
            db.sql(TABLE)
            rows = Rows(db, 7)
            rows.add(200)
            db.create_dataset("sales", QUERY, options={"roles": {"id": "key"}})
            for _ in range(3):
                rows.add(30)
                rows.change()
                rows.remove()
                db.refresh_dataset("sales")
            hashes.append(
                [find_dataset(db.connection, f"sales@{k}").content_hash for k in (1, 2, 3, 4)]
            )
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == 4


def test_two_sessions_add_nothing_twice(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        db.sql(TABLE)
        rows = Rows(db, 8)
        rows.add(300)
        db.create_dataset("sales", QUERY, options={"roles": {"id": "key"}})
        rows.add(100)
        told: list[str] = []

        def refresh() -> None:
            with mmdb.connect(postgres_url) as other:
                told.append(other.refresh_dataset("sales").name)

        threads = [threading.Thread(target=refresh) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told == ["sales@2"] * 4
        assert held(db, find_dataset(db.connection, "sales")) == asked(db)
        made = db.sql("SELECT name, version FROM mmdb.refresh_dataset('sales')")
        assert made == [{"name": "sales@2", "version": 2}]


def _begin(db: mmdb.Database) -> None:
    """Make a dataset of 200 rows, and 50 more in its table."""
    db.sql(TABLE)
    rows = Rows(db, 9)
    rows.add(200)
    db.create_dataset("sales", QUERY, options={"roles": {"id": "key"}})
    rows.add(50)


def test_rows_that_are_forgotten_while_others_are_read_leave_the_new_version_whole(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mmdb.connect(postgres_url) as db, mmdb.connect(postgres_url) as other:
        _begin(db)
        gathered, forgotten = ingest.gather, list[object]()

        def later(*args: Any, **kwargs: Any) -> Any:
            found = gathered(*args, **kwargs)
            if not forgotten:
                forgotten.append(other.forget("sales", "id < 20"))
                other.sql("DELETE FROM sales WHERE id < 20")
            return found

        monkeypatch.setattr("mmdb.data.refresh.gather", later)
        assert db.refresh_dataset("sales").added == 50
        assert held(db, find_dataset(db.connection, "sales")) == asked(db)
        assert not verify_blocks(db.connection, lambda _: None).wrong


def test_rows_that_are_forgotten_while_others_are_chosen_are_in_no_sample(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mmdb.connect(postgres_url) as db, mmdb.connect(postgres_url) as other:
        _begin(db)
        db.refresh_dataset("sales")
        first, newest = (find_dataset(db.connection, f"sales@{k}") for k in (1, 2))
        read, left = stored_blocks, [10, 20]

        def later(connection: Any, dataset: StoredDataset, part_id: int, **kwargs: Any) -> Any:
            found = read(connection, dataset, part_id, **kwargs)
            if left and part_id == dataset.slices[-1].part_id:
                other.forget("sales", f"id < {30 - left.pop()}")
            return found

        monkeypatch.setattr("mmdb.data.replay_sample.stored_blocks", later)
        shard = shard_of(db.connection, newest, 0, 2)
        sample = sample_since(db.connection, newest, first, 1.0)
        assert not left
        train = [
            part for part in find_dataset(db.connection, "sales").slices if part.role == "train"
        ]
        assert shard.row_count == sum(
            part.row_count for part in shard.slices if part.role != "train"
        ) + sum(part.row_count for part in train[::2])
        assert sample.row_count == find_dataset(db.connection, "sales").row_count
        assert not verify_blocks(db.connection, lambda _: None).wrong
