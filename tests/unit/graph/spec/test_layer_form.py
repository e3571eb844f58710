from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import initial_module
from mmdb.graph.spec.layer_form import to_layer_graph
from mmdb.graph.spec.layer_graph import build_layers, build_sized_layers


class InvertedResidual(nn.Module):
    """As in MobileNetV2."""

    def __init__(self, before: int, after: int, *, stride: int, expand: int) -> None:
        super().__init__()
        hidden = before * expand
        self.adds = stride == 1 and before == after
        parts: list[nn.Module] = []
        if expand != 1:
            parts.append(self.unit(before, hidden, 1))
        parts.append(self.unit(hidden, hidden, 3, stride, groups=hidden))
        self.conv = nn.Sequential(
            *parts, nn.Conv2d(hidden, after, 1, bias=False), nn.BatchNorm2d(after)
        )

    @staticmethod
    def unit(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
        conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU6(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.adds else y


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            InvertedResidual.unit(3, 8, 3, 2),
            InvertedResidual(8, 8, stride=1, expand=1),
            InvertedResidual(8, 12, stride=2, expand=6),
            InvertedResidual(12, 12, stride=1, expand=6),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(12, 10))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(torch.flatten(x, 1))  # type: ignore[no-any-return]


class Block(nn.Module):
    """As in ResNet: the projection is registered last and runs before the sum."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        same = before == after
        self.downsample = None if same else nn.Sequential(nn.Conv2d(before, after, 1))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)  # type: ignore[no-any-return]


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 3, padding="same")
        self.fc = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        x = functional.relu(self.conv1(x))
        x = functional.max_pool2d(x + functional.silu(self.conv2(x)), 2)
        x = functional.dropout(x, 0.3, self.training)
        return self.fc(x.view(rows, -1))  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.mix(x, x, x, need_weights=False)
        return self.norm(x + y).mean(dim=1)  # type: ignore[no-any-return]


class Twice(nn.Module):
    """One layer called twice, and registered under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = self.first

    def forward(self, x: Tensor) -> Tensor:
        return self.again(torch.tanh(self.first(x)))  # type: ignore[no-any-return]


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, nn.LayerNorm(8)), nn.Linear(8, 2))


def common_layers() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, (3, 1), stride=2, dilation=(1, 2), groups=1),
        nn.GroupNorm(2, 8, eps=1e-3),
        nn.LeakyReLU(0.3),
        nn.AvgPool2d(2, stride=1),
        nn.Conv2d(8, 8, 1, bias=False),
        nn.BatchNorm2d(8, eps=1e-4, momentum=0.3),
        nn.Hardswish(),
        nn.Dropout2d(0.2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Sequential(nn.Linear(32, 6), nn.ELU(0.7), nn.Identity(), nn.LayerNorm(6)),
        nn.Unflatten(1, (2, 3)),
        nn.Conv1d(2, 2, 2),
        nn.BatchNorm1d(2),
        nn.GELU("tanh"),
        nn.MaxPool1d(2),
        nn.Softmax(1),
    )


def shipped(
    name: str, input_shape: tuple[int, ...], **arguments: object
) -> Callable[[], nn.Module]:
    return lambda: initial_module(name, arguments, input_shape, 3, SHIPPED, seed=0)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "common layers": (common_layers, (3, 12, 12)),
    "blocks of ResNet": (lambda: nn.Sequential(Block(3, 4), Block(4, 4)), (3, 6, 6)),
    "MobileNetV2": (MobileNet, (3, 16, 16)),
    "functions": (Functional, (1, 8, 8)),
    "attention": (Attention, (5, 8)),
    "encoder": (encoder, (5, 8)),
    "one layer twice": (Twice, (4,)),
    "linear": (shipped("linear", (3,)), (3,)),
    "mlp": (shipped("mlp", (5,), hidden=[8, 9], dropout=0.1, batch_norm=True), (5,)),
    "cnn": (shipped("cnn", (8, 8), depth=3, dropout=0.2), (8, 8)),
    "resnet": (shipped("resnet", (3, 8, 8), width=4, blocks=2), (3, 8, 8)),
    "transformer": (shipped("transformer", (5, 3), d_model=8, heads=2, dropout=0.1), (5, 3)),
    "flat transformer": (shipped("transformer", (5,), d_model=8, heads=2), (5,)),
}


