from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import architecture_of, initial_module
from mmdb.graph.trace import call_tracer
from mmdb.graph.trace.call_tracer import trace
from mmdb.graph.trace.structure import NetworkGraph, common_prefix


def ops(structure: NetworkGraph) -> list[str]:
    return [node.op for node in structure.nodes]


def same(a: nn.Module, b: nn.Module) -> bool:
    return trace(a).canonical_hash == trace(b).canonical_hash


class Function(nn.Module):
    """A forward given as a function of (module, x)."""

    def __init__(self, forward: object, **parts: object) -> None:
        super().__init__()
        self.body = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> object:
        return self.body(self, x)  # type: ignore[operator]


def linear() -> nn.Linear:
    return nn.Linear(2, 2)


def hung_on_data(module: Function, x: Tensor) -> Tensor:
    y: Tensor = module.get_submodule("a")(x)
    return cast("Tensor", module.get_submodule("b")(y)) if y.sum() > 0 else y


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad


# -- what is seen -------------------------------------------------------------


def test_a_chain_of_layers_becomes_nodes_with_attributes_and_shapes() -> None:
    structure = trace(nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU()))
    assert ops(structure) == ["input", "conv2d", "batch_norm2d", "relu", "output"]
    conv, norm = structure.nodes[1:3]
    assert conv.path == "0"
    assert conv.attributes["stride"] == [2, 2]
    assert [(t.name, t.dtype, t.shape) for t in conv.parameters] == [
        ("weight", "float32", (4, 3, 3, 3)),
        ("bias", "float32", (4,)),
    ]
    assert conv.parameter_bytes == 4 * (108 + 4)
    assert [t.name for t in norm.parameters if t.is_buffer] == [
        "running_mean",
        "running_var",
        "num_batches_tracked",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (nn.ReLU(), Function(lambda m, x: functional.relu(x))),
        (nn.ReLU(inplace=True), Function(lambda m, x: x.relu_())),
        (nn.Flatten(), Function(lambda m, x: torch.flatten(x, 1))),
        (nn.Flatten(), Function(lambda m, x: x.flatten(start_dim=1))),
        (nn.Dropout(0.2), Function(lambda m, x: functional.dropout(x, 0.2, m.training))),
        (nn.MaxPool2d(2), Function(lambda m, x: functional.max_pool2d(x, 2))),
        (nn.GELU(), Function(lambda m, x: functional.gelu(x))),
        (nn.Softmax(-1), Function(lambda m, x: x.softmax(dim=-1))),
    ],
)
def test_a_layer_and_its_function_are_one_op(one: nn.Module, other: nn.Module) -> None:
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda m, x: x + m.a(x), lambda m, x: torch.add(m.a(x), x)),
        (lambda m, x: x * 2 + m.a(x), lambda m, x: m.a(x) + 2 * x),
        (lambda m, x: x.mean(1), lambda m, x: torch.mean(x, dim=[1])),
        (lambda m, x: torch.cat([x, m.a(x)], 1), lambda m, x: torch.concat((x, m.a(x)), dim=1)),
    ],
)
def test_two_ways_of_writing_one_call_are_equal(one: object, other: object) -> None:
    assert same(Function(one, a=linear()), Function(other, a=linear()))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda m, x: x - m.a(x), lambda m, x: m.a(x) - x),
        (lambda m, x: x - 1, lambda m, x: 1 - x),
        (lambda m, x: x.mean(1), lambda m, x: x.mean(1, keepdim=True)),
        (lambda m, x: torch.cat([x, m.a(x)], 1), lambda m, x: torch.cat([m.a(x), x], 1)),
        (lambda m, x: torch.add(x, m.a(x), alpha=2), lambda m, x: torch.add(m.a(x), x, alpha=2)),
        (lambda m, x: x.view(2, -1), lambda m, x: x.view(-1, 2)),
        (lambda m, x: x[:, 0], lambda m, x: x[0, :]),
        (lambda m, x: m.a(m.a(x)), lambda m, x: m.a(x)),
    ],
)
def test_calls_that_compute_something_else_differ(one: object, other: object) -> None:
    assert not same(Function(one, a=linear()), Function(other, a=linear()))


def test_one_module_called_twice_is_not_two_modules() -> None:
    tied = Function(lambda m, x: m.a(m.a(x)), a=linear())
    apart = Function(lambda m, x: m.b(m.a(x)), a=linear(), b=linear())
    assert not same(tied, apart)
    assert trace(tied).parameter_bytes == trace(apart).parameter_bytes / 2


