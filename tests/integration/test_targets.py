"""Datasets of several labels and inputs, and of texts as tokens, on both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.data import node_cache
from mmdb.data.arrays import Decoded
from mmdb.data.dataset import StoredDataset, find_dataset
from mmdb.data.decoding import Target
from mmdb.data.reader import ensure_partition, read_partition
from tests.multimodal import Reviews

ROWS = 300
QUERY = "SELECT id, a, raw, review, y, price, tags FROM sample"
OPTIONS: dict[str, Any] = {
    "labels": ["price", "tags"],
    "inputs": {"review": ["review"], "meta": ["id", "a"], "raw": ["raw"]},
    "shapes": {"raw": [2, 1, 2]},
    "tokenize": {"review": {"function": "letters", "length": 8}},
    "transforms": {"*": "passthrough", "price": "passthrough"},
}


def fill(db: mmdb.Database) -> None:
    """Make table `sample`, equal on both engines, and register its tokenizer."""
    postgres = db.connection.engine == "postgres"
    raw = "decode(lpad(to_hex(i), 8, '0'), 'hex')" if postgres else None
    raw = raw or "unhex(lpad(lower(hex(i)), 8, '0'))"
    db.sql(
        f"""
        CREATE TABLE sample AS
        SELECT
            i::integer AS id,
            (i / 7.0)::real AS a,
            {raw} AS raw,
            CASE i % 3 WHEN 0 THEN 'quite good' WHEN 1 THEN 'bad' ELSE '' END AS review,
            (i % 3)::integer AS y,
            (i * 0.5)::double precision AS price,
            ARRAY[i % 2, (i % 4 > 1)::integer, 1]::real[] AS tags
        FROM generate_series(0, {ROWS - 1}) AS g (i)
        """
    )
    db.register_function("letters", "tests.multimodal:letters", "tokenizer")


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        fill(database)
        yield database


def read(db: mmdb.Database, dataset: StoredDataset) -> list[Decoded]:
    return [read_partition(db.connection, p.part_id, p.content_hash) for p in dataset.partitions]


def test_every_input_and_label_comes_back_decoded(db: mmdb.Database) -> None:
    db.create_dataset("d", QUERY, options=OPTIONS)
    dataset = find_dataset(db.connection, "d")
    assert dataset.targets == (
        Target(name="y", task="classification", size=3),
        Target(name="price", task="regression", size=1),
        Target(name="tags", task="multilabel", size=3),
    )
    assert dataset.input_shape == {"meta": (2,), "raw": (2, 1, 2), "review": (8,)}
    assert dataset.input_dtype == {"meta": "float32", "raw": "float32", "review": "int64"}
    parts = read(db, dataset)
    for part in parts:
        assert isinstance(part.inputs, dict)
        assert list(part.inputs) == ["meta", "raw", "review"]
        assert [array.dtype.str for array in part.input_arrays] == ["<f4", "<f4", "<i8"]
        assert [array.dtype.str for array in part.label_arrays] == ["<i8", "<f4", "<f4"]
    meta, raw, review = (
        np.concatenate([part.input_arrays[place] for part in parts]) for place in range(3)
    )
    y, price, tags = (
        np.concatenate([part.label_arrays[place] for part in parts]) for place in range(3)
    )
    ids = meta[:, 0].astype(int)
    assert sorted(ids.tolist()) == list(range(ROWS))
    np.testing.assert_array_equal(y, ids % 3)
    np.testing.assert_array_equal(price, (ids * 0.5).astype(np.float32))
    np.testing.assert_array_equal(tags, np.stack([ids % 2, ids % 4 > 1, ids * 0 + 1], 1))
    np.testing.assert_array_equal(raw[:, 1, 0, 1], (ids % 256).astype(np.float32) / np.float32(255))
    words = np.array([[17, 21, 9, 20, 5, 7, 15, 15], [2, 1, 4, 0, 0, 0, 0, 0], [0] * 8])
    np.testing.assert_array_equal(review, words[ids % 3])
    train = parts[: len(dataset.partitions) - 1]
    y, _, tags = (np.concatenate([part.label_arrays[k] for part in train]) for k in range(3))
    counts = {"y": np.bincount(y).tolist(), "tags": tags.sum(0).astype(int).tolist()}
    assert dataset.class_counts == counts
    assert sum(counts["y"]) == 240


def test_content_is_the_same_on_both_engines_and_inside_the_server(
    duckdb_url: str, postgres_url: str
) -> None:
    found = []
    for url in (duckdb_url, postgres_url):
        with mmdb.connect(url) as db:
            fill(db)
            made = db.create_dataset("d", QUERY, options=OPTIONS)
            dataset = find_dataset(db.connection, "d")
            found.append((made.content_hash, dataset.decoding, dataset.class_counts))
            text = json.dumps(OPTIONS).replace("'", "''")
            (inside,) = db.sql(
                "SELECT content_hash FROM mmdb.create_dataset("
                f"'inside', '{QUERY}', options => '{text}')"
            )
            assert inside["content_hash"] == made.content_hash.hex()
    assert found[0] == found[1]


def test_a_byte_string_of_labels_is_the_same_as_an_array(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db)
        select = "SELECT a, {} AS tags FROM sample"
        packed = r"CASE WHEN id % 2 = 0 THEN '\x0001'::bytea ELSE '\x0101'::bytea END"
        made = {
            db.create_dataset(name, select.format(column), label="tags").content_hash
            for name, column in (("bytes", packed), ("array", "ARRAY[id % 2, 1]"))
        }
        assert len(made) == 1
        dataset = find_dataset(db.connection, "bytes")
        assert dataset.task == "multilabel"
        assert read(db, dataset)[0].label_arrays[0].shape[1] == 2


def test_a_text_alone_is_one_input_of_tokens(db: mmdb.Database) -> None:
    query = "SELECT review, y FROM sample WHERE y < 2"
    for name, tokenizer in (
        ("bytes", {"function": "bytes", "length": 4}),
        ("words", {"function": "words", "length": 2, "vocabulary": 50}),
    ):
        db.create_dataset(name, query, options={"tokenize": {"review": tokenizer}})
        dataset = find_dataset(db.connection, name)
        assert (dataset.input_shape, dataset.input_dtype) == ((tokenizer["length"],), "int64")
        parts = read(db, dataset)
        inputs = np.concatenate([part.plain[0] for part in parts])
        labels = np.concatenate([part.plain[1] for part in parts])
        assert inputs.dtype == np.int64
        (good,) = np.unique(inputs[labels == 0], axis=0)
        if name == "bytes":
            np.testing.assert_array_equal(good, [byte + 1 for byte in b"quit"])
        else:
            assert (good > 0).all()
            assert (good < 50).all()


def test_an_integer_label_may_be_a_number_and_one_label_a_class(db: mmdb.Database) -> None:
    options = {"labels": ["id"], "tasks": {"id": "regression"}}
    db.create_dataset("d", "SELECT a, y, id FROM sample", options=options)
    dataset = find_dataset(db.connection, "d")
    assert [target.task for target in dataset.targets] == ["classification", "regression"]
    assert dataset.input_shape == (1,)
    part = read(db, dataset)[0]
    assert isinstance(part.inputs, np.ndarray)
    np.testing.assert_array_equal(part.labels[1] % 3, part.labels[0])


def test_damage_in_one_of_many_files_is_mended(db: mmdb.Database, cache_folder: Path) -> None:
    db.create_dataset("d", QUERY, options=OPTIONS)
    part = find_dataset(db.connection, "d").partitions[0]
    before = read_partition(db.connection, part.part_id, part.content_hash)
    files = sorted(cache_folder.glob(f"{part.content_hash.hex()}.*"))
    assert len(files) == 7  # three inputs, three labels, their names
    for path in files:
        path.write_bytes(b"{}")
        with pytest.raises(node_cache.NotCached):
            node_cache.map(part.content_hash)
        ensure_partition(db.connection, part.part_id, part.content_hash)
        after = node_cache.map(part.content_hash)
        for old, new in zip(before.input_arrays, after.input_arrays, strict=True):
            np.testing.assert_array_equal(old, new)


REFUSED: list[tuple[str, dict[str, Any], type[errors.MmdbError], str]] = [
    (QUERY, {"labels": ["nothing"]}, errors.UnknownColumn, "'nothing'"),
    (QUERY, {"inputs": {"x": ["id"], "z": ["a"]}}, errors.InvalidOption, "'raw' is in no input"),
    (QUERY, OPTIONS | {"shapes": {"raw": [2, 3]}}, errors.InvalidOption, "shapes.raw"),
    (
        QUERY,
        {"tokenize": {"review": {"function": "bpe", "length": 3}}},
        errors.FunctionNotFound,
        "'bpe'",
    ),
    (
        "SELECT review, y FROM sample",
        {"tokenize": {"review": {"function": "raises", "length": 3}}},
        errors.FunctionFailed,
        "'raises'",
    ),
    ("SELECT a, ARRAY[0, 2]::real[] AS y FROM sample", {}, errors.InvalidOption, "'y' holds 2"),
    (
        "SELECT a, ARRAY['NaN'::real, 1]::real[] AS y FROM sample",
        {},
        errors.InvalidOption,
        "'y' holds nan",
    ),
    (
        "SELECT a, CASE WHEN id > 9 THEN ARRAY[0]::real[] ELSE tags END AS y FROM sample",
        {},
        errors.RaggedArray,
        "'y'",
    ),
    (
        "SELECT a, CASE WHEN id > 9 THEN ARRAY[0, NULL, 1]::real[] ELSE tags END AS y FROM sample",
        {},
        errors.NullValues,
        r"y \(290\)",
    ),
]


def test_bad_input_is_refused_by_name_and_changes_nothing(db: mmdb.Database) -> None:
    db.register_function("raises", "tests.multimodal:raises", "tokenizer")
    for query, options, error, named in REFUSED:
        with pytest.raises(error, match=named):
            db.create_dataset("d", query, options=options)
    (row,) = db.sql("SELECT count(*) AS n FROM mmdb.dataset")
    assert row["n"] == 0


def test_functions_are_registered_once_and_checked(db: mmdb.Database) -> None:
    rows = db.sql("SELECT name, kind, target FROM mmdb.function")
    assert rows == [{"name": "letters", "kind": "tokenizer", "target": "tests.multimodal:letters"}]
    db.register_function("letters", "tests.multimodal:letters", "loss")  # another kind
    for name, target, kind, error in (
        ("letters", "tests.multimodal:letters", "tokenizer", errors.AlreadyExists),
        ("bytes", "tests.multimodal:letters", "tokenizer", errors.AlreadyExists),
        ("a b", "tests.multimodal:letters", "tokenizer", errors.InvalidName),
        ("other", "tests.multimodal:nothing", "tokenizer", errors.FunctionFailed),
        ("other", "os.system('true')", "metric", errors.FunctionFailed),
        ("other", "tests.multimodal:letters", "factory", errors.InvalidOption),
    ):
        with pytest.raises(error):
            db.register_function(name, target, kind)


def save(db: mmdb.Database) -> Reviews:
    """Make dataset `d` and model `m` of it; return its module."""
    db.create_dataset("d", QUERY.replace("raw, ", ""), options=OPTIONS | {
        "inputs": {"review": ["review"], "meta": ["id", "a"]}, "shapes": {}
    })  # fmt: skip
    db.register_factory("reviews", "tests.multimodal:reviews")
    dataset = find_dataset(db.connection, "d")
    assert isinstance(dataset.input_shape, dict)
    torch.manual_seed(0)
    module = Reviews(dataset.input_shape, {t.name: t.size for t in dataset.targets})
    db.save("m", module, architecture="reviews", dataset="d")
    return module


ROW = {"id": 3, "a": 3 / 7, "review": "quite good"}


def test_a_row_becomes_the_inputs_and_every_target_is_predicted(db: mmdb.Database) -> None:
    module = save(db).eval()
    meta = torch.tensor([[3.0, np.float32(3 / 7)]])
    review = torch.tensor([[17, 21, 9, 20, 5, 7, 15, 15]])
    with torch.no_grad():
        out = module(meta=meta, review=review)
    expected = [*out["y"].softmax(-1)[0], *out["price"][0], *out["tags"].sigmoid()[0]]
    np.testing.assert_allclose(db.predict("m", ROW), [float(p) for p in expected], rtol=1e-5)
    (row,) = db.predict_query("m", "SELECT id, a, review FROM sample WHERE id = 3")
    assert (row["key"], row["prediction"]) == ("3", str(int(out["y"].argmax())))
    assert row["probability"] == pytest.approx(float(out["y"].softmax(-1).max()), rel=1e-5)


def test_every_target_is_evaluated(db: mmdb.Database) -> None:
    module = save(db).eval()
    found = db.evaluate("m", "d")
    assert {"y.accuracy", "price.rmse", "tags.hamming"} <= set(found)
    part = read(db, find_dataset(db.connection, "d"))[-1]
    inputs = {name: torch.from_numpy(array) for name, array in part.inputs.items()}  # type: ignore[union-attr]
    with torch.no_grad():
        out = module(**inputs)
    right = (out["y"].argmax(-1).numpy() == part.labels[0]).mean()
    assert found["y.accuracy"] == pytest.approx(right)


def test_the_drift_of_every_target_is_told(db: mmdb.Database) -> None:
    save(db)
    query = QUERY.replace("raw, ", "")
    found = {(row["column_name"], row["role"]): row for row in db.drift("m", query)}
    wanted = {("id", "feature"), ("a", "feature"), ("review", "feature"), ("y.accuracy", "metric")}
    for name in ("y", "price", "tags"):
        wanted |= {(name, role) for role in ("prediction", "label", "relation")}
    assert set(found) == wanted and not any(row["drifted"] for row in found.values())
    query = query.replace("price, tags", "price + 100 AS price, ARRAY[0, 0, 0]::real[] AS tags")
    drifted = {(row["column_name"], row["role"]) for row in db.drift("m", query) if row["drifted"]}
    assert drifted == {(name, role) for name in ("price", "tags") for role in ("label", "relation")}
    assert len(db.drift("m", "SELECT id, a, review, y FROM sample")) == 6


def test_a_row_that_does_not_fit_is_refused(db: mmdb.Database) -> None:
    save(db)
    refused: list[tuple[Any, str]] = [
        ([1.0, 2.0], "no list of numbers"),
        ({"id": 3, "a": 1.0}, "review"),
        ({}, "row lacks id, a, review"),
        (ROW | {"review": 7}, "'review' holds 7"),
        (ROW | {"a": "x"}, "'a'"),
        (ROW | {"a": 1e300}, "finite"),
        (ROW | {"a": "\u0661.\u0665"}, "'a' holds '\u0661.\u0665', not numbers"),
    ]
    for given, named in refused:
        with pytest.raises(errors.InvalidInput, match=named):
            db.predict("m", given)
    if db.connection.engine == "postgres":  # DuckDB's cast reads it as 15
        with pytest.raises(errors.InvalidInput, match="'a' holds '1_5'"):
            db.predict("m", ROW | {"a": "1_5"})
    with pytest.raises(errors.MmdbError, match="row lacks id, a, review"):
        db.sql("SELECT mmdb.predict('m', '{}') AS p")


def test_a_tokenizer_that_is_not_registered_is_never_imported(db: mmdb.Database) -> None:
    save(db)
    db.sql("UPDATE mmdb.function SET target = 'tests.multimodal:negative'")
    with pytest.raises(errors.FunctionFailed, match=r"tests\.multimodal:letters"):
        db.predict("m", ROW)
    db.sql("DELETE FROM mmdb.function")
    with pytest.raises(errors.FunctionNotFound, match="'letters'"):
        db.predict("m", ROW)


def test_one_target_of_several_labels_predicts_their_probabilities(db: mmdb.Database) -> None:
    options = {"transforms": {"*": "passthrough"}}
    db.create_dataset("d", "SELECT id, a, tags FROM sample", label="tags", options=options)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3))
    db.save("m", module, dataset="d")
    with torch.no_grad():
        expected = module(torch.tensor([[3.0, 0.5]])).sigmoid()[0].tolist()
    assert db.predict("m", [3.0, 0.5]) == pytest.approx(expected, rel=1e-5)
    (row,) = db.predict_query("m", "SELECT 3 AS id, 0.5::real AS a")
    assert json.loads(row["prediction"]) == pytest.approx(expected, rel=1e-5)
    assert row["probability"] is None


def test_a_run_trains_on_several_inputs_and_labels(db: mmdb.Database) -> None:
    save(db)
    run = db.create_run("r", dataset="d", architecture="reviews", epochs=1)
    assert run.train(workers=1).failed == 0
    assert len(db.predict("r", ROW)) == 3 + 1 + 3
    assert "tags.hamming" in db.evaluate("r", "d")


def test_a_model_of_several_inputs_goes_to_another_database(
    db: mmdb.Database, tmp_path: Path
) -> None:
    save(db)
    expected = db.predict("m", ROW)
    url = f"duckdb:///{tmp_path / 'other.duckdb'}"
    mmdb.connect(url).close()
    db.push("m", to=url, data=True)
    with mmdb.connect(url) as other:
        other.register_function("letters", "tests.multimodal:letters", "tokenizer")
        other.register_factory("reviews", "tests.multimodal:reviews")
        assert other.predict("m", ROW) == pytest.approx(expected)
        assert find_dataset(other.connection, "d") == replace(
            find_dataset(db.connection, "d"), dataset_id=1, slices=ANY, owner=None
        )
