from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mmdb.graph.ops import capture_mode
from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.op_graph import (
    BUFFER,
    CONSTANT,
    INPUT,
    PARAMETER,
    CannotTrace,
    Operation,
    OpGraph,
    TooManyOperations,
    Value,
)
from tests.unit.graph.ops.networks import (
    NETWORKS,
    Function,
    Grouped,
    Language,
    Residual,
    example_inputs,
)

SOURCES = (INPUT, PARAMETER, BUFFER, CONSTANT)


def of_function(
    body: Callable[..., object], shape: tuple[int, ...] = (4,), **parts: nn.Module | nn.Parameter
) -> OpGraph:
    return capture(Function(body, **parts), [torch.zeros(2, *shape)])


def computed(flow: OpGraph) -> list[str]:
    return [op.op for op in flow.operations if op.op not in SOURCES]


def only(flow: OpGraph, name: str) -> Operation:
    (found,) = (op for op in flow.operations if op.op == name)
    return found


def followed(flow: OpGraph, value: object) -> Operation:
    assert isinstance(value, Value)
    return flow.operations[value.operation]


@pytest.mark.parametrize("name", NETWORKS)
def test_every_shape_is_that_of_the_real_forward(name: str) -> None:
    build, shape = NETWORKS[name]
    module = build().eval()
    inputs = example_inputs(module, shape)
    flow = capture(module, inputs)
    real = tuple(torch.zeros(x.shape, dtype=x.dtype) for x in inputs.args)
    with torch.no_grad():
        result = module(*real)
    assert flow.shape_of(flow.outputs[0]) == result.shape


@pytest.mark.parametrize("name", NETWORKS)
def test_operations_read_what_ran_before_and_tensors_are_all_there(name: str) -> None:
    build, shape = NETWORKS[name]
    module = build()
    flow = capture(module, example_inputs(module, shape))
    for number, op in enumerate(flow.operations):
        assert op.ordinal == number
        assert all(value.operation < number for value in op.reads)
        assert all(flow.operations[v.operation].shapes[v.output] is not None for v in op.reads)
    found = {op.path: op.shape for op in flow.operations if op.op in (PARAMETER, BUFFER)}
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    assert found == {path: tuple(tensor.shape) for path, tensor in tensors.items()}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_module_and_generators_are_left_as_they_were(name: str) -> None:
    build, shape = NETWORKS[name]
    module = build().train()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    attributes = {path: dict(vars(part)) for path, part in module.named_modules()}
    states = torch.get_rng_state(), random.getstate()
    capture(module, example_inputs(module, shape))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert attributes == {path: dict(vars(part)) for path, part in module.named_modules()}
    assert all(part.training for part in module.modules())


def test_a_module_without_weights_gives_the_same_flow() -> None:
    with torch.device("meta"):
        without = Residual()
    inputs = example_inputs(without, (3, 32, 32))
    assert capture(without, inputs) == capture(Residual(), inputs)


def test_half_precision_gives_the_operations_of_single() -> None:
    inputs = example_inputs(Residual(), (3, 32, 32))
    flows = [capture(Residual().to(dtype), inputs) for dtype in (torch.float32, torch.bfloat16)]
    assert computed(flows[0]) == computed(flows[1])


def test_operations_have_the_path_of_the_module_that_ran_them() -> None:
    flow = capture(Residual(depth=1), example_inputs(Residual(), (3, 32, 32)))
    paths = [op.path for op in flow.operations if op.op == "convolution"]
    assert paths == ["stem", "blocks.0.a", "blocks.0.b"]
    assert [op.path for op in flow.operations if op.op == "add"] == ["blocks.0"]
    assert only(flow, "mean").path == ""


def test_batch_norm_is_one_operation_and_its_counter_is_not_read() -> None:
    flow = of_function(lambda m, x: m.a(x), (3, 4, 4), a=nn.BatchNorm2d(3))
    assert computed(flow) == ["batch_norm"]
    op = only(flow, "batch_norm")
    assert op.arguments["training"] is False
    assert followed(flow, op.arguments["running_var"]).path == "a.running_var"
    assert flow.unread == ("a.num_batches_tracked",)


