from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.op_contraction import skeleton_of
from mmdb.graph.ops.skeleton import (
    ADD,
    CONCAT,
    MODEL_INPUT,
    MULTIPLY,
    UNREAD,
    LayerSkeleton,
    SkeletonLayer,
)
from tests.unit.graph.ops.networks import (
    NETWORKS,
    Dense,
    Function,
    Gate,
    Grouped,
    Language,
    Packed,
    Residual,
    Shuffle,
    Vision,
    example_inputs,
)


def outline(module: nn.Module, shape: tuple[int, ...]) -> LayerSkeleton:
    return skeleton_of(capture(module, example_inputs(module, shape)))


def of_function(
    body: Callable[..., object], shape: tuple[int, ...] = (4,), **parts: nn.Module | nn.Parameter
) -> LayerSkeleton:
    return skeleton_of(capture(Function(body, **parts), [torch.zeros(2, *shape)]))


def kinds(found: LayerSkeleton) -> list[str]:
    return [layer.kind for layer in found.layers]


def sources(found: LayerSkeleton, layer: SkeletonLayer) -> list[str]:
    """Return the paths of what a layer reads; of meetings their kinds."""
    return [
        "input" if one == MODEL_INPUT else found.layers[one].path or found.layers[one].kind
        for one in found.inputs[layer.ordinal]
    ]


