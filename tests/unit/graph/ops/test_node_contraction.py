from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mmdb.errors import ArchitectureError
from mmdb.graph.factories import SHIPPED
from mmdb.graph.match.alignment import align
from mmdb.graph.match.pack import pack
from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.node_contraction import MOST_NODES, skeleton_of_architecture
from mmdb.graph.ops.op_contraction import skeleton_of
from mmdb.graph.ops.skeleton import LayerSkeleton
from mmdb.graph.spec.build import architecture_of
from mmdb.graph.trace.call_tracer import trace
from mmdb.graph.trace.structure import GraphNode, NetworkGraph, TensorSpec


class Function(nn.Module):
    """A forward given as a function of (module, x)."""

    def __init__(self, forward: object, **parts: object) -> None:
        super().__init__()
        self.body = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> object:
        return self.body(self, x)  # type: ignore[operator]


def outlined(module: nn.Module) -> LayerSkeleton:
    return skeleton_of_architecture(trace(module))


def kinds(outline: LayerSkeleton) -> list[str]:
    return [layer.kind for layer in outline.layers]


def linear(out: int = 4) -> nn.Linear:
    return nn.Linear(4, out)


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape))


# -- modules ------------------------------------------------------------------


def test_layers_read_the_layers_before_them_whatever_lies_between() -> None:
    found = outlined(
        nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)
        )
    )
    assert kinds(found) == ["conv2d", "batch_norm", "linear"]
    assert found.inputs == ((-1,), (0,), (1,))
    assert [layer.shape for layer in found.layers] == [(8, 3, 3, 3), (8,), (2, 8)]
    assert [layer.parameters for layer in found.layers] == [8 * 27 + 8, 16, 18]
    assert found.layers[1].tensors[2] == ("running_mean", "1.running_mean")


@pytest.mark.parametrize(
    ("layer", "kind", "groups"),
    [
        (nn.Conv2d(4, 8, 3, groups=2), "conv2d", 2),
        (nn.Conv1d(4, 4, 3, groups=4), "depthwise1d", 4),
        (nn.Conv2d(1, 4, 3), "conv2d", 1),
        (nn.ConvTranspose2d(4, 2, 3), "conv_transpose2d", 1),
        (nn.GroupNorm(2, 4), "group_norm", 1),
        (nn.InstanceNorm2d(4, affine=True), "instance_norm", 1),
        (nn.LayerNorm(4), "layer_norm", 1),
        (nn.RMSNorm(4), "rms_norm", 1),
        (nn.PReLU(), "prelu", 1),
        (nn.Embedding(5, 4), "embedding", 1),
        (nn.RNN(4, 4, nonlinearity="relu"), "rnn_relu", 1),
        (nn.LSTM(4, 4, 2), "lstm", 1),
    ],
)
def test_a_layer_has_its_kind_and_groups(layer: nn.Module, kind: str, groups: int) -> None:
    (found,) = outlined(layer).layers
    assert (found.kind, found.groups) == (kind, groups)
    assert found.parameters == sum(p.numel() for p in layer.parameters())


def test_results_meet_in_layers_without_tensors() -> None:
    found = outlined(
        Function(
            lambda m, x: torch.cat([m.a(x) + m.b(x), m.a(x) * torch.sigmoid(m.b(x))], 1),
            a=linear(),
            b=linear(),
        )
    )
    assert kinds(found) == ["linear", "linear", "add", "linear", "linear", "multiply", "concat"]
    assert found.inputs[2] == (0, 1)
    assert found.inputs[6] == (2, 5)
    assert [layer.parameters for layer in found.layers[3:5]] == [0, 0]  # called again


def test_a_result_added_to_itself_meets_nothing() -> None:
    assert kinds(outlined(Function(lambda m, x: m.a(x) + m.a(x).relu(), a=linear()))) == [
        "linear",
        "linear",
        "add",
    ]
    found = outlined(Function(lambda m, x: (lambda y: y + y.relu())(m.a(x)), a=linear()))
    assert kinds(found) == ["linear"]


def test_an_attention_is_its_projections() -> None:
    found = outlined(
        Function(lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(4, 2, batch_first=True))
    )
    assert kinds(found) == ["attention", "linear"]
    assert [layer.shape for layer in found.layers] == [(12, 4), (4, 4)]
    apart = nn.MultiheadAttention(4, 2, kdim=3, vdim=5)
    found = outlined(Function(lambda m, x: m.a(x, x, x)[0], a=apart))
    assert kinds(found) == ["linear"] * 4
    assert found.inputs == ((-1,), (-1,), (-1,), (0, 1, 2))