@pytest.mark.parametrize("shape", [(4,), (7, 4), (2, 3, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_is_one_operation_for_any_number_of_dimensions(
    shape: tuple[int, ...], bias: bool
) -> None:
    flow = of_function(lambda m, x: m.a(x), shape, a=nn.Linear(4, 6, bias=bias))
    assert computed(flow) == ["linear"]
    op = only(flow, "linear")
    assert followed(flow, op.arguments["weight"]).path == "a.weight"
    assert (op.arguments["bias"] is not None) == bias
    assert op.shape == (2, *shape[:-1], 6)


@pytest.mark.parametrize(
    "product",
    [
        lambda m, x: x @ m.a.weight.T,
        lambda m, x: torch.matmul(x, m.a.weight.t()),
        lambda m, x: x.mm(m.a.weight.transpose(0, 1)),
        lambda m, x: torch.addmm(m.a.bias, x, m.a.weight.mT),
        lambda m, x: torch.einsum("bi,oi->bo", x, m.a.weight),
    ],
)
def test_products_with_a_transposed_weight_are_linear(product: Callable[..., object]) -> None:
    flow = of_function(product, a=nn.Linear(4, 6))
    assert computed(flow) in (["linear"], ["einsum"])


def test_a_weight_that_is_not_transposed_stays_a_product() -> None:
    weight = nn.Parameter(torch.zeros(4, 6))
    flow = of_function(lambda m, x: torch.addmm(x.new_zeros(6), x, m.w), w=weight)
    assert computed(flow) == ["addmm"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda x: x.reshape(2, -1), ("view", {"size": (2, 60)})),
        (lambda x: x.flatten(1, 2), ("view", {"size": (2, 12, 5)})),
        (lambda x: x.unflatten(1, (3, -1)), ("view", {"size": (2, 3, 1, 4, 5)})),
        (lambda x: x.transpose(-1, 1), ("permute", {"dims": (0, 3, 2, 1)})),
        (lambda x: x.movedim(1, -1), ("permute", {"dims": (0, 2, 3, 1)})),
        (lambda x: x.mT, ("permute", {"dims": (0, 1, 3, 2)})),
        (lambda x: x[:, 1:], ("slice", {"dim": 1, "start": 1, "end": 3, "step": 1})),
        (lambda x: x[..., -1], ("select", {"dim": 3, "index": 4})),
        (lambda x: x.chunk(2, -2), ("split_with_sizes", {"split_sizes": (2, 2), "dim": 2})),
        (lambda x: x.split(2, 1), ("split_with_sizes", {"split_sizes": (2, 1), "dim": 1})),
        (lambda x: x.split([1, 2], 1), ("split_with_sizes", {"split_sizes": (1, 2), "dim": 1})),
        (lambda x: x.tensor_split(2, 1), ("split_with_sizes", {"split_sizes": (2, 1), "dim": 1})),
        (lambda x: x.unbind(-1), ("unbind", {"dim": 3})),
        (lambda x: x[:, :1].expand_as(x), ("expand", {"size": (2, 3, 4, 5)})),
        (lambda x: x[:, :1].squeeze(1), ("squeeze", {"dims": (1,)})),
        (lambda x: torch.cat([x, x], -1), ("cat", {"dim": 3})),
        (lambda x: x.softmax(-1), ("softmax", {"dim": 3})),
    ],
)
def test_one_meaning_has_one_form(
    change: Callable[[Tensor], object], expected: tuple[str, dict[str, object]]
) -> None:
    flow = of_function(lambda _, x: change(x), (3, 4, 5))
    name, arguments = expected
    op = [op for op in flow.operations if op.op == name][-1]
    assert {key: op.arguments[key] for key in arguments} == arguments


def test_what_changes_no_value_leaves_no_operation() -> None:
    drop = nn.Dropout(0.5)
    flow = of_function(lambda m, x: m.a(x).contiguous().clone().detach().to("cpu").float(), a=drop)
    assert computed(flow) == []
    assert followed(flow, flow.outputs[0]).op == INPUT


def test_convolutions_have_one_name() -> None:
    parts = {"a": nn.Conv1d(4, 6, 3, padding="same"), "b": nn.ConvTranspose1d(6, 4, 2, stride=2)}
    flow = of_function(lambda m, x: m.b(m.a(x)), (4, 9), **parts)
    ops = [op for op in flow.operations if op.op == "convolution"]
    assert [op.arguments["transposed"] for op in ops] == [False, True]
    assert [op.arguments["padding"] for op in ops] == [(1,), (0,)]


def test_attention_is_whole_and_masks_are_constants() -> None:
    flow = capture(Language(lambda: Grouped(8, 4, 2)), [torch.ones(2, 9, dtype=torch.int64)])
    counts = Counter(op.op for op in flow.operations)
    assert counts["matmul"] == 2 and counts["linear"] == 5
    assert counts[CONSTANT] == 1
    mask = next(op for op in flow.operations if op.op == CONSTANT)
    assert mask.shape == (9, 9)


def test_multi_head_attention_is_followed_by_its_operations() -> None:
    heads = nn.MultiheadAttention(8, 2, batch_first=True)
    flow = of_function(lambda m, x: m.a(x, x, x, need_weights=False)[0], (5, 8), a=heads)
    assert Counter(computed(flow))["linear"] == 2
    query = only(flow, "scaled_dot_product_attention").arguments["query"]
    assert followed(flow, query).shape == (2, 2, 5, 4)


def test_a_recurrent_layer_is_one_operation() -> None:
    lstm = nn.LSTM(4, 8, num_layers=2, batch_first=True)
    flow = of_function(lambda m, x: m.a(x)[0], (5, 4), a=lstm)
    op = only(flow, "lstm")
    assert op.shapes == ((2, 5, 8), (2, 2, 8), (2, 2, 8))
    params = op.arguments["params"]
    assert isinstance(params, tuple)
    assert [followed(flow, value).path for value in params][:2] == [
        "a.weight_ih_l0",
        "a.weight_hh_l0",
    ]


def test_ties_name_the_first_path() -> None:
    flow = capture(Language(lambda: Grouped(8, 4, 2)), [torch.ones(2, 9, dtype=torch.int64)])
    assert flow.ties == {"head.weight": "embed.weight"}
    readers = [
        op.op for op in flow.operations for v in op.reads if _path(flow, v) == "embed.weight"
    ]
    assert readers == ["embedding", "linear"]


def _path(flow: OpGraph, value: Value) -> str:
    return flow.operations[value.operation].path


def test_a_shared_module_runs_twice_with_the_same_tensors() -> None:
    part = nn.Linear(4, 4)
    flow = of_function(lambda m, x: m.b(m.a(x)), a=part, b=part)
    weights = {op.arguments["weight"] for op in flow.operations if op.op == "linear"}
    assert len(weights) == 1 and computed(flow) == ["linear"] * 2
    assert flow.ties == {"b.weight": "a.weight", "b.bias": "a.bias"}


def test_tensors_that_the_forward_does_not_read_are_told() -> None:
    flow = of_function(lambda m, x: m.a(x), a=nn.Linear(4, 4), b=nn.Linear(3, 5))
    assert flow.unread == ("b.weight", "b.bias")
    assert [op.shape for op in flow.operations[-2:]] == [(5, 3), (5,)]


# -- writes in place -----------------------------------------------------------------


def test_who_reads_a_changed_tensor_reads_the_change() -> None:
    def body(_: nn.Module, x: Tensor) -> Tensor:
        y = x * 2
        y += 1
        return y.relu_()

    flow = of_function(body)
    assert computed(flow) == ["mul", "add", "relu"]
    assert [op.reads[0].operation for op in flow.operations[1:]] == [0, 1, 2]


def test_a_write_into_a_slice_changes_the_whole() -> None:
    def body(_: nn.Module, x: Tensor) -> Tensor:
        y = x.new_zeros(2, 6)
        y[:, 1:5] = x
        return y.exp()

    flow = of_function(body)
    op = only(flow, "slice_scatter")
    assert {key: op.arguments[key] for key in ("dim", "start", "end", "step")} == {
        "dim": 1, "start": 1, "end": 5, "step": 1,
    }  # fmt: skip
    assert followed(flow, op.arguments["self"]).op == CONSTANT
    assert followed(flow, op.arguments["src"]).op == INPUT
    assert followed(flow, only(flow, "exp").arguments["self"]) == op


def test_a_write_into_the_whole_changes_its_views() -> None:
    def body(_: nn.Module, x: Tensor) -> Tensor:
        y = x + 1
        part = y[:, 2]
        y.mul_(3)
        return part.exp()

    flow = of_function(body)
    part = followed(flow, only(flow, "exp").arguments["self"])
    assert part.op == "select" and followed(flow, part.arguments["self"]).op == "mul"


def test_a_write_through_a_view_is_seen_by_another() -> None:
    def body(_: nn.Module, x: Tensor) -> Tensor:
        y = x + 1
        y.view(2, 2, 2)[:, 0].relu_()
        return y.view(4, 2).exp()

    flow = of_function(body)
    source = followed(flow, only(flow, "exp").arguments["self"])
    assert source.op == "view"
    assert followed(flow, source.arguments["self"]).op in ("slice_scatter", "as_strided_scatter")


# -- values that a forward reads ---------------------------------------------------------


def test_sizes_and_constants_may_be_read() -> None:
    def body(_: nn.Module, x: Tensor) -> Tensor:
        sizes = torch.tensor([x.shape[1], 2], device=x.device)
        total = int(sizes.prod()) + sizes.tolist()[1] + torch.arange(3, device=x.device).sum()
        return x * total.item() if sizes.max() > 3 else x.exp()

    flow = of_function(body)
    assert computed(flow) == ["mul"]
    assert only(flow, "mul").arguments["other"] == 4 * 2 + 2 + 3


def test_integer_inputs_may_be_read() -> None:
    def body(_: nn.Module, tokens: Tensor) -> Tensor:
        return tokens[:, : int(tokens.max())]

    flow = capture(Function(body), [torch.tensor([[1, 3, 2, 0]])])
    assert flow.shape_of(flow.outputs[0]) == (1, 3)


def test_a_course_that_depends_on_values_is_run_with_some() -> None:
    def body(module: Any, x: Tensor) -> Tensor:
        y = module.a(x)
        return cast("Tensor", module.b(y) if y.sum() > -1e9 else y)

    module = Function(body, a=nn.Linear(4, 4), b=nn.Linear(4, 3))
    state = torch.get_rng_state()
    flow = capture(module, [torch.zeros(5, 4)])
    assert torch.equal(state, torch.get_rng_state())
    assert [op.shape for op in flow.operations if op.op == "linear"] == [(5, 4), (5, 3)]


def test_a_selection_by_values_is_taken_to_select_all() -> None:
    def body(module: Any, x: Tensor) -> Tensor:
        y = module.a(x)
        for place in (y.sum(0) > 0).nonzero():
            y = y * y[:, place]
        return cast("Tensor", module.b(y[y[:, 0] > 3]))

    module = Function(body, a=nn.Linear(4, 4), b=nn.Linear(4, 3))
    flow = capture(module, [torch.zeros(5, 4)])
    assert [op.shape for op in flow.operations if op.op == "linear"] == [(5, 4), (5, 3)]
    assert computed(flow).count("mul") == 4


def test_random_numbers_of_the_forward_come_from_no_generator() -> None:
    state = torch.get_rng_state()
    flow = of_function(lambda _, x: x + torch.rand_like(x) + functional.dropout(x, 0.5))
    assert torch.equal(state, torch.get_rng_state())
    assert "add" in computed(flow)


# -- what cannot be followed --------------------------------------------------------------


def test_the_error_names_the_operation_and_the_module() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    with pytest.raises(CannotTrace, match=r"linear in module '1\.1'") as caught:
        capture(module, [torch.zeros(2, 4)])
    assert (caught.value.operation, caught.value.path) == ("linear", "1.1")


def test_an_error_of_the_forward_itself_names_the_module() -> None:
    def body(_: nn.Module, x: Tensor) -> Tensor:
        raise KeyError("missing")

    with pytest.raises(CannotTrace, match="KeyError") as caught:
        capture(nn.Sequential(nn.ReLU(), Function(body)), [torch.zeros(2, 4)])
    assert (caught.value.operation, caught.value.path) == ("forward", "1")


def test_a_forward_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_mode, "MOST_OPERATIONS", 1000)

    def body(_: nn.Module, x: Tensor) -> Tensor:
        while True:
            x = x + 1

    with pytest.raises(TooManyOperations, match=r"more than 50,000 operations") as caught:
        of_function(body)
    assert (caught.value.operation, caught.value.path) == ("add", "")


