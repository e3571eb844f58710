"""Which role each column of a query plays."""

import pytest

from mmdb.data.options import Options
from mmdb.data.roles import plan_request
from mmdb.errors import DataError, InvalidOption, QueryError, UnknownColumn, UnsupportedType

COLUMNS = [
    ("a", "float"),
    ("n", "integer"),
    ("flag", "boolean"),
    ("word", "text"),
    ("v", "float_array"),
    ("raw", "bytes"),
    ("y", "integer"),
]


def test_each_type_has_its_role_and_its_scan() -> None:
    request = plan_request(COLUMNS, "y", Options(), "postgres")
    assert [(f.kind, f.scanned) for f in request.fields] == [
        ("numeric", "number"),
        ("numeric", "number"),
        ("numeric", "number"),
        ("categorical", "nullable_text"),
        ("tensor", "reals"),
        ("bytes", "bytes"),
        ("label", "bigint"),
    ]
    assert request.label.task == "classification"


@pytest.mark.parametrize(
    ("kind", "forced", "task", "scanned"),
    [
        ("integer", None, "classification", "bigint"),
        ("boolean", None, "classification", "bigint"),
        ("text", None, "classification", "text"),
        ("float", None, "regression", "real"),
        ("integer", "regression", "regression", "real"),
        ("boolean", "regression", "regression", "real"),
        ("float", "classification", "classification", "real"),
    ],
)
def test_the_label_decides_the_task_unless_it_is_forced(
    kind: str, forced: str | None, task: str, scanned: str
) -> None:
    options = Options.parse({} if forced is None else {"task": forced})
    request = plan_request([("a", "float"), ("y", kind)], "y", options, "postgres")
    assert (request.label.task, request.label.scanned) == (task, scanned)


def test_names_are_quoted_in_the_cast_select() -> None:
    request = plan_request([('a "b"', "integer"), ("y", "integer")], "y", Options(), "postgres")
    assert request.cast_select("SELECT 1") == (
        'SELECT "a ""b"""::double precision AS "a ""b""", "y"::bigint AS "y" FROM (SELECT 1\n) AS q'
    )


@pytest.mark.parametrize(
    ("columns", "label", "error", "named"),
    [
        ([("a", "float"), ("b", "integer")], "y", UnknownColumn, "'y'"),
        ([("y", "integer")], "y", DataError, "no feature"),
        ([("a", "float"), ("a", "float"), ("y", "integer")], "y", QueryError, "'a'"),
        ([("a", "timestamp"), ("y", "integer")], "y", UnsupportedType, "'a' has type timestamp"),
        ([("a", "float"), ("y", "date")], "y", UnsupportedType, "date"),
    ],
)
def test_columns_that_cannot_be_used_are_named(
    columns: list[tuple[str, str]], label: str, error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        plan_request(columns, label, Options(), "postgres")


@pytest.mark.parametrize(
    "options",
    [
        {"shap": [1]},
        {"shape": []},
        {"shape": [0]},
        {"shape": [1.5]},
        {"shape": "28"},
        {"shape": 28},
        {"max_categories": 0},
        {"max_classes": True},
        {"task": "ranking"},
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        Options.parse(options)


def test_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(InvalidOption) as raised:
        Options.parse({"shap": [1]})
    assert "max_categories" in raised.value.hint


def test_text_cannot_be_regressed() -> None:
    with pytest.raises(InvalidOption):
        plan_request([("a", "float"), ("y", "text")], "y", Options(task="regression"), "duckdb")