def at(found: LayerSkeleton, path: str) -> SkeletonLayer:
    return next(layer for layer in found.layers if layer.path == path and layer.tensors)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_tensor_is_in_a_layer_and_parameters_are_counted_once(name: str) -> None:
    build, shape = NETWORKS[name]
    module = build()
    found = outline(module, shape)
    held = {path for layer in found.layers for _, path in layer.tensors}
    assert held == set(dict(module.named_parameters())) | set(dict(module.named_buffers()))
    assert found.parameters == sum(one.numel() for one in module.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_read_earlier_ones(name: str) -> None:
    build, shape = NETWORKS[name]
    found = outline(build(), shape)
    assert len(found.inputs) == len(found.layers)
    for number, (layer, read) in enumerate(zip(found.layers, found.inputs, strict=True)):
        assert layer.ordinal == number
        assert all(MODEL_INPUT <= one < number for one in read)
        assert len(set(read)) == len(read)


def test_a_chain_of_layers() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    assert outline(module, (4,)) == LayerSkeleton(
        layers=(
            SkeletonLayer(
                ordinal=0,
                kind="linear",
                path="0",
                tensors=(("weight", "0.weight"), ("bias", "0.bias")),
                shape=(6, 4),
                parameters=30,
            ),
            SkeletonLayer(
                ordinal=1,
                kind="linear",
                path="2",
                tensors=(("weight", "2.weight"), ("bias", "2.bias")),
                shape=(2, 6),
                parameters=14,
            ),
        ),
        inputs=((MODEL_INPUT,), (0,)),
    )


def test_a_residual_block_meets_its_shortcut() -> None:
    found = outline(Residual(depth=1), (3, 32, 32))
    assert kinds(found) == [
        "conv2d", "batch_norm", "conv2d", "batch_norm", "conv2d", ADD, "linear",
    ]  # fmt: skip
    (meeting,) = (layer for layer in found.layers if layer.kind == ADD)
    assert meeting.path == "blocks.0"
    assert sources(found, meeting) == ["norm", "blocks.0.b"]
    assert at(found, "norm").tensors == tuple(
        (name, f"norm.{name}")
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    )


@given(st.integers(1, 24))
@settings(max_examples=8, deadline=None)
def test_edges_of_a_residual_chain_grow_as_its_layers(depth: int) -> None:
    found = outline(Residual(width=2, depth=depth), (3, 8, 8))
    assert len(found.layers) == 3 + 4 * depth
    assert sum(map(len, found.inputs)) == 3 + 5 * depth


def test_edges_stay_few_where_results_meet_without_an_addition() -> None:
    def body(module: nn.Module, x: Tensor) -> Tensor:
        for part in module.children():
            x = torch.maximum(x, part(x))
        return x

    found = of_function(body, (4,), **{f"a{i}": nn.Linear(4, 4) for i in range(40)})
    assert sum(map(len, found.inputs)) < 4 * len(found.layers)


def test_a_concatenation_reads_what_it_joins() -> None:
    found = outline(Dense(depth=2), (3, 32, 32))
    assert kinds(found) == ["conv2d", "conv2d", CONCAT, "conv2d", CONCAT]
    assert found.inputs == ((MODEL_INPUT,), (0,), (0, 1), (2,), (2, 3))


def test_dense_blocks_are_the_same_however_they_concatenate() -> None:
    def body(module: nn.Module, x: Tensor) -> Tensor:
        found = [x := module.get_submodule("stem")(x)]
        for part in module.get_submodule("layers").children():
            found.append(part(torch.cat(found, 1)))
        return torch.cat(found, 1)

    dense = Dense(depth=6)
    by_list = of_function(body, (3, 32, 32), stem=dense.stem, layers=dense.layers)
    assert by_list.inputs == outline(dense, (3, 32, 32)).inputs
    assert sum(map(len, by_list.inputs)) < 2 * len(by_list.layers)


def test_a_gate_multiplies() -> None:
    found = outline(Gate(), (3, 8, 8))
    assert kinds(found) == ["conv2d", "linear", "linear", MULTIPLY]
    assert found.inputs[3] == (0, 2)


def test_both_halves_of_a_split_come_from_one_layer() -> None:
    found = outline(Shuffle(), (3, 8, 8))
    assert kinds(found) == ["conv2d", "conv2d", CONCAT, "conv2d"]
    assert found.inputs == ((MODEL_INPUT,), (0,), (0, 1), (2,))


def test_what_comes_of_one_layer_meets_nowhere() -> None:
    found = of_function(lambda m, x: (y := m.a(x)) * y.sigmoid() + y, a=nn.Linear(4, 4))
    assert kinds(found) == ["linear"]


def test_convolutions_are_told_apart() -> None:
    build, shape = NETWORKS["separable"]
    found = outline(build(), shape)
    assert kinds(found) == ["depthwise2d", "conv2d", "conv2d", "conv_transpose2d"]
    assert [layer.groups for layer in found.layers] == [8, 1, 4, 1]


def test_a_packed_projection_is_an_attention() -> None:
    found = outline(Language(lambda: Packed(8, 2)), (16,))
    assert at(found, "attention.qkv").kind == "attention"
    assert sources(found, at(found, "attention.out")) == ["attention.qkv"]
    vision = outline(Vision(), (3, 32, 32))
    assert at(vision, "encoder.self_attn").kind == "attention"
    assert at(vision, "encoder.self_attn").tensors[0] == (
        "weight",
        "encoder.self_attn.in_proj_weight",
    )


def test_attention_of_three_projections_is_read_as_three() -> None:
    found = outline(Language(lambda: Grouped(8, 4, 2)), (16,))
    expected = ["attention.q", "attention.k", "attention.v"]
    assert sources(found, at(found, "attention.out")) == expected
    assert [at(found, path).kind for path in expected] == ["linear"] * 3


def test_bare_parameters_are_layers() -> None:
    found = outline(Language(lambda: Packed(8, 2)), (16,))
    assert kinds(found) == [
        "embedding", "embedding", "rms_norm", "attention", "linear", "scale", ADD, "layer_norm",
        "linear",
    ]  # fmt: skip
    assert [layer.path for layer in found.layers if layer.kind == "scale"] == [""]
    assert found.layers[1].tensors == (("bias", "position"),)


def test_a_class_token_is_a_layer_without_inputs() -> None:
    found = outline(Vision(), (3, 32, 32))
    token = next(layer for layer in found.layers if ("token", "token") in layer.tensors)
    assert token.kind == "embedding" and found.inputs[token.ordinal] == ()
    meeting = next(layer for layer in found.layers if layer.kind == CONCAT)
    assert found.inputs[meeting.ordinal] == (token.ordinal, 0)


def test_tied_weights_count_once() -> None:
    found = outline(Language(lambda: Packed(8, 2)), (16,))
    assert found.layers[0].parameters == 32 * 8
    assert found.layers[-1].tensors == (("weight", "embed.weight"),)
    assert found.layers[-1].parameters == 0


def test_a_layer_that_runs_twice_is_there_twice() -> None:
    found = of_function(lambda m, x: m.a(m.a(x).relu()), a=nn.Linear(4, 4))
    assert kinds(found) == ["linear", "linear"]
    assert [layer.parameters for layer in found.layers] == [20, 0]


def test_unread_tensors_are_layers_without_inputs() -> None:
    found = of_function(lambda m, x: m.a(x), a=nn.Linear(4, 4), b=nn.Linear(3, 5))
    assert kinds(found) == ["linear", UNREAD]
    assert found.layers[1].tensors == (("weight", "b.weight"), ("bias", "b.bias"))
    assert found.inputs[1] == () and found.layers[1].parameters == 20


def test_a_bias_that_is_added_by_hand_joins_its_layer() -> None:
    class ByHand(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            x = x - x.mean(-1, keepdim=True)
            return self.weight * (x / (x.var(-1, keepdim=True) + 1e-5).sqrt()) + self.bias

    (layer,) = outline(nn.Sequential(ByHand()), (4,)).layers
    assert layer.kind == "layer_norm"
    assert layer.tensors == (("weight", "0.weight"), ("bias", "0.bias"))


def test_a_weight_that_is_computed_has_its_parameters() -> None:
    module = nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 6, 3))
    (layer,) = outline(module, (4, 8, 8)).layers
    assert layer.kind == "conv2d" and layer.shape == (6, 4, 3, 3)
    assert {role for role, _ in layer.tensors} == {"original0", "original1", "bias"}
    assert layer.parameters == sum(one.numel() for one in module.parameters())


@pytest.mark.parametrize(
    ("kind", "body", "part"),
    [
        ("linear_transposed", lambda m, x: torch.addmm(m.p[0], x, m.p), (4, 4)),
        ("linear_transposed", lambda m, x: x @ m.p, (4, 3)),
        ("batched_linear", lambda m, x: x.expand(5, 2, 4).bmm(m.p), (5, 4, 3)),
        ("matmul_left", lambda m, x: m.p @ x.t(), (3, 4)),
        ("einsum", lambda m, x: torch.einsum("bi,ijk->bjk", x, m.p), (4, 3, 2)),
        ("prelu", lambda m, x: functional.prelu(x, m.p), (4,)),
        ("scale", lambda m, x: x * m.p, (4,)),
        ("bias", lambda m, x: x + m.p, (4,)),
        ("embedding", lambda m, x: x + m.p, (2, 4)),
        ("embedding", lambda m, x: functional.embedding(x.long(), m.p), (3, 4)),
    ],
)
def test_kinds(kind: str, body: Callable[..., object], part: tuple[int, ...]) -> None:
    found = of_function(body, p=nn.Parameter(torch.zeros(part)))
    assert kinds(found)[0] == kind
    assert found.parameters == torch.zeros(part).numel()