def test_a_large_module_that_needs_values_is_refused() -> None:
    with torch.device("meta"):
        big = nn.Linear(10_000, 10_000)
    module = Function(lambda m, x: x if m.a(x).sum() > 0 else -x, a=big)
    with pytest.raises(CannotTrace) as caught:
        capture(module, [torch.zeros(1, 10_000)])
    assert caught.value.wants_values


def test_a_lazy_module_is_refused() -> None:
    with pytest.raises(CannotTrace, match="no shape"):
        capture(nn.LazyLinear(3), [torch.zeros(2, 4)])


def test_wrappers_are_looked_through() -> None:
    flow = capture(nn.DataParallel(nn.Linear(4, 3)), [torch.zeros(2, 4)])
    assert [op.path for op in flow.operations if op.op == PARAMETER] == [
        "module.weight",
        "module.bias",
    ]


def test_parametrized_weights_are_followed_to_their_parameters() -> None:
    new = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    flow = capture(new, [torch.zeros(2, 4)])
    assert not flow.unread
    with pytest.warns(FutureWarning):
        old = nn.utils.weight_norm(nn.Linear(4, 3))
    flow = capture(old, [torch.zeros(2, 4)])
    assert not flow.unread
    assert {op.path for op in flow.operations if op.op == PARAMETER} == {
        "bias", "weight_g", "weight_v",
    }  # fmt: skip


def test_hooks_of_the_module_do_not_run() -> None:
    module = nn.Linear(4, 3)
    module.register_forward_hook(lambda *_: pytest.fail("ran"))
    capture(module, [torch.zeros(2, 4)])