def rebuilt(module: nn.Module) -> nn.Module:
    """Return the module again, from JSON and tensors alone."""
    form = to_layer_graph(module)
    assert form.graph is not None, form.reason
    with torch.device("meta"):
        again = build_sized_layers(json.loads(json.dumps(form.graph)))
    again.load_state_dict(module.state_dict(), assign=True)
    return again


@pytest.fixture
def seeded() -> Callable[[nn.Module, Tensor], Tensor]:
    """Run a module on a generator seeded with 0; dropout draws from torch's own."""

    def run(module: nn.Module, x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return module(x)  # type: ignore[no-any-return]

    return run


@pytest.mark.parametrize(("make", "input_shape"), MODULES.values(), ids=MODULES.keys())
def test_the_rebuilt_module_has_the_same_tensors_results_and_gradients(
    make: Callable[[], nn.Module],
    input_shape: tuple[int, ...],
    seeded: Callable[[nn.Module, Tensor], Tensor],
) -> None:
    module = make()
    again = rebuilt(module)
    assert list(again.state_dict()) == list(module.state_dict())
    names = [[name for name, _ in side.named_parameters()] for side in (module, again)]
    assert names[0] == names[1]
    x = torch.rand(4, *input_shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(module.eval()(x.clone()), again.eval()(x.clone()))
    results = [seeded(side.train(), x.clone()) for side in (module, again)]
    assert torch.equal(results[0], results[1])
    for result in results:
        result.square().sum().backward()
    for ours, theirs in zip(again.parameters(), module.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad)


def test_the_graph_can_also_be_built_for_an_inputs_shape() -> None:
    module = common_layers()
    graph = to_layer_graph(module).graph
    assert graph is not None
    again = build_layers(graph, {}, (3, 12, 12), 1)
    assert list(again.state_dict()) == list(module.state_dict())


def test_a_layer_called_twice_stays_one_module() -> None:
    again = rebuilt(Twice())
    assert again.get_submodule("first") is again.get_submodule("again")
    assert len(list(again.parameters())) == 2


def test_dtypes_come_from_the_tensors() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).bfloat16()
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    assert torch.equal(rebuilt(module)(x), module(x))


# -- what no layer graph can say ----------------------------------------------


class Forward(nn.Module):
    """Two linear layers and a forward of its own."""

    def __init__(self, forward: Callable[[Forward, Tensor], object]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.body = forward

    def forward(self, x: Tensor) -> object:
        return self.body(self, x)


class OwnTrain(nn.Sequential):
    def train(self, mode: bool = True) -> OwnTrain:
        return super().train(False)


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2))
    module[0].register_forward_hook(lambda *call: None)
    return module


def hooked_weight() -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2))
    module[0].get_parameter("weight").register_hook(lambda grad: grad * 2)
    return module


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    return module


def no_grad(module: Forward, x: Tensor) -> Tensor:
    with torch.no_grad():
        x = module.a(x)
    return module.b(x)  # type: ignore[no-any-return]


def changes_a_view(module: Forward, x: Tensor) -> Tensor:
    y = module.a(x)
    rows = y.flatten(1)
    y += module.b(x)
    return rows * y  # type: ignore[no-any-return]


def on_data(module: Forward, x: Tensor) -> Tensor:
    return module.a(x) if x.sum() > 0 else module.b(x)  # type: ignore[no-any-return]


def drawn(module: Forward, x: Tensor) -> Tensor:
    return module.b(module.a(x) if random.random() < 2 else x)  # type: ignore[no-any-return]