def test_a_projection_that_is_query_and_key_is_an_attention() -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        q, k, v = cast("nn.Module", m.qkv)(x).chunk(3, -1)
        return functional.scaled_dot_product_attention(q, k, v)

    assert kinds(outlined(Function(forward, qkv=linear(12)))) == ["attention"]


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_has_the_layers_that_torch_runs(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    before = "layer_norm attention linear add layer_norm linear linear add".split()
    after = "attention linear add layer_norm linear linear add layer_norm".split()
    found = outlined(layer)
    assert kinds(found) == (before if norm_first else after)
    assert found.inputs[3 if norm_first else 2] == ((-1, 2) if norm_first else (-1, 1))
    assert found.inputs[7 if norm_first else 6] == ((3, 6) if norm_first else (3, 5))
    assert found.parameters == sum(p.numel() for p in layer.parameters())


# -- bare parameters ----------------------------------------------------------


def test_a_parameter_that_is_added_or_multiplies_is_a_layer() -> None:
    module = Function(
        lambda m, x: (m.a(x) + m.place) * m.gain + m.shift,
        a=linear(), place=weight(3, 4), gain=weight(4), shift=weight(4),
    )  # fmt: skip
    assert kinds(outlined(module)) == ["linear", "embedding", "scale", "bias"]


def test_a_learned_token_is_a_layer_without_inputs() -> None:
    module = Function(
        lambda m, x: torch.cat([m.token.expand(2, 1, 4), m.a(x)], 1),
        a=linear(),
        token=weight(1, 1, 4),
    )
    found = outlined(module)
    assert kinds(found) == ["linear", "embedding", "concat"]
    assert found.inputs == ((-1,), (), (1, 0))


def test_a_product_with_a_parameter_is_a_linear_layer_with_its_bias() -> None:
    module = Function(lambda m, x: x @ m.w + m.b, w=weight(4, 6), b=weight(6))
    (found,) = outlined(module).layers
    assert (found.kind, found.shape, found.parameters) == ("linear_transposed", (4, 6), 30)
    turned = Function(lambda m, x: x @ m.w.t() + m.b, w=weight(6, 4), b=weight(6))
    assert kinds(outlined(turned)) == ["linear"]
    called = Function(lambda m, x: functional.linear(x, m.w, m.b), w=weight(6, 4), b=weight(6))
    assert kinds(outlined(called)) == ["linear"]


def test_a_convolution_called_as_a_function_has_its_groups() -> None:
    module = Function(lambda m, x: functional.conv2d(x, m.w, groups=4), w=weight(4, 1, 3, 3))
    (found,) = outlined(module).layers
    assert (found.kind, found.groups) == ("depthwise2d", 4)


def test_a_tied_weight_is_counted_once() -> None:
    module = nn.Sequential(linear(), nn.ReLU(), linear())
    module.get_submodule("2").weight = module.get_submodule("0").weight
    found = outlined(module)
    assert [layer.parameters for layer in found.layers] == [20, 4]
    head = Function(lambda m, x: functional.linear(m.e(x.long()), m.e.weight), e=nn.Embedding(7, 4))
    assert [layer.parameters for layer in outlined(head).layers] == [28, 0]


def test_what_the_forward_does_not_read_is_there() -> None:
    found = outlined(Function(lambda m, x: m.a(x), a=linear(), aux=linear(5)))
    assert kinds(found) == ["linear", "unread"]
    assert found.inputs == ((-1,), ())


def test_sizes_are_not_results() -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        y: Tensor = cast("nn.Module", m.a)(x)
        z: Tensor = cast("nn.Module", m.b)(y).reshape(x.shape[0], y.size(1)).view_as(y)
        last: Tensor = cast("nn.Module", m.c)(z * torch.ones_like(y))
        return last

    found = outlined(Function(forward, a=linear(), b=linear(), c=linear()))
    assert kinds(found) == ["linear"] * 3
    assert found.inputs == ((-1,), (0,), (1,))


def test_positions_that_a_module_looks_up_are_as_if_a_parameter_was_added() -> None:
    module = Function(
        lambda m, x: m.a(x + m.place(torch.arange(x.shape[1]))),
        a=linear(),
        place=nn.Embedding(9, 4),
    )
    assert kinds(outlined(module)) == ["embedding", "linear"]
    assert outlined(module).inputs == ((-1,), (0,))


def test_a_normalisation_called_as_a_function_is_a_layer() -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        n = cast("nn.BatchNorm1d", m.norm)
        y = functional.batch_norm(
            cast("nn.Module", m.a)(x), n.running_mean, n.running_var, n.weight, n.bias
        )
        last: Tensor = cast("nn.Module", m.b)(y)
        return last

    found = outlined(Function(forward, a=linear(), norm=nn.BatchNorm1d(4), b=linear()))
    assert kinds(found) == ["linear", "batch_norm", "linear"]
    assert found.inputs == ((-1,), (0,), (1,))
    assert found.layers[1].parameters == 8


def test_a_concatenation_goes_on_with_an_earlier_one() -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        a, b, c = (cast("nn.Module", getattr(m, name))(x) for name in "abc")
        return torch.cat([a, b], 1).sum() + torch.cat([a, b, c], 1).sum()

    found = outlined(Function(forward, a=linear(), b=linear(), c=linear()))
    assert kinds(found)[3:] == ["concat", "concat", "add"]
    assert found.inputs[3:5] == ((0, 1), (3, 2))


# -- whole models -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "input_shape"),
    [
        ("linear", (3,)),
        ("mlp", (3,)),
        ("cnn", (1, 8, 8)),
        ("resnet", (3, 8, 8)),
        ("transformer", (4, 6)),
    ],
)
def test_a_structure_and_a_forward_give_the_same_outline(
    name: str, input_shape: tuple[int, ...]
) -> None:
    from mmdb.graph.spec.build import initial_module

    module = initial_module(name, {}, input_shape, 2, SHIPPED, seed=1)
    ours = skeleton_of_architecture(architecture_of(name, {}, input_shape, 2, SHIPPED))
    theirs = skeleton_of(capture(module, [torch.zeros(2, *input_shape)]))
    assert kinds(ours) == kinds(theirs)
    assert ours.inputs == theirs.inputs
    assert [(a.shape, a.groups, a.parameters) for a in ours.layers] == [
        (b.shape, b.groups, b.parameters) for b in theirs.layers
    ]
    assert align(pack(ours), pack(theirs)).score == 1.0


