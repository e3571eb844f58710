"""Embeddings: what plain hooks on the module itself see, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.errors import CutNotFound, NotACut
from mmdb.graph.cut.embedding import embedding_of, last_layer
from mmdb.graph.factories import cnn, linear, mlp, resnet, transformer
from mmdb.graph.libraries import transformers
from mmdb.graph.tabular import tabular

SMALL: dict[str, object] = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 300,
    "intermediate_size": 64,
}  # fmt: skip
PATCHES = SMALL | {"patch_size": 8}
MIXED: list[list[str | int]] = [["number", 2], ["code", 5, 3], ["words", 1, 9, 4]]


def seen(module: nn.Module, path: str, x: Tensor, *, given: bool = False) -> Tensor:
    """Return what a module's layer returns for rows, or is given, pooled."""
    found: list[Tensor] = []

    def note(_: nn.Module, args: Any, output: Any) -> None:
        found.append((args[0] if given else output).clone())

    hook = module.get_submodule(path).register_forward_hook(note)
    with torch.no_grad():
        module(x)
    hook.remove()
    (one,) = found
    return one.mean(1) if one.ndim == 3 else one.mean((2, 3)) if one.ndim == 4 else one


def rows(shape: tuple[int, ...], codes: int = 0) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(1, codes, (7, *shape)) if codes else torch.randn(7, *shape)


class Residual(nn.Module):
    """A block that goes around its layers, and changes what one returns in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.relu, self.second = nn.ReLU(inplace=True), nn.Conv2d(6, 6, 3, padding=1)
        self.fc = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.first(x)))
        x = x + self.second(x)
        return self.fc(x.mean((2, 3)))  # type: ignore[no-any-return]


HEADS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, str]] = {
    "linear": (lambda: linear((4,), 3), (4,), 0, "head"),
    "mlp": (lambda: mlp((4,), 3, hidden=[8, 9]), (4,), 0, "5"),
    "cnn": (lambda: cnn((1, 8, 8), 3), (1, 8, 8), 0, "5"),
    "resnet": (lambda: resnet((3, 16, 16), 3), (3, 16, 16), 0, "7"),
    "transformer": (lambda: transformer((9,), 3), (9,), 0, "7"),
    "tabular": (lambda: tabular((4,), 3, hidden=[8, 8]), (4,), 0, "deep.head"),
    "ensemble": (lambda: tabular((4,), 3, hidden=[8], ensemble=3), (4,), 0, "deep.head"),
    "columns": (lambda: tabular((4,), 3, hidden=[8], columns=MIXED), (4,), 5, "deep.head"),
    "flat": (lambda: tabular((4,), 3, hidden=[]), (4,), 0, "linear"),
    "bert": (lambda: transformers((20,), 2, name="bert", config=SMALL), (20,), 300, "classifier"),
    "gpt2": (lambda: transformers((20,), 2, name="gpt2", config=SMALL), (20,), 300, "score"),
    "vit": (
        lambda: transformers((3, 16, 16), 2, name="vit", config=PATCHES),
        (3, 16, 16),
        0,
        "classifier",
    ),
    "residual": (lambda: Residual(), (3, 8, 8), 0, "fc"),
}


@pytest.mark.parametrize("name", HEADS)
def test_it_is_what_the_last_layer_reads(name: str) -> None:
    make, shape, codes, head = HEADS[name]
    torch.manual_seed(0)
    module, x = make().eval(), rows(shape, codes)
    assert last_layer(module, shape) == head
    layers = embedding_of(module, None, inputs=shape)
    with torch.no_grad():
        assert torch.equal(layers(x), seen(module, head, x, given=True))
    assert not any(p.requires_grad for p in layers.parameters())


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("mlp", "1"), ("mlp", "2"), ("cnn", "0"), ("cnn", "1"), ("resnet", "5"),
        ("tabular", "deep"), ("tabular", "deep.layers.0"), ("columns", "columns"),
        ("bert", "dropout"), ("gpt2", "score"), ("vit", "vit.layers.0"), ("vit", "vit.embeddings"),
        ("residual", "norm"), ("residual", "second"),
    ],
)  # fmt: skip
def test_it_is_what_a_layer_returns(name: str, layer: str) -> None:
    """Also one that later layers go around, or change in place."""
    make, shape, codes, _ = HEADS[name]
    torch.manual_seed(0)
    module, x = make().eval(), rows(shape, codes)
    with torch.no_grad():
        assert torch.equal(embedding_of(module, layer, inputs=shape)(x), seen(module, layer, x))


class Odd(nn.Module):
    """A network whose parts are no layers to embed by."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.both, self.unused = nn.Linear(4, 4), nn.LSTM(4, 4), nn.Linear(4, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        found, _ = self.both(self.twice(self.twice(x)))
        return self.last(found)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("layer", "error", "said"),
    [
        ("twice", NotACut, "runs 2 times"),
        ("both", NotACut, "more than one tensor"),
        ("unused", CutNotFound, "does not run"),
        ("lost", CutNotFound, "such as last"),
        ("", CutNotFound, "no module"),
    ],
)
def test_what_is_no_layer_is_refused_with_layers_near_it(
    layer: str, error: type[NotACut | CutNotFound], said: str
) -> None:
    with pytest.raises(error) as raised:
        embedding_of(Odd().eval(), layer)
    assert said in f"{raised.value.message} {raised.value.hint}"
    assert "last" in str(raised.value.hint)


def test_a_network_that_cannot_be_followed_is_refused() -> None:
    class Branching(Odd):
        def forward(self, x: Tensor) -> Tensor:
            return self.last(x) if x.sum() > 0 else self.twice(x)  # type: ignore[no-any-return]

    for layer in (None, "last"):
        with pytest.raises(NotACut, match="cannot be followed"):
            embedding_of(Branching().eval(), layer)
    with pytest.raises(NotACut, match="no layer with weights"):
        embedding_of(nn.Sequential(nn.ReLU()), None)