def both(call: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    return lambda: Forward(lambda module, x: module.b(call(module.a(x))))


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a hook": (hooked, r"0 \(Linear\) has hooks"),
    "a hook on a weight": (hooked_weight, "0.weight has hooks"),
    "a weight of two layers": (tied, "0.weight and 1.weight are one tensor"),
    "a parametrization": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))),
        "0",
    ),
    "a lazy layer": (lambda: nn.Sequential(nn.LazyLinear(3)), "hooks|shape"),
    "a single layer": (lambda: nn.Linear(2, 2), "put it into nn.Sequential"),
    "no layer": (nn.Sequential, "no layers"),
    "a layer of no op": (lambda: nn.Sequential(nn.PReLU()), "what prelu does"),
    "a recurrent layer": (lambda: nn.Sequential(nn.LSTM(2, 2)), "what lstm does"),
    "a padding mode": (
        lambda: nn.Sequential(nn.Conv2d(2, 2, 1, padding_mode="circular")),
        "circular",
    ),
    "a padding index": (lambda: nn.Sequential(nn.Embedding(3, 2, padding_idx=0)), "padding_idx"),
    "no running statistics": (
        lambda: nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False)),
        "running_mean is None|track_running_stats",
    ),
    "a dilated pool": (lambda: nn.Sequential(nn.MaxPool2d(2, dilation=2)), "dilation"),
    "a dilated pool as a function": (
        both(lambda x: functional.max_pool2d(x, 2, dilation=2)),
        "dilation 2",
    ),
    "tokens first": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8)),
        "batch_first is False",
    ),
    "another activation": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(4, 2, 8, activation=functional.silu, batch_first=True)
        ),
        "neither relu nor gelu",
    ),
    "dropout in place": (lambda: nn.Sequential(nn.Dropout(0.1, inplace=True)), "in place"),
    "dropout in every mode": (both(lambda x: functional.dropout(x, 0.1)), "training mode"),
    "a change of a shared result": (
        lambda: nn.Sequential(nn.Linear(2, 2), nn.Identity(), nn.ReLU(inplace=True)),
        "in place",
    ),
    "a change of a result that has a view": (lambda: Forward(changes_a_view), "in place"),
    "no gradients in a part": (lambda: Forward(no_grad), "without gradients"),
    "a detached part": (both(lambda x: x.detach()), "what detach does"),
    "control flow on data": (lambda: Forward(on_data), "cannot be followed"),
    "control flow at random": (lambda: Forward(drawn), "random numbers"),
    "another forward in training": (
        lambda: Forward(lambda m, x: m.b(m.a(x)) if m.training else m.a(m.b(x))),
        "another one in training",
    ),
    "a train method": (lambda: OwnTrain(nn.Linear(2, 2)), "its own train"),
    "a layer not reached": (lambda: Forward(lambda m, x: m.a(x)), "b.weight is reached by no"),
    "two results": (lambda: Forward(lambda m, x: (m.a(x), m.b(x))), "not return one tensor"),
    "the batch averaged": (both(lambda x: x.mean(0, keepdim=True)), "batch's dimension"),
    "a scaled sum": (both(lambda x: torch.add(x, x, alpha=2)), "alpha|args"),
    "a constant": (both(lambda x: x * 2), "other 2|takes 2"),
    "a slice": (both(lambda x: x[:, :4]), "what getitem does"),
    "a shape without the batch": (both(lambda x: x.view(-1, 4)), "keep the batch"),
    "the batch's size as a number": (both(lambda x: x * x.size(0)), "no layer has"),
    "attention with weights": (
        lambda: nn.Sequential(Attended(nn.MultiheadAttention(4, 2, batch_first=True))),
        "need_weights",
    ),
}


class Attended(nn.Module):
    def __init__(self, mix: nn.Module) -> None:
        super().__init__()
        self.mix = mix

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x, x, x)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_no_layer_graph_can_say_exactly_is_refused_with_the_reason(
    make: Callable[[], nn.Module], reason: str
) -> None:
    form = to_layer_graph(make())
    assert form.graph is None
    assert re.search(reason, form.reason), form.reason
