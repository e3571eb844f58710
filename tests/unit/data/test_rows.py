"""Rows packed, hashed, recoded, put into blocks, and decoded again."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mmdb.data.decoding import Decoding
from mmdb.data.options import Options
from mmdb.data.pack import pack, unpack
from mmdb.data.roles import plan_request
from mmdb.data.rows import RowPacker
from mmdb.data.split import Split
from mmdb.data.tokenize import encoder
from mmdb.db.connection import Texts
from mmdb.db.row_formats import to_texts
from mmdb.errors import (
    BlockCorrupt,
    InvalidOption,
    NotFinite,
    OneClass,
    TooManyCategories,
)


def texts(*values: str | None) -> Texts:
    return to_texts(pa.array(values))


COLUMNS = [
    ("raw", "bytes"),
    ("a", "float"),
    ("word", "text"),
    ("v", "float_array"),
    ("b", "integer"),
    ("y", "text"),
]
BATCH: dict[str, Any] = {
    "raw": np.array([[0, 51, 255]] * 4, np.uint8) // np.arange(1, 5, dtype=np.uint8)[:, None],
    "a": np.arange(4, dtype=np.float32),
    "word": texts("pear", "apple", "pear", "fig"),
    "v": np.arange(8, dtype=np.float32).reshape(4, 2),
    "b": -np.arange(4, dtype=np.float32),
    "y": texts("no", "yes", "no", "yes"),
}


def f32(values: list[Any]) -> np.ndarray:
    return np.array(values, np.float32)


def split(seed: int) -> Split:
    return Split(partitions=1, validation=0, seed=seed)


def packed(
    columns: list[tuple[str, str]], batch: dict[str, Any], options: Options | None = None
) -> tuple[bytes, Decoding, np.ndarray]:
    given = replace(options or Options(), transforms={"*": "passthrough"})
    packer = RowPacker(plan_request(columns, "y", given, "postgres"), split(3), {})
    rows, keys = packer.pack(batch)
    packer.check_finite()
    decoding = packer.decoding(packer.fit(lambda: iter([rows]), len(rows)))
    packer.recode(rows)
    return pack(rows, packer.layout, packer.texts), decoding, keys


def test_features_decode_in_the_order_of_the_query() -> None:
    data, decoding, _ = packed(COLUMNS, BATCH)
    x, y = unpack(data, decoding).plain
    assert (decoding.input_shape, decoding.classes) == ((10,), ("no", "yes"))
    assert (x.dtype.str, y.dtype.str, y.tolist()) == ("<f4", "<i8", [0, 1, 0, 1])
    categories = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0]], np.float32)
    expected = np.column_stack(
        [BATCH["raw"] / np.float32(255), BATCH["a"], categories, BATCH["v"], BATCH["b"]]
    )
    np.testing.assert_array_equal(x, expected)


def test_a_single_tensor_takes_the_shape_that_is_asked_for() -> None:
    batch = {"v": np.arange(12, dtype=np.float32).reshape(2, 6), "y": np.array([3, 9])}
    columns = [("v", "float_array"), ("y", "integer")]
    data, decoding, _ = packed(columns, batch, Options(shape=(1, 2, 3)))
    x, y = unpack(data, decoding).plain
    assert (x.shape, y.tolist(), decoding.classes) == ((2, 1, 2, 3), [0, 1], (3, 9))
    with pytest.raises(InvalidOption, match="6"):
        packed(columns, batch, Options(shape=(2, 2)))


def test_a_regression_keeps_its_label_as_it_is() -> None:
    batch = {"a": f32([1, 2]), "y": f32([0.5, -7])}
    data, decoding, _ = packed([("a", "float"), ("y", "float")], batch)
    _, y = unpack(data, decoding).plain
    assert (y.dtype.str, y.tolist(), decoding.classes) == ("<f4", [0.5, -7], None)


def test_boolean_classes_stay_booleans() -> None:
    batch = {"a": f32([1, 2]), "y": np.array([1, 0])}
    _, decoding, _ = packed([("a", "float"), ("y", "boolean")], batch)
    assert decoding.classes == (False, True)


def test_keys_and_blocks_do_not_depend_on_the_order_of_arrival() -> None:
    backwards = {
        name: texts(*list(values)[::-1]) if isinstance(values, Texts) else values[::-1]
        for name, values in BATCH.items()
    }
    _, first_decoding, first = packed(COLUMNS, BATCH)
    _, second_decoding, second = packed(COLUMNS, backwards)
    assert first_decoding == second_decoding
    np.testing.assert_array_equal(first, second[::-1])
    assert len(set(first.tolist())) == 4


def test_keys_depend_on_the_seed_and_spread_evenly() -> None:
    request = plan_request([("a", "float"), ("y", "integer")], "y", Options(), "postgres")
    batch: dict[str, Any] = {"a": np.arange(40_000, dtype=np.float32), "y": np.arange(40_000) % 2}
    keys = [RowPacker(request, split(seed), {}).pack(batch)[1] for seed in (0, 1)]
    assert not np.array_equal(keys[0], keys[1])
    counts = np.bincount((keys[0] >> np.uint64(60)).astype(int), minlength=16)
    assert abs(counts - 2500).max() < 250


def test_equal_rows_give_equal_bytes() -> None:
    assert packed(COLUMNS, BATCH)[0] == packed(COLUMNS, BATCH)[0]


def test_numbers_that_are_not_finite_are_counted_by_column() -> None:
    batch = {
        "a": f32([1, np.nan, np.inf]),
        "v": f32([[1, 1], [np.nan, np.inf], [1, 1]]),
        "y": np.array([0, 1, 1]),
    }
    with pytest.raises(NotFinite, match=r"a \(2 rows\), v \(1 rows\)"):
        packed([("a", "float"), ("v", "float_array"), ("y", "integer")], batch)


def test_an_integer_label_may_look_like_a_nan() -> None:
    batch = {"a": f32([1, 2]), "y": np.array([0x7FC00000, 5])}
    assert packed([("a", "float"), ("y", "integer")], batch)[1].classes == (5, 0x7FC00000)


def test_one_class_is_refused() -> None:
    with pytest.raises(OneClass, match="7"):
        packed([("a", "float"), ("y", "integer")], {"a": f32([1]), "y": np.array([7])})


def test_too_many_categories_are_refused() -> None:
    with pytest.raises(TooManyCategories, match="'word'"):
        packed(COLUMNS, BATCH, Options(max_categories=2))
    with pytest.raises(TooManyCategories) as raised:
        packed(
            [("a", "float"), ("y", "integer")],
            {"a": np.zeros(11, np.float32), "y": np.arange(11)},
            Options(max_classes=10),
        )
    assert "regression" in raised.value.hint


def test_a_forced_classification_needs_whole_numbers() -> None:
    columns, options = [("a", "float"), ("y", "float")], Options(task="classification")
    a = f32([1, 2])
    assert packed(columns, {"a": a, "y": f32([2, 0])}, options)[1].classes == (0, 2)
    for wrong in (0.5, np.nan, 1e30):
        with pytest.raises(InvalidOption):
            packed(columns, {"a": a, "y": f32([2, wrong])}, options)


def test_a_damaged_block_is_found() -> None:
    data, decoding, _ = packed(COLUMNS, BATCH)
    for damaged in (b"", data[:100], b"\0" * len(data), data[: len(data) // 2]):
        with pytest.raises(BlockCorrupt):
            unpack(damaged, decoding)
    with pytest.raises(BlockCorrupt):
        unpack(data, replace(decoding, columns=decoding.columns[1:]))


SEVERAL = {
    "labels": ["price", "tags"],
    "inputs": {"image": ["raw"], "meta": ["b", "word", "a"]},
    "shapes": {"image": [3, 1]},
}


def test_several_inputs_and_labels_decode_by_name() -> None:
    columns = [*COLUMNS[:3], COLUMNS[4], ("tags", "float_array"), *COLUMNS[5:], ("price", "float")]
    batch = BATCH | {"price": f32([1, 2, 3, 4]), "tags": f32([[1, 0], [0, 0], [1, 1], [0, 1]])}
    data, decoding, _ = packed(columns, batch, Options.parse(SEVERAL))
    x, y = unpack(data, decoding)
    assert isinstance(x, dict)
    np.testing.assert_array_equal(x["image"], (BATCH["raw"] / np.float32(255))[:, :, None])
    categories = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0]], np.float32)
    expected = np.column_stack([BATCH["b"], categories, BATCH["a"]])
    np.testing.assert_array_equal(x["meta"], expected)
    assert [labels.tolist() for labels in y] == [
        [0, 1, 0, 1],
        [1, 2, 3, 4],
        [[1, 0], [0, 0], [1, 1], [0, 1]],
    ]
    assert [labels.dtype.str for labels in y] == ["<i8", "<f4", "<f4"]
    with pytest.raises(BlockCorrupt):
        unpack(data, replace(decoding, labels=decoding.labels[::-1]))


def test_inputs_change_the_hash_and_their_order_in_json_does_not() -> None:
    batch: dict[str, Any] = {"a": f32([1, 2]), "b": f32([1, 2]), "y": np.array([0, 1])}
    columns = [("a", "float"), ("b", "float"), ("y", "integer")]
    found = [
        packed(columns, batch, Options.parse({"inputs": inputs}))[1].canonical_json()
        for inputs in ({"p": ["a"], "q": ["b"]}, {"q": ["b"], "p": ["a"]}, {"p": ["b"], "q": ["a"]})
    ]
    assert found[0] == found[1] != found[2]
    assert b"inputs" not in packed(columns, batch)[1].canonical_json()


def test_a_row_of_tokens_is_part_of_its_key() -> None:
    tokenizer = {"word": {"function": "bytes", "length": 5}}
    request = plan_request(
        [("word", "text"), ("y", "integer")], "y", Options.parse({"tokenize": tokenizer}), "duckdb"
    )
    encoders = {"word": encoder(request.options.tokenize["word"])}
    batch: dict[str, Any] = {"word": texts("pear", "fig", "pear"), "y": np.array([0, 0, 0])}
    rows, keys = RowPacker(request, split(0), encoders).pack(batch)
    assert keys[0] == keys[2] != keys[1]
    assert rows.shape == (3, 5 * 4 + 8 + 8)  # tokens, label, what the row is known by
    assert rows[0, -8:].tolist() == rows[2, -8:].tolist() != rows[1, -8:].tolist()
