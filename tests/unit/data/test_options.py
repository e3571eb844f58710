"""The options of create_dataset, and those that contradict each other or the query's columns."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mmdb.data.options import Options
from mmdb.data.roles import plan_request
from mmdb.data.tokenize import Tokenizer
from mmdb.errors import DataError, InvalidOption, MmdbError

COLUMNS = [
    ("pixels", "bytes"),
    ("age", "integer"),
    ("income", "float"),
    ("review", "text"),
    ("y", "integer"),
    ("price", "float"),
    ("tags", "float_array"),
]
REVIEW = {"review": {"function": "bytes", "length": 16}}
INPUTS = {"text": ["review"], "image": ["pixels"], "meta": ["income", "age"]}


def test_every_option_is_read() -> None:
    options = Options.parse(
        {
            "labels": ["price", "tags"],
            "tasks": {"price": "classification"},
            "inputs": INPUTS,
            "shapes": {"image": [1, 8, 8]},
            "tokenize": {"review": {"function": "words", "length": 16, "vocabulary": 99}},
        }
    )
    request = plan_request(COLUMNS, "y", options, "postgres")
    assert [(field.name, field.task) for field in request.labels] == [
        ("y", "classification"),
        ("price", "classification"),
        ("tags", "multilabel"),
    ]
    assert request.inputs == {
        "image": ("pixels",),
        "meta": ("income", "age"),
        "text": ("review",),
    }
    assert options.shapes == {"image": (1, 8, 8)}
    assert options.tokenize["review"] == Tokenizer(function="words", length=16, vocabulary=99)


def test_without_options_every_feature_is_stacked() -> None:
    request = plan_request(COLUMNS[:-2], "y", Options(), "postgres")
    assert request.inputs == {"": ("pixels", "age", "income", "review")}


@pytest.mark.parametrize(
    ("kind", "forced", "task"),
    [
        ("float_array", None, "multilabel"),
        ("bytes", None, "multilabel"),
        ("bytes", "multilabel", "multilabel"),
        ("integer", "multilabel", None),
        ("float_array", "regression", None),
        ("bytes", "classification", None),
    ],
)
def test_an_array_or_byte_string_is_several_labels(
    kind: str, forced: Any, task: str | None
) -> None:
    columns = [("age", "integer"), ("y", kind)]
    if task is None:
        with pytest.raises(InvalidOption, match=f"'y' has type {kind}"):
            plan_request(columns, "y", Options(task=forced), "duckdb")
    else:
        assert plan_request(columns, "y", Options(task=forced), "duckdb").label.task == task


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ('{"shape": [1]}', "options is not a mapping"),
        ([], "options is not a mapping"),
        ({"shape": [0]}, "shape"),
        ({"max_classes": "many"}, "max_classes"),
        ({"labels": "price"}, "labels"),
        ({"labels": ["price", "price"]}, "'price' twice"),
        ({"labels": [3]}, "labels"),
        ({"tasks": {"y": "ranking"}}, "tasks.y"),
        ({"tasks": ["y"]}, "tasks"),
        ({"inputs": {}}, "fewer than two"),
        ({"inputs": {"image": ["pixels"]}}, "fewer than two"),
        ({"inputs": {"image": ["pixels"], "meta": []}}, "'meta' has no column"),
        ({"inputs": {"image": ["pixels"], "meta": "age"}}, "inputs.meta"),
        ({"inputs": {"image": ["age"], "meta": ["age"]}}, "'age' is in the inputs"),
        ({"inputs": {"a b": ["age"], "meta": ["income"]}}, "'a b'"),
        ({"inputs": {"class": ["age"], "meta": ["income"]}}, "'class'"),
        ({"inputs": {"self": ["age"], "meta": ["income"]}}, "'self'"),
        ({"inputs": {"größe": ["age"], "meta": ["income"]}}, "größe"),
        ({"inputs": INPUTS, "shape": [3]}, "one input"),
        ({"shapes": {"image": [1]}}, "'image'"),
        ({"inputs": INPUTS, "shapes": {"other": [1]}}, "'other'"),
        ({"inputs": INPUTS, "shapes": {"image": [0]}}, "shapes.image"),
        ({"tokenize": {"review": "bytes"}}, "tokenize.review"),
        ({"tokenize": {"review": {"length": 3}}}, "tokenize.review.function"),
        ({"tokenize": {"review": {"function": "bytes"}}}, "tokenize.review.length"),
        ({"tokenize": {"review": {"function": "bytes", "length": 0}}}, "length"),
        ({"tokenize": {"review": {"function": "bytes", "length": 10**6}}}, "length"),
        ({"tokenize": {"review": {"function": "bytes", "length": 2, "size": 1}}}, "'size'"),
        ({"tokenize": {"review": {"function": "bytes", "length": 2, "vocabulary": 9}}}, "'words'"),
        ({"tokenize": {"review": {"function": "words", "length": 2, "vocabulary": 1}}}, "from 2"),
    ],
)
def test_a_wrong_option_is_named(options: Any, named: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(named)) as raised:
        Options.parse(options)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"labels": ["y"]}, InvalidOption, "'y', which is the label already"),
        ({"tasks": {"age": "regression"}}, InvalidOption, "'age', which is no label"),
        ({"task": "regression", "tasks": {"y": "regression"}}, InvalidOption, "both"),
        ({"tokenize": {"age": REVIEW["review"]}}, InvalidOption, "'age'"),
        ({"tokenize": {"nothing": REVIEW["review"]}}, InvalidOption, "'nothing'"),
        ({"tokenize": REVIEW}, InvalidOption, "an input of their own"),
        (
            {"tokenize": REVIEW, "inputs": {"a": ["review", "age"], "b": ["pixels", "income"]}},
            InvalidOption,
            "an input of their own",
        ),
        (
            {"tokenize": REVIEW, "inputs": INPUTS, "shapes": {"text": [4, 4]}},
            InvalidOption,
            "whose shape is their length",
        ),
        ({"inputs": INPUTS | {"meta": ["age"]}}, InvalidOption, "'income' is in no input"),
        ({"inputs": INPUTS | {"more": ["salary"]}}, InvalidOption, "'salary', which is no feature"),
        ({"inputs": INPUTS | {"more": ["y"]}}, InvalidOption, "'y', which is a label"),
        ({"labels": ["pixels", "age", "income", "review"]}, DataError, "only the labels"),
    ],
)
def test_an_option_that_does_not_fit_the_columns_is_named(
    options: dict[str, object], error: type[MmdbError], named: str
) -> None:
    with pytest.raises(error, match=named) as raised:
        plan_request(COLUMNS[:-2], "y", Options.parse(options), "postgres")
    assert raised.value.hint
