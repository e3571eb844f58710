from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mmdb.errors import FactoryFailed
from mmdb.graph.factories import SHIPPED, cnn, mlp, resnet, transformer
from mmdb.graph.spec.build import build, check_output, initial_module, parameter_count
from mmdb.graph.tabular import tabular

VECTOR, PICTURE, IMAGE, TOKENS = (12,), (8, 8), (3, 9, 7), (5, 6)
READS = {
    "linear": [VECTOR, PICTURE, IMAGE, TOKENS],
    "mlp": [VECTOR, PICTURE, IMAGE, TOKENS],
    "cnn": [PICTURE, IMAGE, TOKENS, (1, 1, 1)],
    "resnet": [PICTURE, IMAGE, TOKENS],
    "transformer": [VECTOR, PICTURE, TOKENS, (1,)],
    "tabular": [VECTOR, PICTURE, (1,)],
}
CASES = [(name, shape) for name, shapes in READS.items() for shape in shapes]


def train_one_step(module: nn.Module, input_shape: tuple[int, ...], outputs: int) -> None:
    generator = torch.Generator().manual_seed(7)
    x = torch.rand(4, *input_shape, generator=generator)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    y = module.train()(x)
    assert y.shape == (4, outputs)
    target = torch.arange(4) % outputs
    loss = nn.functional.cross_entropy(y, target) if outputs > 1 else (y - 1).square().mean()
    loss.backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert parameter.grad.isfinite().all()
    optimizer.step()


def test_every_shipped_factory_is_tested_here() -> None:
    assert set(READS) == set(SHIPPED)


@pytest.mark.parametrize("outputs", [1, 10])
@pytest.mark.parametrize(("name", "input_shape"), CASES)
def test_a_factory_makes_a_module_that_trains(
    name: str, input_shape: tuple[int, ...], outputs: int
) -> None:
    module = initial_module(name, {}, input_shape, outputs, SHIPPED, seed=1)
    check_output(module, input_shape, outputs)
    train_one_step(module, input_shape, outputs)


@pytest.mark.parametrize(
    ("text", "input_shape"),
    [
        ("mlp(hidden=[32, 16], dropout=0.5, activation='gelu', batch_norm=True)", VECTOR),
        ("mlp(hidden=16, depth=3, activation='silu')", VECTOR),
        ("mlp(depth=2, activation='tanh')", VECTOR),
        ("cnn(width=4, depth=4, dropout=0.2)", IMAGE),
        ("resnet(width=4, blocks=2)", IMAGE),
        ("transformer(d_model=12, heads=3, layers=1, dropout=0.1)", TOKENS),
    ],
)
def test_a_factory_takes_its_arguments(text: str, input_shape: tuple[int, ...]) -> None:
    module = initial_module(text, {}, input_shape, 3, SHIPPED, seed=1)
    check_output(module, input_shape, 3)
    train_one_step(module, input_shape, 3)


def test_the_layers_of_a_transformer_begin_with_different_weights() -> None:
    module = initial_module("transformer", {}, TOKENS, 2, SHIPPED, seed=1)
    first, second = [m for m in module.modules() if isinstance(m, nn.TransformerEncoderLayer)]
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


def test_hidden_and_depth_set_the_number_of_layers() -> None:
    def sizes(module: nn.Module) -> list[int]:
        return [m.out_features for m in module.modules() if isinstance(m, nn.Linear)]

    assert sizes(mlp(VECTOR, 2)) == [64, 2]
    assert sizes(mlp(VECTOR, 2, depth=2)) == [64, 64, 2]
    assert sizes(mlp(VECTOR, 2, hidden=8, depth=3)) == [8, 8, 8, 2]
    assert sizes(mlp(VECTOR, 2, hidden=[8, 4])) == [8, 4, 2]
    assert sizes(mlp(VECTOR, 2, hidden=[8, 4], depth=2)) == [8, 4, 2]


def test_parameters_are_counted() -> None:
    assert parameter_count(mlp((10,), 2, hidden=[5])) == 10 * 5 + 5 + 5 * 2 + 2


