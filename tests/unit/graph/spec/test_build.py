from __future__ import annotations

import random
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from mmdb.errors import FactoryFailed, OutputMismatch, UnknownFactory
from mmdb.graph.factories import SHIPPED, mlp
from mmdb.graph.spec.build import build, check_output, initial_module, resolve

GRAPH: dict[str, object] = {
    "layers": [
        {"name": "fc1", "op": "Linear", "args": {"out_features": 8}},
        {"name": "drop", "op": "Dropout"},
        {"name": "fc2", "op": "Linear", "args": {"out_features": "$outputs"}},
    ]
}
ARCHITECTURES: list[tuple[str | dict[str, object], tuple[int, ...]]] = [
    ("linear", (6,)),
    ("mlp(dropout=0.5)", (6,)),
    ("cnn(dropout=0.5)", (6, 6)),
    ("resnet", (6, 6)),
    ("transformer(dropout=0.5)", (6, 6)),
    (GRAPH, (6,)),
]


class TakesNoBatch(nn.Module):
    """A model whose forward raises."""

    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("embedding")


class Returns(nn.Module):
    """A model that returns what it was given at the start."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result

    def forward(self, x: Tensor) -> object:
        return self.result


def no_module(input_shape: tuple[int, ...], outputs: int) -> object:
    return {"not": "a module"}


def raises(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    raise ZeroDivisionError("width over heads")


def exits(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    sys.exit("out of here")


def lazy(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.LazyLinear(outputs)


@pytest.fixture
def own() -> Iterator[dict[str, str]]:
    """A registered package of the owner's, with factories good and bad."""
    package = types.ModuleType("owners_package")
    for value in (no_module, raises, exits, lazy):
        setattr(package, value.__name__, value)
    package.__dict__["good"] = mlp
    package.__dict__["number"] = 3
    sys.modules["owners_package"] = package
    names = ("no_module", "raises", "exits", "lazy", "good")
    yield {name: f"owners_package:{name}" for name in names}
    del sys.modules["owners_package"]


def bits(module: nn.Module) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in module.state_dict().values()]


# -- seeds --------------------------------------------------------------------


@pytest.mark.parametrize(("architecture", "input_shape"), ARCHITECTURES)
def test_the_same_seed_gives_the_same_bits(
    architecture: str | dict[str, object], input_shape: tuple[int, ...]
) -> None:
    first, again, other = (
        initial_module(architecture, {}, input_shape, 3, SHIPPED, seed=seed) for seed in (5, 5, 6)
    )
    assert bits(first) == bits(again)
    assert bits(first) != bits(other)


@pytest.mark.parametrize(("architecture", "input_shape"), ARCHITECTURES)
def test_the_global_generators_are_left_as_they_were(
    architecture: str | dict[str, object], input_shape: tuple[int, ...]
) -> None:
    before, python_before = torch.get_rng_state(), random.getstate()
    module = initial_module(architecture, {}, input_shape, 3, SHIPPED, seed=5)
    check_output(module, input_shape, 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert random.getstate() == python_before


def test_the_generator_is_restored_after_an_error(own: dict[str, str]) -> None:
    before = torch.get_rng_state()
    with pytest.raises(FactoryFailed):
        initial_module("raises", {}, (3,), 2, own, seed=5)
    with pytest.raises(FactoryFailed):
        check_output(TakesNoBatch(), (3,), 2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("architecture", "input_shape"), ARCHITECTURES)
def test_build_draws_from_the_current_generator(
    architecture: str | dict[str, object], input_shape: tuple[int, ...]
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        built = build(architecture, {}, input_shape, 3, SHIPPED)
    seeded = initial_module(architecture, {}, input_shape, 3, SHIPPED, seed=5)
    assert bits(built) == bits(seeded)


def test_threads_that_build_at_once_get_the_bits_of_their_seeds() -> None:
    alone = {
        seed: bits(initial_module("mlp", {}, (6,), 3, SHIPPED, seed=seed)) for seed in range(4)
    }
    start = threading.Barrier(4)

    def build_many(seed: int) -> bool:
        start.wait()
        for _ in range(20):
            module = initial_module("mlp", {}, (6,), 3, SHIPPED, seed=seed)
            check_output(module, (6,), 3)
            if bits(module) != alone[seed]:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(build_many, range(4)))


# -- factories ----------------------------------------------------------------


def test_the_candidates_arguments_override_the_architectures() -> None:
    module = build("mlp(hidden=4, depth=2)", {"hidden": 5}, (3,), 2, SHIPPED)
    widths = [m.out_features for m in module.modules() if isinstance(m, nn.Linear)]
    assert widths == [5, 5, 2]


def test_a_registered_factory_is_called(own: dict[str, str]) -> None:
    check_output(build("good", {"hidden": 4}, (3,), 2, own), (3,), 2)


def test_an_unknown_factory_lists_the_close_names() -> None:
    with pytest.raises(UnknownFactory, match="'resnt'; did you mean resnet"):
        build("resnt", {}, (3,), 2, SHIPPED)
    with pytest.raises(UnknownFactory, match="did you mean cnn or linear"):
        build("zzzz", {}, (3,), 2, SHIPPED)
    with pytest.raises(UnknownFactory, match="nor any other"):
        build("mlp", {}, (3,), 2, {})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "raises raised ZeroDivisionError: width over heads"),
        ("exits", "exits raised SystemExit: out of here"),
        ("no_module", "returned a dict"),
        ("lazy", "lazy layers"),
    ],
)
def test_a_factory_that_fails_is_named_with_its_error(
    own: dict[str, str], name: str, message: str
) -> None:
    with pytest.raises(FactoryFailed, match=message) as failed:
        build(name, {}, (3,), 2, own)
    if name == "raises":
        assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_every_shipped_target_resolves_to_its_factory() -> None:
    for name, target in SHIPPED.items():
        assert getattr(resolve(target), "__name__", None) == name


@pytest.mark.parametrize(
    "target",
    [
        "",
        "mlp",
        "os:",
        ":system",
        "os:system()",
        "os;sys:exit",
        "../evil:run",
        "a b:c",
        "os:path.join",
        "os:sys:exit",
        "os:system\n",
        "\u03bf:\u0455",
        "x" * 1000 + ":y",
        "no_such_package_here:f",
        "mmdb.graph.factories:no_such_function",
        "owners_package:number",
        None,
    ],
)
def test_a_target_that_names_no_callable_is_refused(own: dict[str, str], target: str) -> None:
    with pytest.raises(FactoryFailed):
        resolve(target)


# -- outputs ------------------------------------------------------------------


@pytest.mark.parametrize(
    "result",
    [torch.zeros(2, 4), torch.zeros(2), torch.zeros(3), torch.zeros(2, 3).long(), None, (1, 2)],
)
def test_an_output_that_does_not_fit_is_a_mismatch(result: object) -> None:
    with pytest.raises(OutputMismatch):
        check_output(Returns(result), (5,), 3)


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_one_output_may_leave_out_its_dimension(shape: tuple[int, ...]) -> None:
    check_output(Returns(torch.zeros(shape)), (5,), 1)


def test_a_forward_that_raises_fails_the_factory() -> None:
    with pytest.raises(FactoryFailed, match="KeyError: 'embedding'"):
        check_output(TakesNoBatch(), (5,), 1)


def test_the_check_changes_neither_modes_nor_buffers() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    module.train()[1].eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    check_output(module, (3,), 2)
    assert [m.training for m in module.modules()] == [True, True, False, True, True]
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    with pytest.raises(OutputMismatch):
        check_output(module, (3,), 5)
    assert module.training