def test_a_weight_of_two_layers_is_counted_once_and_seen_as_shared() -> None:
    tied = nn.Sequential(linear(), nn.Tanh(), linear())
    apart = copy.deepcopy(tied)
    tied.get_submodule("2").weight = tied.get_submodule("0").weight
    assert not same(tied, apart)
    assert trace(tied).parameter_bytes == trace(apart).parameter_bytes - 16
    assert [e.position for e in trace(tied).edges if (e.source, e.target) == (1, 3)] == [-1]


def test_names_and_the_order_of_registration_do_not_count() -> None:
    one = Function(lambda m, x: m.b(m.a(x)), a=nn.Linear(2, 3), b=nn.Linear(3, 2))
    other = Function(lambda m, x: m.y(m.x(x)), y=nn.Linear(3, 2), x=nn.Linear(2, 3))
    assert same(one, other)


def test_a_parameter_of_the_users_own_is_a_node_that_owns_it() -> None:
    module = Function(lambda m, x: x + m.shift, shift=nn.Parameter(torch.ones(2)))
    structure = trace(module)
    assert ops(structure) == ["input", "parameter", "add", "output"]
    assert structure.nodes[1].parameters[0].name == "shift"


def test_changes_in_place_reach_every_name_of_the_tensor() -> None:
    def changed(module: Function, x: Tensor) -> Tensor:
        y: Tensor = module.get_submodule("a")(x)
        other = y
        y += 1
        y.relu_()
        return other * 2

    plain = Function(lambda m, x: torch.relu(m.a(x) + 1) * 2, a=linear())
    assert same(Function(changed, a=linear()), plain)


def test_layers_that_the_forward_does_not_reach_are_kept() -> None:
    module = Function(lambda m, x: m.a(x), a=linear(), aux=nn.Linear(2, 5))
    structure = trace(module)
    assert structure.parameter_bytes == 4 * (6 + 15)
    assert common_prefix(structure, trace(Function(lambda m, x: m.a(x), a=linear()))).nodes == 2


def test_the_structure_is_the_same_in_training() -> None:
    module = Function(
        lambda m, x: m.a(x) if m.training else m.b(m.a(x)), a=linear(), b=nn.Linear(2, 3)
    )
    hashes = {trace(module.train(mode)).canonical_hash for mode in (True, False)}
    assert len(hashes) == 1


def test_several_inputs_and_outputs_are_kept_apart() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor, scale: float = 2.0) -> tuple[Tensor, Tensor]:
            return x * scale, y

    structure = trace(Two())
    assert ops(structure) == ["input", "input", "mul", "output"]
    assert ops(trace(Two(), ["x", "y", "scale"]))[:3] == ["input"] * 3


def test_an_encoder_is_seen_layer_by_layer() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    found = trace(nn.TransformerEncoder(layer, 3))
    assert ops(found) == ["input", *["transformer_encoder_layer"] * 3, "output"]
    assert {t.name for t in found.nodes[1].parameters} >= {"self_attn.in_proj_weight"}


def test_models_of_two_depths_share_their_first_blocks() -> None:
    a, b = (architecture_of("resnet", {"blocks": n}, (3, 8, 8), 10, SHIPPED) for n in (2, 3))
    shared = common_prefix(a, b)
    stem, block = 3, 8  # nodes; from the third block on, the second stage is another
    assert shared.nodes == stem + 2 * block
    assert 0 < shared.parameter_bytes < a.parameter_bytes


@pytest.mark.parametrize(
    ("name", "input_shape"),
    [
        ("linear", (3,)),
        ("mlp", (3,)),
        ("cnn", (1, 8, 8)),
        ("resnet", (8, 8)),
        ("transformer", (4,)),
    ],
)
def test_an_architecture_has_the_structure_of_its_module(
    name: str, input_shape: tuple[int, ...]
) -> None:
    state = torch.get_rng_state()
    structure = architecture_of(name, {}, input_shape, 2, SHIPPED)
    assert structure.is_traced
    module = initial_module(name, {}, input_shape, 2, SHIPPED, seed=1)
    assert trace(module).to_json() == structure.to_json()
    assert torch.equal(torch.get_rng_state(), state)


