from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mmdb.graph.ops.result_sizes import size_rule

aten = torch.ops.aten


def meta(*shape: int) -> Tensor:
    return torch.empty(shape, device="meta")


def same(one: Tensor, other: Tensor) -> bool:
    pairs = zip(one.shape, one.stride(), other.stride(), strict=True)
    layout = all(length == 1 or mine == its for length, mine, its in pairs)
    return layout and one.shape == other.shape and one.dtype == other.dtype


CASES: dict[str, Callable[[Tensor], tuple[object, ...]]] = {
    "relu": lambda x: (x,),
    "relu_": lambda x: (x,),
    "gelu": lambda x: (x,),
    "hardtanh": lambda x: (x, 0, 6),
    "leaky_relu": lambda x: (x, 0.1),
    "add": lambda x: (x, x),
    "mul": lambda x: (x, 2.0),
    "sub": lambda x: (x, 1),
    "batch_norm": lambda x: (
        x, *(meta(x.shape[1]) for _ in range(4)), False, 0.1, 1e-5, True,
    ),
    "layer_norm": lambda x: (x, [x.shape[-1]], meta(x.shape[-1]), None),
    "group_norm": lambda x: (x, 1, meta(x.shape[1]), None),
    "linear": lambda x: (x, meta(5, x.shape[-1]), meta(5)),
    "mean": lambda x: (x, [0, -1]),
    "sum": lambda x: (x, [1], True),
    "softmax": lambda x: (x, -1),
    "_log_softmax": lambda x: (x, 1, False),
    "addmm": lambda x: (meta(5), x.reshape(-1, x.shape[-1]), meta(x.shape[-1], 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.booleans())
@settings(max_examples=12, deadline=None)
def test_a_rule_gives_what_torch_gives(name: str, shape: list[int], permuted: bool) -> None:
    x = meta(*shape)
    if permuted and name not in ("layer_norm", "group_norm"):  # torch's meta and CPU differ
        x = x.transpose(0, -1)
    arguments = CASES[name](x)
    rule = size_rule(f"aten::{name}")
    assert rule is not None
    found = rule(*arguments)
    assert found is not None
    assert same(found, getattr(aten, name)(*arguments))


@pytest.mark.parametrize("name", ["mean", "sum"])
@pytest.mark.parametrize(
    "arguments", [(), (None,), ([],), ([0],), ([0, 2],), ([-1], True), (None, True), ([], True)]
)
def test_a_mean_or_a_sum_over_some_dimensions(name: str, arguments: tuple[object, ...]) -> None:
    rule, x = size_rule(f"aten::{name}"), meta(2, 3, 4)
    assert rule is not None
    assert same(rule(x, *arguments), getattr(aten, name)(x, *arguments))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_convolutions_have_the_size_that_torch_gives(data: st.DataObject) -> None:
    space, groups = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    some = st.lists(st.integers(1, 3), min_size=space, max_size=space)
    kernel, stride, padding, dilation = (data.draw(some) for _ in range(4))
    x = meta(2, 2 * groups, *data.draw(st.lists(st.integers(7, 9), min_size=space, max_size=space)))
    weight = meta(groups * data.draw(st.integers(1, 3)), 2, *kernel)
    arguments = (x, weight, None, stride, padding, dilation, False, [0] * space, groups)
    rule = size_rule("aten::convolution")
    assert rule is not None
    assert same(rule(*arguments), aten.convolution(*arguments))


@given(*(st.integers(1, 5) for _ in range(5)))
@settings(max_examples=12, deadline=None)
def test_attention_is_laid_out_as_on_the_processor(b: int, h: int, t: int, s: int, d: int) -> None:
    arguments = torch.zeros(b, h, t, d), torch.zeros(b, h, s, d), torch.zeros(b, h, s, d)
    rule = size_rule("aten::scaled_dot_product_attention")
    assert rule is not None
    found = rule(*(one.to("meta") for one in arguments))
    expected = aten.scaled_dot_product_attention(*arguments)
    assert found.shape == expected.shape
    assert found.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("linear", (meta(2, 3), meta(5, 4), None)),
        ("addmm", (meta(5), meta(2, 3), meta(4, 5))),
        ("add", (meta(2, 3), meta(3))),
        ("relu", (torch.empty(2, dtype=torch.int64, device="meta"),)),
        ("layer_norm", (meta(2, 3), [4], None, None)),
        ("mean", (meta(2, 3), [2])),
        ("sum", (meta(2, 3), [0, -2])),
        ("sum", (torch.empty(2, dtype=torch.int64, device="meta"),)),
        ("softmax", (meta(2, 3), 2)),
        ("softmax", (meta(2, 3), 1, torch.float64)),
        ("scaled_dot_product_attention", (meta(1, 2, 3, 4), meta(1, 3, 3, 4), meta(1, 3, 3, 4))),
    ],
)
def test_what_does_not_fit_is_left_to_torch(name: str, arguments: tuple[object, ...]) -> None:
    rule = size_rule(f"aten::{name}")
    assert rule is not None and rule(*arguments) is None


@pytest.mark.parametrize(
    ("a", "b", "groups", "expected"),
    [
        ((7, 3), (4, 3, 5), 4, (7, 5)),
        ((3, 7), (7, 5), 4, (4, 3, 5)),
        ((4, 2, 3), (4, 3, 5), None, (4, 2, 5)),
        ((4, 7, 3), (3, 5), 4, (7, 5)),
    ],
)
def test_grouped_products(
    a: tuple[int, ...], b: tuple[int, ...], groups: int | None, expected: tuple[int, ...]
) -> None:
    rule = size_rule("aten::_grouped_mm")
    offsets = None if groups is None else meta(groups)
    assert rule is not None and rule(meta(*a), meta(*b), offsets).shape == expected
