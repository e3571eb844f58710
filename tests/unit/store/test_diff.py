"""How far two tensors are apart, and what changed between two sets of them."""

from __future__ import annotations

import math

import pytest
import torch

from mmdb.store.models.diff import _STEP, TensorDifference, compare, distance
from mmdb.store.tensors.tensor_bytes import DTYPES


def test_the_distance_is_over_all_elements() -> None:
    old = torch.zeros(3, _STEP)  # three steps
    new = old.clone()
    new[0, 0], new[2, -1] = 3.0, -4.0
    assert distance(old, new) == (5.0, 4.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int8", "uint8", "bool"])
def test_small_numbers_are_compared_in_double_precision(dtype: str) -> None:
    old = torch.zeros(4).to(DTYPES[dtype])
    new = torch.ones(4).to(DTYPES[dtype])
    assert distance(old, new) == (2.0, 1.0)


def test_unsigned_numbers_do_not_wrap() -> None:
    assert distance(torch.tensor([2], dtype=torch.uint8), torch.tensor([1]).byte()) == (1.0, 1.0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64])
def test_numbers_that_float64_cannot_tell_apart_are_compared(dtype: torch.dtype) -> None:
    old, new = torch.tensor([2**60, 5]).to(dtype), torch.tensor([2**60 + 1, 5]).to(dtype)
    assert distance(old, new) == distance(new, old) == (1.0, 1.0)
    least, most = torch.tensor([-(2**63)]).view(dtype), torch.tensor([2**63 - 1]).view(dtype)
    far = 2.0**64 if dtype == torch.int64 else 1.0
    assert distance(least, most) == (far, far)


def test_complex_numbers_are_compared_by_their_modulus() -> None:
    assert distance(torch.zeros(1, dtype=torch.cfloat), torch.tensor([3 + 4j])) == (5.0, 5.0)


def test_a_nan_makes_the_distance_nan() -> None:
    l2, max_abs = distance(torch.tensor([0.0, math.nan]), torch.tensor([1.0, 1.0]))
    assert l2 is not None and max_abs is not None
    assert math.isnan(l2) and math.isnan(max_abs)


def test_empty_tensors_and_scalars_have_a_distance() -> None:
    assert distance(torch.empty(0, 3), torch.empty(0, 3)) == (0.0, 0.0)
    assert distance(torch.tensor(1.0), torch.tensor(-1.0)) == (2.0, 2.0)


def test_what_changed_is_in_the_order_of_the_second() -> None:
    old = {"gone": torch.zeros(1), "a": torch.zeros(2), "same": torch.ones(2), "b": torch.zeros(2)}
    new = {"b": torch.zeros(3), "same": torch.ones(2), "a": torch.ones(2), "new": torch.zeros(1)}
    assert compare(old, new) == [
        TensorDifference(path="b", change="changed", dtype="float32", shape=(3,)),
        TensorDifference(
            path="a", change="changed", dtype="float32", shape=(2,), l2=math.sqrt(2), max_abs=1.0
        ),
        TensorDifference(path="new", change="added", dtype="float32", shape=(1,)),
        TensorDifference(path="gone", change="removed", dtype="float32", shape=(1,)),
    ]
    assert all(found.l2 is None for found in compare(old, new, norms=False))


def test_minus_zero_is_another_number_at_no_distance() -> None:
    (found,) = compare({"x": torch.tensor([0.0])}, {"x": torch.tensor([-0.0])})
    assert (found.change, found.l2, found.max_abs) == ("changed", 0.0, 0.0)


def test_the_same_nan_is_the_same() -> None:
    assert compare({"x": torch.tensor([math.nan])}, {"x": torch.tensor([math.nan])}) == []
