"""Datasets on both engines: the same content, and refusals that change nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mmdb
from mmdb import errors
from mmdb.data import node_cache
from mmdb.data.dataset import find_dataset, find_decoding
from mmdb.data.reader import ensure_partition, read_partition
from mmdb.data.registration import create_dataset, drop_dataset

TABLES = ("dataset", "dataset_column", "transform", "dataset_source", "partition", "block")
ROWS = 500


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        fill(database)
        yield database


def fill(db: mmdb.Database, *, backwards: bool = False) -> None:
    """Make table `sample`, equal on both engines but for the order of its rows."""
    postgres = db.connection.engine == "postgres"
    raw = "decode(lpad(to_hex(i), 8, '0'), 'hex')" if postgres else None
    raw = raw or "unhex(lpad(lower(hex(i)), 8, '0'))"
    db.sql(
        f"""
        CREATE TABLE sample AS
        SELECT
            i::integer AS id,
            (i / 7.0)::real AS a,
            (i::double precision / 3) AS d,
            (i * 0.37)::numeric(12, 4) AS price,
            i % 3 = 0 AS flag,
            CASE i % 4 WHEN 0 THEN 'grün' WHEN 1 THEN 'red' ELSE 'Blue' END AS color,
            ARRAY[i, i * 2, -i]::real[] AS v,
            {raw} AS raw,
            (i % 5)::integer AS y,
            CASE WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END AS parity,
            (i * 0.5)::double precision AS price_d
        FROM generate_series(0, {ROWS - 1}) AS g (i)
        ORDER BY i {"DESC" if backwards else ""}
        """
    )


def counts(db: mmdb.Database) -> dict[str, int]:
    found = {}
    for table in TABLES:
        (row,) = db.sql(f"SELECT count(*) AS n FROM mmdb.{table}")
        found[table] = int(row["n"])
    return found


QUERIES = {
    "numbers": ("SELECT a, d, price, flag, id, y FROM sample", "y"),
    "text label": ("SELECT a, color, parity FROM sample", "parity"),
    "tensor": ("SELECT v, y FROM sample", "y"),
    "bytes": ("SELECT raw, flag FROM sample", "flag"),
    "regression": ("SELECT a, color, v, raw, price FROM sample", "price"),
    "copies": ("SELECT y AS a, y FROM sample", "y"),
}
#: How the content hashes begin, which no later version may change.
HASHES = {
    "numbers": "4134f9b155ab0909",
    "text label": "6decebf59da26d5a",
    "tensor": "4652ef40d8e63bf4",
    "bytes": "2c3a9eecba095d18",
    "regression": "b92de2d39d5ce626",
    "copies": "1386b901338bcfb4",
}


def test_content_is_the_same_on_both_engines_in_any_order(
    duckdb_url: str, postgres_url: str
) -> None:
    found: dict[str, list[Any]] = {case: [] for case in QUERIES}
    for url, backwards in ((duckdb_url, False), (postgres_url, True)):
        with mmdb.connect(url) as db:
            fill(db, backwards=backwards)
            for case, (query, label) in QUERIES.items():
                name = case.replace(" ", "_")
                made = create_dataset(db.connection, name, query, label=label, seed=5)
                dataset = find_dataset(db.connection, name)
                hashes = [
                    (p.role, p.ordinal, p.row_count, p.content_hash) for p in dataset.partitions
                ]
                found[case].append((made.content_hash, dataset.decoding, hashes))
    for case, (one, other) in found.items():
        assert one == other, case
        assert one[0].hex().startswith(HASHES[case])


def test_the_server_makes_the_same_content_as_the_client(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db)
        for k, (query, label) in enumerate(QUERIES.values()):
            outside = create_dataset(db.connection, f"outside{k}", query, label=label)
            (inside,) = db.sql(
                "SELECT content_hash FROM mmdb.create_dataset(%(name)s, %(q)s, label => %(label)s)",
                {"name": f"inside{k}", "q": query, "label": label},
            )
            assert inside["content_hash"] == outside.content_hash.hex(), query


def test_rows_come_back_once_each_and_decoded(db: mmdb.Database) -> None:
    query = "SELECT id, color, v, raw, y FROM sample"
    options = {"transforms": {"id": "passthrough"}}
    made = create_dataset(db.connection, "d", query, partitions=3, validation=0.1, options=options)
    dataset = find_dataset(db.connection, "d")
    assert (made.rows, made.partitions, made.bytes) == (ROWS, 3, dataset.byte_count)
    assert [(p.role, p.row_count) for p in dataset.partitions] == [
        ("train", 150),
        ("train", 150),
        ("train", 150),
        ("validation", 50),
    ]
    assert dataset.columns[1].transform is not None
    assert dataset.columns[1].transform.categories == ("Blue", "grün", "red")
    assert (dataset.input_shape, dataset.classes) == ((1 + 3 + 3 + 4,), (0, 1, 2, 3, 4))
    assert find_decoding(db.connection, dataset.dataset_id) == dataset.decoding
    parts = [read_partition(db.connection, p.part_id, p.content_hash) for p in dataset.partitions]
    x = np.concatenate([x for x, _ in parts])
    y = np.concatenate([y for _, y in parts])
    ids = x[:, 0].astype(int)
    assert sorted(ids.tolist()) == list(range(ROWS))
    assert not np.array_equal(ids, np.sort(ids))
    np.testing.assert_array_equal(y, ids % 5)
    np.testing.assert_array_equal(x[:, 2], ids % 4 == 0)
    np.testing.assert_array_equal(x[:, 4:7], np.stack([ids, ids * 2, -ids], 1))
    np.testing.assert_array_equal(x[:, 10], (ids % 256).astype(np.float32) / np.float32(255))


def test_the_seed_changes_the_order_and_the_hash(db: mmdb.Database) -> None:
    hashes = {
        create_dataset(db.connection, f"d{seed}", "SELECT a, y FROM sample", seed=seed).content_hash
        for seed in (0, 1, -5)
    }
    assert len(hashes) == 3
    again = create_dataset(db.connection, "again", "SELECT a, y FROM sample", seed=1)
    assert again.content_hash in hashes


def test_sources_are_recorded(db: mmdb.Database) -> None:
    create_dataset(
        db.connection, "d", "SELECT a + d AS s, y FROM sample WHERE id > 3;", validation=0
    )
    rows = db.sql("SELECT table_name, column_name, output_name FROM mmdb.dataset_source")
    assert {tuple(row.values()) for row in rows} == {
        ("sample", "a", "s"),
        ("sample", "d", "s"),
        ("sample", "y", "y"),
        ("sample", "id", None),
    }


def test_a_shape_becomes_the_input_shape(db: mmdb.Database) -> None:
    options = {"shape": [1, 2, 2]}
    create_dataset(db.connection, "d", "SELECT raw, y FROM sample", options=options)
    dataset = find_dataset(db.connection, "d")
    part = dataset.partitions[0]
    x, _ = read_partition(db.connection, part.part_id, part.content_hash).plain
    assert dataset.input_shape == (1, 2, 2)
    assert dataset.options == options
    assert x.shape == (part.row_count, 1, 2, 2)


def test_doubles_below_float32_become_zero(db: mmdb.Database) -> None:
    query = "SELECT d * 1e-300 AS tiny, d, y FROM sample"
    options = {"transforms": {"*": "passthrough"}}
    create_dataset(db.connection, "d", query, validation=0, partitions=1, options=options)
    part = find_dataset(db.connection, "d").partitions[0]
    x, _ = read_partition(db.connection, part.part_id, part.content_hash).plain
    assert not x[:, 0].any()
    assert x[:, 1].any()


LONG = "SELECT a, y FROM sample"

REFUSED: list[tuple[str, dict[str, Any], type[errors.MmdbError], str]] = [
    ("SELECT a FROM sample; SELECT y FROM sample", {}, errors.NotOneStatement, "2 statements"),
    ("DELETE FROM sample RETURNING *", {}, errors.NotASelect, "DELETE"),
    ("INSERT INTO sample (y) VALUES (1)", {}, errors.NotASelect, "INSERT"),
    ("SELECT a, y FROM sample FOR UPDATE", {}, errors.NotASelect, "FOR UPDATE"),
    ("SELECT * FROM mmdb.dataset", {}, errors.NotASelect, "schema mmdb"),
    ("SELECT a, y FROM (", {}, errors.QueryError, "line 1"),
    ("SELECT * FROM nowhere", {}, errors.UnknownTable, "nowhere"),
    ("SELECT nothing, y FROM sample", {}, errors.UnknownColumn, "nothing"),
    ("SELECT sample.nothing, y FROM sample", {}, errors.UnknownColumn, "nothing"),
    (LONG, {"label": "z"}, errors.UnknownColumn, "'z'"),
    ("SELECT nofunction(a) AS a, y FROM sample", {}, errors.QueryFailed, "nofunction"),
    (
        "SELECT CASE WHEN id % 100 > 0 THEN a END AS a, color, NULLIF(y, 4) AS y FROM sample",
        {},
        errors.NullValues,
        r"NULLs: y \(100\)",
    ),
    (
        "SELECT CASE WHEN id < 9 THEN ARRAY[1, NULL]::real[] ELSE ARRAY[1, 2]::real[] END AS v, y"
        " FROM sample",
        {},
        errors.NullValues,
        r"v \(9\)",
    ),
    (
        "SELECT CASE WHEN id = 400 THEN ARRAY[1]::real[] ELSE v END AS v, y FROM sample",
        {},
        errors.RaggedArray,
        "'v'",
    ),
    (
        "SELECT CASE WHEN id < 7 THEN 'NaN'::real ELSE a END AS a, y FROM sample",
        {},
        errors.NotFinite,
        r"a \(7 rows\)",
    ),
    (
        "SELECT CASE WHEN id < 7 THEN 1e300::double precision ELSE d END AS d, y FROM sample",
        {"options": {"transforms": {"d": "passthrough"}}},
        errors.NotFinite,
        r"d \(7 rows\)",
    ),
    (
        "SELECT CASE WHEN id = 7 THEN ARRAY[1e300]::double precision[]"
        " ELSE ARRAY[d]::double precision[] END AS v, y FROM sample",
        {},
        errors.NotFinite,
        "v",
    ),
    (
        "SELECT (id + 2000000000) * 2 AS a, y FROM sample",
        {},
        errors.QueryFailed,
        "(?i)out of range",
    ),
    ("SELECT a, 3 AS y FROM sample", {}, errors.OneClass, "3"),
    ("SELECT a, y FROM sample WHERE id < 5", {"partitions": 5}, errors.TooFewRows, "5 rows"),
    ("SELECT a, y FROM sample", {"partitions": ROWS}, errors.TooFewRows, "500 partitions"),
    ("SELECT a, y FROM sample WHERE id < 0", {}, errors.TooFewRows, "no rows"),
    ("SELECT a, y FROM sample", {"validation": 0.0001}, errors.TooFewRows, "validation"),
    ("SELECT row(1, 2) AS pair, y FROM sample", {}, errors.UnsupportedType, "'pair'"),
    ("SELECT id::text AS t, y FROM sample", {"options": {"max_categories": 9}},
     errors.TooManyCategories, "'t'"),
    ("SELECT a, id FROM sample", {"label": "id", "options": {"max_classes": 9}},
     errors.TooManyCategories, "'id'"),
    (LONG, {"options": {"colour": 1}}, errors.InvalidOption, "colour"),
    (LONG, {"options": {"shape": [2]}}, errors.InvalidOption, "2"),
    (LONG, {"partitions": 0}, errors.InvalidOption, "partitions"),
    (LONG, {"validation": 1.0}, errors.InvalidOption, "validation"),
    (LONG, {"validation": float("nan")}, errors.InvalidOption, "validation"),
    (LONG, {"seed": 2**63}, errors.InvalidOption, "seed"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "arguments", "error", "named"), REFUSED)
def test_bad_input_is_refused_by_name_and_changes_nothing(
    db: mmdb.Database,
    query: str,
    arguments: dict[str, Any],
    error: type[errors.MmdbError],
    named: str,
) -> None:
    before = counts(db)
    with pytest.raises(error, match=named) as raised:
        create_dataset(db.connection, "d", query, **arguments)
    assert type(raised.value) is error
    assert counts(db) == before
    create_dataset(db.connection, "d", LONG)  # the session is of use still


def test_the_server_refuses_by_the_same_class(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db)
        for query, arguments, error, named in REFUSED:
            if arguments:
                continue
            with pytest.raises(error, match=named):
                db.sql("SELECT * FROM mmdb.create_dataset('d', %(query)s)", {"query": query})
        assert not any(counts(db).values())


def test_a_function_that_writes_is_refused_by_postgres(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db)
        db.sql("CREATE SEQUENCE ticket")
        query = "SELECT nextval('ticket')::real AS a, y FROM sample"
        with pytest.raises(errors.NotASelect, match="read-only"):
            create_dataset(db.connection, "d", query)
        create_dataset(db.connection, "d", LONG)


@pytest.mark.parametrize("name", ["", "a b", "x" * 201, "a;b", "a@b"])
def test_a_name_with_other_characters_is_refused(db: mmdb.Database, name: str) -> None:
    with pytest.raises(errors.InvalidName):
        create_dataset(db.connection, name, LONG)


def test_a_taken_name_is_refused_until_its_dataset_is_dropped(db: mmdb.Database) -> None:
    made = create_dataset(db.connection, "d", LONG)
    with pytest.raises(errors.AlreadyExists):
        create_dataset(db.connection, "d", LONG)
    assert drop_dataset(db.connection, "d") == made.bytes
    assert find_dataset(db.connection, "d").dropped
    assert counts(db)["block"] == 0
    with pytest.raises(errors.DatasetNotFound):
        drop_dataset(db.connection, "d")
    create_dataset(db.connection, "d", LONG)
    assert not find_dataset(db.connection, "d").dropped


def test_unknown_datasets_and_partitions_are_not_found(db: mmdb.Database) -> None:
    with pytest.raises(errors.DatasetNotFound):
        find_dataset(db.connection, "d")
    with pytest.raises(errors.DatasetNotFound):
        find_decoding(db.connection, 7)
    with pytest.raises(errors.PartitionNotFound):
        ensure_partition(db.connection, 7, bytes(32))


def test_a_partition_of_a_dropped_dataset_cannot_be_read(db: mmdb.Database) -> None:
    create_dataset(db.connection, "d", LONG)
    part = find_dataset(db.connection, "d").partitions[0]
    drop_dataset(db.connection, "d")
    with pytest.raises(errors.DatasetDropped):
        ensure_partition(db.connection, part.part_id, part.content_hash)


@pytest.mark.parametrize("change", ["data", "digest", "delete", "both"])
def test_damaged_blocks_are_found(db: mmdb.Database, change: str) -> None:
    create_dataset(db.connection, "d", LONG)
    part = find_dataset(db.connection, "d").partitions[0]
    where = f"WHERE part_id = {part.part_id}"
    other = f"WHERE part_id = {part.part_id + 1}"
    if change == "delete":
        db.sql(f"DELETE FROM mmdb.block {where}")
    else:
        columns = ["data", "digest"] if change == "both" else [change]
        for column in columns:
            (row,) = db.sql(f"SELECT {column} AS v FROM mmdb.block {other} AND ordinal = 0")
            mark = "%(v)s" if db.connection.engine == "postgres" else "$v"
            db.sql(
                f"UPDATE mmdb.block SET {column} = {mark} {where} AND ordinal = 0", {"v": row["v"]}
            )
    with pytest.raises(errors.BlockCorrupt):
        ensure_partition(db.connection, part.part_id, part.content_hash)
    with pytest.raises(node_cache.NotCached):
        node_cache.map(part.content_hash)


def test_create_dataset_loads_no_torch() -> None:
    code = "import sys, mmdb.data.registration, mmdb.data.reader; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_slice_has_its_share_of_the_copies_of_a_row(db: mmdb.Database) -> None:
    query = (
        "SELECT i % 3 AS a, i % 2 AS b, i % 23 % 5 = 0 AS y FROM generate_series(1, 2400) AS g (i)"
    )
    shares = []
    for seed in range(5):
        db.create_dataset(f"copies-{seed}", query, label="y", validation=0.2, seed=seed)
        counts = find_dataset(db.connection, f"copies-{seed}").class_counts["y"]
        shares.append(counts[1] / sum(counts))
    (all_rows,) = db.sql(f"SELECT avg(y::integer)::double precision AS share FROM ({query}) AS q")
    # Of 1,920 rows by chance, less what of 2,400 is left: five deviations.
    assert max(abs(share - all_rows["share"]) for share in shares) < 0.025
    assert len(set(shares)) > 1


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("1e9 + 3 * (i % 101)", "varies by 300 about"),
        ("1000000 + 0.01 * (i % 101)", "varies by 1 about"),
        ("0.1 + 0.000000001 * (i % 101)", "varies by 1e-07 about"),
        ("120000000000000000 + (i % 7)", "varies by 6 about"),
        ("16777216 + 2 * (i % 2)", None),  # float32 has both
        ("1e9 + 3e5 * (i % 101)", None),
        ("0.1 + 0 * i", None),
        ("0 * i", None),
    ],
)
def test_a_label_whose_spread_float32_rounds_away_is_refused(
    db: mmdb.Database, label: str, said: str | None
) -> None:
    query = f"SELECT i % 7 AS a, {label} AS y FROM generate_series(1, 400) AS g (i)"
    options = {"task": "regression"}
    if said is None:
        assert db.create_dataset("kept", query, options=options).rows == 400
        return
    with pytest.raises(errors.DataError, match=said) as raised:
        db.create_dataset("rounded", query, options=options)
    (term,) = re.findall(r'"y" (- [0-9.]+) AS', raised.value.hint)
    shifted = query.replace(f"{label} AS", f"{label} {term} AS")
    assert db.create_dataset("shifted", shifted, options=options).rows == 400
