"""Measured operations: what cases do is what rules count, and what is learned from them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mmdb.plan.profile.cases import (
    ELEMENTWISE,
    OTHERS,
    PRODUCTS,
    OperationCase,
    amounts_of,
    cases,
    kind_of,
    ways_of,
)
from mmdb.plan.profile.operation_measures import measure_cases
from mmdb.plan.profile.timing import Allowance
from mmdb.plan.step.corrections import FEW, LEAST_FACTOR, MOST_FACTOR, learn_factors
from mmdb.plan.step.counts import WAYS
from mmdb.plan.step.operation_seconds import (
    MeasuredOperations,
    fit_kernel,
    least_relative,
    operations_of,
)
from mmdb.plan.step.recording import batch_of
from mmdb.plan.step.step_work import Work, work_of


class _Apply(nn.Module):
    """A function of an input that needs a gradient, and of parameters."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function, self.scale = function, nn.Parameter(torch.ones(()))
        self.given = nn.ParameterList([nn.Parameter(torch.empty(shape)) for shape in shapes])

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x * self.scale if x.is_floating_point() else x, *self.given)


def _module(case: OperationCase) -> tuple[nn.Module, tuple[int, ...], int]:
    """Return a case as a module, the shape of a row, and the rows."""
    op, shape = case
    if op == "matmul":
        m, n, k = shape
        return _Apply(functional.linear, (n, k)), (k,), m
    if op in ("batched", "attention"):
        batch, rows, width = shape
        if op == "attention":
            look = functional.scaled_dot_product_attention
            return _Apply(lambda x: look(x, x, x)), (1, rows, width), batch
        return _Apply(lambda x: x @ x.transpose(1, 2)), (rows, width), batch
    if op in PRODUCTS:
        images, first, second, side, kernel, stride, groups = (
            shape if op != "depthwise" else (*shape[:2], *shape[1:], shape[1])
        )
        padding = 0 if kernel == stride else kernel // 2

        def convolve(x: Tensor, w: Tensor) -> Tensor:
            return functional.conv2d(x, w, stride=stride, padding=padding, groups=groups)

        given = (second, first // groups, kernel, kernel)
        return _Apply(convolve, given), (first, side, side), images
    if op == "batch_norm":
        images, channels, side = shape
        return nn.Sequential(_Apply(lambda x: x), nn.BatchNorm2d(channels)), (
            channels, side, side,
        ), images  # fmt: skip
    if op == "layer_norm":
        return nn.Sequential(_Apply(lambda x: x), nn.LayerNorm(shape[1])), shape[1:], shape[0]
    if op == "embedding":
        return nn.Embedding(shape[0], shape[1]), (), shape[2]
    images, channels, side, kernel, stride = shape
    pool = getattr(functional, op)
    return (
        _Apply(lambda x: pool(x, kernel, stride, padding=kernel // 2)),
        (channels, side, side),
        images,
    )


def _counted(work: Work, rows: int, op: str, way: str) -> list[tuple[float, ...]]:
    moved = work.read.at(rows) + work.written.at(rows)
    sides = {"input": [0, 2, 1], "weight": [2, 1, 0]}.get(way, [0, 1, 2])
    table = np.stack([work.flops.at(rows), moved, *work.sides.at(rows)[sides], work.windows]).T
    torch_names = {
        "matmul": "linear", "batched": "matmul", "attention": "scaled_dot_product_attention",
    }  # fmt: skip
    named = torch_names.get(op, "convolution" if op in PRODUCTS else op)
    return [
        tuple(row.tolist())
        for row, one, number in zip(table, work.ops, work.ways, strict=True)
        if one == named and WAYS[number] == way
    ]


@pytest.mark.parametrize("op", [*PRODUCTS, *OTHERS])
def test_a_case_does_what_is_counted_of_a_module(op: str) -> None:
    of_op = [case for case in cases() if case.op == op]
    for case in islice(of_op, 4):
        module, shape, rows = _module(case)
        work = work_of(module, batch_of(shape, "int64" if op == "embedding" else "float32"))
        for way in ways_of(op):
            amounts = amounts_of(case, way)
            expected = (amounts.flops, amounts.bytes, *amounts.sides, amounts.window)
            found = _counted(work, rows, op, way)
            assert any(np.allclose(one, expected, rtol=1e-6) for one in found), (case, way, found)


def test_cases_are_the_same_each_time_and_begin_with_all_kinds() -> None:
    assert cases() == cases.__wrapped__()
    assert {case.op for case in cases()} == {*PRODUCTS, *OTHERS, *ELEMENTWISE}
    assert {case.op for case in cases()[:60]} >= set(PRODUCTS)
    assert len({(case.op, case.shape) for case in cases()}) > 0.95 * len(cases())


def test_few_cases_are_measured_within_a_short_budget() -> None:
    rows = list(measure_cases(Allowance(0.1), 0, torch.device("cpu")))
    assert rows and all(row.value > 0 for row in rows)
    assert {row.kind for row in rows} == {"operation"}


# -- learning -------------------------------------------------------------------


def _amounts(count: int) -> np.ndarray:
    random = np.random.default_rng(3)
    flops = 10 ** random.uniform(4, 8, count)
    return np.stack([flops, flops / 10, *np.zeros((4, count))])


def test_a_kernel_of_constant_speed_is_found() -> None:
    amounts = _amounts(30)
    kernel = fit_kernel(amounts, (2e-5 + amounts[0] / 2e10).tolist())
    assert np.allclose(kernel.seconds(amounts), 2e-5 + amounts[0] / 2e10, rtol=0.02)
    assert kernel.deviation < 0.05


def test_shapes_alike_are_corrected_and_others_are_not() -> None:
    amounts = _amounts(40)
    amounts[2] = np.where(np.arange(40) % 2, 4, 4096)
    slow = np.where(amounts[2] == 4, 2.0, 1.0)
    kernel = fit_kernel(amounts, (slow * (1e-5 + amounts[0] / 1e10)).tolist())
    thin, wide = amounts[:, 1:2].copy(), amounts[:, 1:2].copy()
    wide[2] = 4096
    assert kernel.seconds(thin)[0] / kernel.seconds(wide)[0] == pytest.approx(2.0, rel=0.2)
    far = amounts[:, :1] * 1e6
    assert kernel.seconds(1e3 * far) == pytest.approx(1e3 * kernel.seconds(far), rel=0.01)


def test_weights_are_never_negative() -> None:
    columns = np.array([[1.0, 1.0, 1.0], [3.0, 2.0, 1.0]])
    found = least_relative(columns, np.array([1.0, 2.0, 3.0]))
    assert (found >= 0).all()


def test_too_few_measured_cases_teach_nothing() -> None:
    assert operations_of({}) is None
    assert operations_of({(0, "forward"): 1e-3}) is None


def operations() -> MeasuredOperations:
    """Return operations of a machine of 10 GFLOP and 5 GB a second."""
    seconds = {
        (number, way): 1e-6 + amounts_of(case, way).flops / 1e10 + amounts_of(case, way).bytes / 5e9
        for number, case in enumerate(cases())
        for way in ways_of(case.op)
    }
    found = operations_of(seconds)
    assert found is not None
    return found


def test_parts_cost_as_what_they_are_like() -> None:
    found = operations()
    assert kind_of("matmul", "weight") in found.kernels
    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    work = work_of(module, batch_of((64,)))
    known = found.seconds(work, 32)
    seconds, products = known.working + known.calling, known.groups["matmul"]
    assert products.sum() == 5  # two forward, two weights, one input
    assert np.isfinite(seconds[products]).all()
    flops = work.flops.at(32)[products]
    moved = (work.read.at(32) + work.written.at(32))[products]
    assert seconds[products] == pytest.approx(1e-6 + flops / 1e10 + moved / 5e9, rel=0.25)


def test_factors_are_found_and_bounded() -> None:
    random = np.random.default_rng(0)
    shares = [{"matmul": a, "move": b} for a, b in random.uniform(0.1, 1.0, (12, 2))]
    measured = [1.2 * one["matmul"] + 1.8 * one["move"] for one in shares]
    found = learn_factors(shares, measured)
    # Both are drawn to the common one, the more so the fewer steps there are.
    assert 1.2 <= found["matmul"] < found["move"] <= 1.8
    sure = learn_factors(20 * shares, 20 * measured)
    assert sure["matmul"] == pytest.approx(1.2, abs=0.05)
    assert sure["move"] == pytest.approx(1.8, abs=0.05)
    wild = learn_factors(shares, [100 * one for one in measured])
    assert set(wild.values()) == {MOST_FACTOR}
    slow = learn_factors(shares, [one / 100 for one in measured])
    assert set(slow.values()) == {LEAST_FACTOR}
    assert learn_factors(shares[: FEW - 1], measured[: FEW - 1]) == {}