@pytest.mark.parametrize(
    ("name", "arguments", "part"),
    [
        ("mlp", {"hidden": 0}, "hidden"),
        ("mlp", {"hidden": [8, "x"]}, "hidden"),
        ("mlp", {"hidden": "64"}, "hidden"),
        ("mlp", {"hidden": 6.5}, "hidden"),
        ("mlp", {"hidden": None}, "hidden"),
        ("mlp", {"hidden": []}, "hidden"),
        ("mlp", {"hidden": [8, 4], "depth": 3}, "contradict"),
        ("mlp", {"depth": -1}, "depth"),
        ("mlp", {"depth": 10**9}, "depth"),
        ("mlp", {"dropout": 1.0}, "dropout"),
        ("mlp", {"dropout": float("nan")}, "dropout"),
        ("mlp", {"dropout": "0.1"}, "dropout"),
        ("mlp", {"activation": "__import__"}, "activation"),
        ("mlp", {"activation": ["relu"]}, "activation"),
        ("mlp", {"batch_norm": 1}, "batch_norm"),
        ("mlp", {"hidden": 10**9}, "limit"),
        ("mlp", {"hidden": 2**31 - 1, "depth": 2}, "Storage|overflow"),
        ("transformer", {"d_model": 10, "heads": 4}, "multiple"),
        ("transformer", {"layers": True}, "layers"),
        ("mlp", {"width": 3}, "width"),
        ("mlp", {"input_shape": [3]}, "input_shape"),
        ("cnn", {}, "images"),
        ("resnet", {}, "images"),
    ],
)
def test_a_bad_argument_fails_with_its_name(
    name: str, arguments: dict[str, object], part: str
) -> None:
    with pytest.raises(FactoryFailed, match=part):
        build(name, arguments, VECTOR, 2, SHIPPED)


@pytest.mark.parametrize("factory", [cnn, resnet])
def test_a_flat_input_to_an_image_factory_suggests_the_shape(factory: object) -> None:
    assert callable(factory)
    for features, suggestion in [(784, "[1, 28, 28]"), (3072, "[3, 32, 32]"), (13, "[channels")]:
        with pytest.raises(FactoryFailed) as failed:
            factory((features,), 10)
        assert '"shape": ' + suggestion in failed.value.hint


def test_an_image_to_the_transformer_suggests_a_sequence() -> None:
    with pytest.raises(FactoryFailed, match="sequence") as failed:
        transformer(IMAGE, 2)
    assert "options.shape" in failed.value.hint


def test_wrong_argument_names_show_the_signature() -> None:
    with pytest.raises(FactoryFailed) as failed:
        build("resnet", {"widht": 3}, PICTURE, 2, SHIPPED)
    assert failed.value.hint.endswith("resnet(input_shape, outputs, *, width=16, blocks=1)")


@pytest.mark.parametrize(
    ("input_shape", "outputs"), [((), 2), ((0,), 2), ((3,), 0), ((True,), 2), ((2**20, 2**20), 2)]
)
def test_a_row_or_label_without_size_is_refused(input_shape: tuple[int, ...], outputs: int) -> None:
    with pytest.raises(FactoryFailed):
        build("linear", {}, input_shape, outputs, SHIPPED)


def test_a_cnn_halves_its_sides_after_the_first_convolution() -> None:
    head = list(cnn((1, 9, 7), 2, width=4, depth=3).modules())[-1]
    assert isinstance(head, nn.Linear)
    assert head.in_features == 16 * math.ceil(9 / 4) * math.ceil(7 / 4)


def test_members_of_an_ensemble_average_probabilities_where_it_is_asked() -> None:
    torch.manual_seed(0)
    module = tabular((3,), 4, ensemble=5, averages="probabilities", linear_gain=3.0).eval()
    x = torch.randn(6, 3)
    row = module.columns(x)  # type: ignore[operator]
    each = 3 * module.linear(row)[:, None] + module.deep(row)  # type: ignore[operator]
    torch.testing.assert_close(module(x).softmax(1), each.softmax(2).mean(1))


@pytest.mark.parametrize("arguments", [{"periodic": 1}, {"averages": "medians"}])
def test_what_tabular_does_not_know_is_named(arguments: dict[str, object]) -> None:
    with pytest.raises(FactoryFailed, match="periodic is"):
        tabular((3,), 4, **arguments)  # type: ignore[arg-type]
