"""A row's compiled plan against `object_input`, for every kind of transform."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmdb.data.decoding import Column, Decoding, Input, Label
from mmdb.data.inputs import object_input
from mmdb.data.row_plan import UNUSUAL, row_plan
from mmdb.data.transform.fitting import check_asked, fit_numbers, fit_texts
from mmdb.data.transform.transform import KINDS, FittedTransform, Source

TEXTS = ["", "a", "b", "grün", "A b c", *(f"n{k}" for k in range(9))]
DAY = 86_400.0
#: Statistics are of such numbers, some of which are equal.
NUMBERS: dict[Source, list[float]] = {
    "number": [-7.5, -1.0, 0.0, 0.0, 0.25, 3.0, 3.0, 3.0, 1e4],
    "moment": [k * 61.25 * DAY + 4000.5 for k in range(-9, 30)],
    "clock": [0.0, 5.5, 4000.0, 43_200.0, 43_200.0, 80_000.0],
    "span": [-DAY, 0.0, 60.0, 7200.0, 30 * DAY],
}


def transform_of(source: Source, kind: str, *, missing: int) -> FittedTransform:
    asked = check_asked("c", source, kind)
    if source == "text":
        return fit_texts("c", TEXTS, np.arange(1, len(TEXTS) + 1), missing, asked)
    return fit_numbers("c", source, np.array(NUMBERS[source] + [np.nan] * missing), asked)


COLUMNS = [Column(name="plain", kind="numeric", width=1)] + [
    Column(
        name=f"{source} {kind} {missing}",
        kind="categorical" if source == "text" else "numeric",
        width=1,
        transform=transform_of(source, kind, missing=missing),
    )
    for source in KINDS
    if source != "picture"
    for kind in KINDS[source]
    if kind != "drop"
    for missing in (0, 3)
]


def decoding_of(columns: list[Column]) -> Decoding:
    names = tuple(column.name for column in columns)
    shape = (sum(column.decoded_width for column in columns),)
    return Decoding(
        columns=tuple(columns),
        inputs=(Input(name="", columns=names, shape=shape),),
        labels=(Label(name="y", task="regression"),),
    )


def shown(source: Source, number: float) -> str:
    """Return seconds as a database's JSON has them."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    if source == "clock":
        return moment.time().isoformat()
    if source == "moment":
        return moment.isoformat() if number > 0 else moment.replace(tzinfo=None).isoformat()
    days, rest = divmod(int(abs(number)), 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    sign = "-" if number < 0 else ""
    return f"{sign}{days} days {sign}{clock}"


def values_of(column: Column) -> st.SearchStrategy[Any]:
    source = column.transform.source if column.transform else "number"
    if source == "text":
        return st.none() | st.sampled_from(TEXTS) | st.text(max_size=20)
    among = st.sampled_from(NUMBERS[source])
    if source == "number":
        any_number = st.floats(-1e12, 1e12) | st.integers(-(2**40), 2**40) | st.booleans()
        return among | any_number | (st.none() if column.transform else st.nothing())
    most = {"moment": 4e9, "clock": 86_399.0, "span": 1e8}[source]
    least = 0.0 if source == "clock" else -most
    return st.none() | (among | st.floats(least, most)).map(lambda one: shown(source, one))


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
@given(data=st.data())
@settings(max_examples=60)
def test_a_column_becomes_what_assemble_makes_of_it(column: Column, data: st.DataObject) -> None:
    decoding = decoding_of([column])
    plan = row_plan(decoding)
    assert plan is not None
    row = json.loads(json.dumps({column.name: data.draw(values_of(column)), "other": [1]}))
    expected = object_input(decoding, row, {}, "postgres")
    found = plan(row)
    assert isinstance(expected, np.ndarray)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-6)


@given(data=st.data())
@settings(max_examples=30)
def test_a_row_of_all_kinds_is_in_the_order_of_the_columns(data: st.DataObject) -> None:
    decoding = decoding_of(COLUMNS)
    plan = row_plan(decoding)
    assert plan is not None
    row = {column.name: data.draw(values_of(column)) for column in COLUMNS}
    expected = object_input(decoding, row, {}, "postgres")
    assert isinstance(expected, np.ndarray)
    np.testing.assert_allclose(plan(row), expected, rtol=1e-6, atol=2e-6)


STRANGE = ["much", "12", [1], [1.0, 2.0], {}, math.inf, -math.inf, math.nan, 10**400, 1e39, 5, True]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_what_a_plan_takes_is_what_assemble_takes(column: Column) -> None:
    decoding = decoding_of([column])
    plan = row_plan(decoding)
    assert plan is not None
    taken = 0
    for value in [*STRANGE, None]:
        try:
            found = plan({column.name: value})
        except UNUSUAL:
            continue
        taken += 1
        expected = object_input(decoding, {column.name: value}, {}, "postgres")
        assert isinstance(expected, np.ndarray)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-6)
    assert taken
    with pytest.raises(KeyError):
        plan({})


def test_columns_of_several_values_are_left_to_assemble() -> None:
    wide = Column(name="p", kind="tensor", width=2)
    assert row_plan(decoding_of([COLUMNS[0], wide])) is None
