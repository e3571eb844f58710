"""Columns, categories and classes of two datasets by name and value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mmdb.data.arrays import Decoded
from mmdb.data.assembly import assemble
from mmdb.data.decoding import Column, Decoding, Input, Label
from mmdb.data.matching import (
    MISSING,
    Reordering,
    input_places,
    placed_inputs,
    places,
    slots_of,
)
from mmdb.data.tokenize import Tokenizer
from mmdb.data.transform.transform import FittedTransform
from mmdb.errors import InvalidInput

A = Column(name="a", kind="numeric", width=1)
V = Column(name="v", kind="tensor", width=2)


def colored(*categories: str) -> Column:
    """Return a column of texts, each of which has a 0/1 number."""
    given = FittedTransform(kind="one_hot", source="text", categories=categories)
    return Column(name="color", kind="categorical", width=1, transform=given)


def f32(values: list[Any]) -> np.ndarray:
    return np.array(values, np.float32)


COLOR = colored("blue", "red")
TEXT = Column(name="text", kind="tokens", width=3)
Y = Column(name="y", kind="label", width=1)
CLASS = Label(name="y", task="classification", classes=(0, 1, 2))


def plain(*columns: Column, label: Label = CLASS) -> Decoding:
    """Return the decoding of a dataset of one input."""
    width = sum(column.decoded_width for column in columns)
    given = Input(name="", columns=tuple(c.name for c in columns), shape=(width,))
    return Decoding(columns=(*columns, Y), inputs=(given,), labels=(label,))


def ordered(
    wanted: Decoding, found: Decoding, columns: dict[str, Any], y: object = (0,)
) -> tuple[object, object]:
    """Return rows of one dataset, given by column, as the other's model takes them, as lists."""
    reordering = Reordering(wanted, found)
    inputs = assemble(reordering.model or found, columns)
    (labels,) = reordering.labels(Decoded(inputs, np.array(y, np.int64)))
    assert isinstance(inputs, np.ndarray) and inputs.dtype == np.float32
    return inputs.tolist(), labels.tolist()


def test_values_of_different_types_are_different() -> None:
    assert places([True, 1, "1"], ["1", 1]).tolist() == [MISSING, 1, 0]


def test_null_is_no_category_of_the_text_missing() -> None:
    null = FittedTransform(
        kind="one_hot", source="text", categories=("blue", "missing"), statistics={"missing": 3}
    )
    both = Column(name="color", kind="categorical", width=1, transform=null)
    other = replace(both, transform=replace(null, categories=("blue",)))
    read = [input_places(plain(A, c), plain(A, c).inputs[0], plain(d, A), plain(d, A).inputs[0])
            for c, d in ((both, both), (both, other), (other, both))]  # fmt: skip
    assert [one.tolist() for one in read] == [[3, 0, 1, 2], [2, 0, MISSING, 1], [3, 0, 2]]


def test_numbers_go_where_the_model_reads_them() -> None:
    rows = {"a": f32([3]), "color": ["red"], "v": f32([[1, 2]])}
    x, y = ordered(plain(A, COLOR, V), plain(V, A, COLOR), rows, [2])
    assert (x, y) == ([[3, 0, 1, 1, 2]], [2])
    slots = slots_of(plain(V, COLOR), plain(V, COLOR).inputs[0])
    assert slots == [("v", 0), ("v", 1), ("color", "blue"), ("color", "red")]


def test_rows_that_are_alike_are_read_as_they_are() -> None:
    assert Reordering(plain(A, COLOR), plain(A, COLOR)).model is None


def test_categories_and_classes_go_by_value() -> None:
    label = replace(CLASS, classes=(1, 2, 3))
    found = plain(colored("green", "red"), A, label=label)
    rows = {"a": f32([5, 6, 7]), "color": ["red", "green", None]}
    x, y = ordered(plain(A, COLOR), found, rows, [1, 1, 0])
    assert (x, y) == ([[5, 0, 1], [6, 0, 0], [7, 0, 0]], [2, 2, 1])
    with pytest.raises(InvalidInput, match="'y' has the value 3"):
        ordered(plain(A, COLOR), found, rows, [2, 2, 2])


def test_false_is_no_zero() -> None:
    yes = replace(CLASS, classes=(False, True))
    with pytest.raises(InvalidInput, match="'y' has the value 1"):
        other = plain(A, label=replace(CLASS, classes=(0, 1)))
        ordered(plain(A, label=yes), other, {"a": f32([0])}, [1])


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (plain(COLOR), "'a' is missing"),
        (plain(A, COLOR, V), "'v' is additional"),
        (plain(replace(A, kind="tensor", width=2), COLOR), "'a' is 2 numbers"),
        (plain(A, COLOR, label=replace(CLASS, name="z")), "'y' is missing"),
        (plain(A, COLOR, label=Label(name="y", task="regression")), "'y' is a number"),
    ],
)
def test_what_is_not_there_or_something_else_is_named(found: Decoding, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        Reordering(plain(A, COLOR), found)


def test_several_inputs_and_labels_are_found_by_their_columns() -> None:
    tokens = Tokenizer(function="bytes", length=3)
    text = Input(name="text", columns=("text",), shape=(3,), tokenizer=tokens)
    wanted = Decoding(
        columns=(A, TEXT, V, Y, Column(name="z", kind="label", width=1)),
        inputs=(Input(name="rest", columns=("a", "v"), shape=(3,)), text),
        labels=(CLASS, Label(name="z", task="regression")),
    )
    found = Decoding(
        columns=(V, TEXT, A, *wanted.columns[-2:]),
        inputs=(
            Input(name="more", columns=("a",), shape=(1,)),
            replace(text, name="said"),
            Input(name="vector", columns=("v",), shape=(2,)),
        ),
        labels=wanted.labels[::-1],
    )
    reordering = Reordering(wanted, found)
    assert reordering.model is wanted
    inputs = assemble(
        wanted, {"a": f32([1]), "v": f32([[2, 3]]), "text": np.array([[7, 8, 9]], np.int32)}
    )
    labels = (np.array([0.5], np.float32), np.array([2], np.int64))
    y, z = reordering.labels(Decoded(inputs, labels))
    assert isinstance(inputs, dict) and list(inputs) == ["rest", "text"]
    assert inputs["rest"].tolist() == [[1, 2, 3]]
    assert inputs["text"].tolist() == [[7, 8, 9]] and inputs["text"].dtype == np.int64
    assert (y.tolist(), z.tolist()) == ([2], [0.5])
    shorter = replace(text, name="said", tokenizer=replace(tokens, length=2))
    with pytest.raises(InvalidInput, match="'text'"):
        Reordering(wanted, replace(found, inputs=(found.inputs[0], shorter, found.inputs[2])))


def test_rows_are_placed_as_far_as_a_model_knows_them() -> None:
    wanted, found = plain(A, COLOR), plain(colored("red", "white"), V, A)
    x = np.array([[1, 0, 8, 9, 4], [0, 1, 8, 9, 5]], np.float32)
    placed = placed_inputs(wanted, found, x)
    assert isinstance(placed, np.ndarray) and placed.tolist() == [[4, 0, 1], [5, 0, 0]]
    vector = plain(replace(V, name="pixels"))
    pixels = x[:, :2]
    assert placed_inputs(vector, plain(V), pixels) is pixels
    assert input_places(vector, vector.inputs[0], plain(V), plain(V).inputs[0]).max() == MISSING