@pytest.mark.parametrize(
    "module",
    [
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3),
        nn.TransformerDecoderLayer(8, 2, 16),
        nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
        nn.LSTM(3, 4, 2, bidirectional=True),
        nn.Bilinear(2, 3, 4),
        nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)),
        nn.ParameterList([nn.Parameter(torch.ones(2))]),
        Function(lambda m, x: m.a(x) if x.sum() > 0 else x, a=nn.Linear(2, 3)),
        nn.Sequential(),
        nn.LazyLinear(3),
    ],
    ids=lambda module: type(module).__name__,
)
def test_every_parameter_is_in_a_layer(module: nn.Module) -> None:
    lazy = isinstance(module, nn.LazyLinear)
    expected = 0 if lazy else sum(p.numel() for p in module.parameters())
    found = outlined(module)
    assert found.parameters == expected + (2 if lazy else 0)
    assert pack(found) is not None


def without_paths(structure: NetworkGraph) -> NetworkGraph:
    """Return a structure as a database has it: through JSON, without paths."""
    nodes = []
    for node in structure.nodes:
        specs = json.loads(json.dumps([asdict(spec) for spec in node.parameters]))
        nodes.append(
            replace(
                node,
                path="",
                attributes=json.loads(json.dumps(node.attributes, sort_keys=True)),
                parameters=tuple(TensorSpec(**(s | {"shape": tuple(s["shape"])})) for s in specs),
            )
        )
    return NetworkGraph(nodes=tuple(nodes), edges=structure.edges)


@pytest.mark.parametrize(
    "module",
    [
        nn.TransformerEncoderLayer(8, 2, 16),
        nn.MultiheadAttention(4, 2, kdim=3, vdim=5),
        Function(lambda m, x: x @ m.w.T + m.b, w=weight(6, 4), b=weight(6)),
        Function(lambda m, x: functional.conv2d(x, m.w, groups=4), w=weight(4, 1, 3, 3)),
    ],
)
def test_a_structure_from_a_database_gives_the_same_outline(module: nn.Module) -> None:
    structure = trace(module)
    ours, theirs = (
        skeleton_of_architecture(structure),
        skeleton_of_architecture(without_paths(structure)),
    )
    assert pack(ours).to_bytes() == pack(theirs).to_bytes()


def test_too_many_nodes_are_refused() -> None:
    nodes = tuple(GraphNode(ordinal=k, path="", op="relu") for k in range(MOST_NODES + 1))
    with pytest.raises(ArchitectureError, match="50001 nodes"):
        skeleton_of_architecture(NetworkGraph(nodes=nodes, edges=()))