def off_meta(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Linear(int(torch.ones(2).sum().item()), outputs)


def test_a_factory_that_needs_real_tensors_has_a_structure_too() -> None:
    state = torch.get_rng_state()
    structure = architecture_of("own", {}, (2,), 3, {"own": f"{__name__}:off_meta"})
    assert structure.nodes[1].attributes["in_features"] == 2
    assert torch.equal(torch.get_rng_state(), state)


# -- what cannot be followed --------------------------------------------------


def test_control_flow_on_data_leaves_the_layers_in_the_order_of_the_tree() -> None:
    structure = trace(Function(hung_on_data, a=linear(), b=nn.Linear(2, 5)))
    assert not structure.is_traced
    assert ops(structure) == ["input", "untraced", "linear", "linear", "output"]


def test_a_forward_that_never_ends_leaves_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            while True:
                x = self.layer(x) + 0

    monkeypatch.setattr(call_tracer, "MOST_CALLS", 100)
    assert ops(trace(Endless())) == ["input", "untraced", "linear", "output"]


def test_only_the_part_that_cannot_be_followed_is_a_chain() -> None:
    inner = Function(hung_on_data, a=linear(), b=linear())
    structure = trace(nn.Sequential(linear(), inner, nn.ReLU()))
    assert ops(structure) == "input linear untraced linear linear relu output".split()


def test_a_gradient_of_its_own_is_no_traceable_op() -> None:
    apply: Callable[[Tensor], Tensor] = Straight.apply
    module = Function(lambda m, x: apply(m.a(x)), a=linear())
    assert not trace(module).is_traced


def no_forward(module: Function, x: Tensor) -> Tensor:
    raise RuntimeError("not today")


@pytest.mark.parametrize(
    "module",
    [
        nn.Module(),
        nn.Sequential(),
        nn.ModuleList([linear()]),
        nn.LazyLinear(3),
        nn.LSTM(2, 3),
        nn.DataParallel(linear()),
        torch.compile(nn.Sequential(linear()), backend="eager"),
        torch.fx.symbolic_trace(nn.Sequential(linear())),
        nn.utils.parametrizations.weight_norm(linear()),
        nn.ParameterList([nn.Parameter(torch.ones(2))]),
        Function(no_forward, a=linear()),
        Function(lambda m, x: {"y": m.a(x["x"]), "n": len(x["x"].shape)}, a=linear()),
        Function(lambda m, x: m.parts[0](x), parts=[nn.BatchNorm1d(2)]),
        Function(lambda m, x: m.a(x).numpy(), a=linear()),
        Function(lambda m, x: m.a(x) + object(), a=linear()),
    ],
    ids=lambda module: type(module).__name__,
)
def test_whatever_torch_takes_has_a_structure(module: nn.Module) -> None:
    structure = trace(module)
    assert ops(structure)[0] == "input"
    assert ops(structure)[-1] == "output"
    owned = {t.name for node in structure.nodes for t in node.parameters}
    assert len(owned) <= len(module.state_dict())
    assert bool(owned) == bool(module.state_dict())


# -- what is left alone -------------------------------------------------------


class Careless(nn.Module):
    """Changes itself and draws random numbers when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []
        self.calls = 0
        self.register_buffer("count", torch.zeros(2))
        self.plain = torch.zeros(2)
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        self.calls += 1
        self.get_buffer("count").add_(1)
        self.plain += 1
        if random.random() < 0.5:
            x = x + torch.randn(2)
        x = functional.dropout(x) + torch.rand(2, device="cpu") + self.plain
        return cast("Tensor", self.norm(x))


def test_the_module_and_the_generators_are_left_as_they_were() -> None:
    module = Careless().train()
    fired: list[object] = []
    module.norm.register_forward_hook(lambda *call: fired.append(call))
    everywhere = nn.modules.module.register_module_forward_hook(lambda *call: fired.append(call))
    before = copy.deepcopy(module.state_dict())
    states = torch.get_rng_state(), random.getstate()
    try:
        trace(module)
    finally:
        everywhere.remove()
    assert (module.seen, module.calls, fired) == ([], 0, [])
    assert all(part.training for part in module.modules())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(module.plain, torch.zeros(2))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()


def test_other_threads_run_the_same_module_undisturbed() -> None:
    module = nn.Sequential(*[linear() for _ in range(30)])
    expected = module(torch.ones(1, 2))
    results: list[Tensor] = []

    def run() -> None:
        for _ in range(50):
            results.append(module(torch.ones(1, 2)))

    other = threading.Thread(target=run)
    other.start()
    while other.is_alive():
        assert trace(module).is_traced
    other.join()
    assert len(results) == 50
    assert all(torch.equal(result, expected) for result in results)


def test_weights_are_not_read() -> None:
    with torch.device("meta"):
        huge = nn.Sequential(nn.Linear(2**20, 2**20), nn.Linear(2**20, 2))
    assert trace(huge).parameter_bytes == 4 * (2**40 + 2**20 + 2**21 + 2)


def test_ten_thousand_parameters_are_followed_and_hashed() -> None:
    layers = [part for _ in range(5000) for part in (nn.Linear(1, 1), nn.ReLU())]
    structure = trace(nn.Sequential(*layers))
    assert len(structure.nodes) == 10_002
    assert structure.prefixes[-1].depth == 10_001
    assert len(structure.canonical_hash) == 32
