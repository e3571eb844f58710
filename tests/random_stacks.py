"""Stacks drawn by chance: networks of every layer with a form, each member beside itself alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.data.decoding import Target
from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import build
from mmdb.train.candidate.config import parse_config
from mmdb.train.candidate.setup import Setup, setup_of
from mmdb.train.compute.live import Live, build_live, encode, restore
from mmdb.train.stack.stacked_pass import shape_of_stack, stacked_pass, stacks

CLASSES = Target(name="y", task="classification", size=3)
NUMBER = Target(name="y", task="regression", size=1, scale=(2.0, 3.0))
LABELS = Target(name="y", task="multilabel", size=2)
#: Codes that a row of text, or of columns, may have.
_CODES = 5
COLUMNS = [["number", 2], ["code", 5, 3], ["plain", 1], ["code", 5, 2], ["number", 1]]
_MIXED = [*COLUMNS, ["words", 3, 5, 4], ["picture", 1, 5, 4]]
_WIDTH, _MIXED_WIDTH = 6, 6 + 3 + 20

Member = tuple[Live, Setup]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomStack:
    """Candidates that may stack.

    Attributes:
        raws: hyper-parameters of each; what is an argument of the network as `architecture.`.
        codes: places of a row that hold codes; None: all do.
    """

    architecture: dict[str, Any]
    shape: tuple[int, ...]
    target: Target
    raws: list[dict[str, Any]]
    x: Tensor
    y: Tensor | tuple[Tensor, ...]

    def member(self, k: int, **more: Any) -> Member:
        """Return a candidate as it begins."""
        raw = {**self.raws[k], **more}
        config = parse_config(raw, (self.target,), {})
        torch.manual_seed(k)
        size = self.target.size
        module = build(self.architecture, config.arguments, self.shape, size, SHIPPED)
        return build_live(module, config), setup_of(raw, (self.target,))


def draw_stack(draw: random.Random, family: str | None = None) -> RandomStack:
    """Return a stack of a family, or of any of `FAMILIES`."""
    target = draw.choice([CLASSES, NUMBER, LABELS])
    architecture, shape, arguments = FAMILIES[family or draw.choice([*FAMILIES])](draw)
    if target is NUMBER and architecture.get("factory") in ("mlp", "tabular"):
        architecture["arguments"]["scale"] = list(NUMBER.scale or ())
    optimizer = draw.choice(["adam", "adamw", "sgd"])
    batch = draw.choice([2, 8, 32, 31, 100])
    raws = [
        {**_raw(draw, optimizer, batch), **{f"architecture.{k}": f() for k, f in arguments.items()}}
        for _ in range(draw.randint(2, 9))
    ]
    losses = {CLASSES: ["cross_entropy"], LABELS: ["bce", "soft_margin"]}
    loss: dict[str, Any] = {"name": draw.choice(losses.get(target, ["mse", "mae", "huber"]))}
    weights = draw.choice([None, [1.0, 2.0, 0.5][: target.size]])
    for raw in raws:
        smooth = {"label_smoothing": draw.choice([0.0, 0.1])} if target is CLASSES else {}
        raw["loss"] = {**loss, **smooth}
        if target is not NUMBER and weights is not None:
            raw["class_weights"], raw["loss"] = weights, loss
    x, y = _rows(draw, architecture, shape, target)
    return RandomStack(architecture=architecture, shape=shape, target=target, raws=raws, x=x, y=y)


def _raw(draw: random.Random, optimizer: str, batch: int) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "lr": 10 ** draw.uniform(-4, -2),
        "batch_size": batch,
        "weight_decay": draw.choice([0.0, 0.01]),
        "optimizer": {"name": optimizer},
    }
    if optimizer == "sgd":
        raw["optimizer"]["momentum"] = draw.choice([0.0, 0.9])
    else:
        raw["optimizer"]["betas"] = draw.choice([[0.9, 0.999], [0.8, 0.95]])
    if draw.random() < 0.4:
        raw["schedule"] = draw.choice(
            [
                {"name": "exponential", "gamma": 0.7},
                {"name": "cosine", "T_max": 9, "per": "step"},
            ]
        )
    if draw.random() < 0.4:
        raw[draw.choice(["clip_norm", "clip_value"])] = draw.choice([0.01, 0.5])
    return raw


def _rows(
    draw: random.Random, architecture: dict[str, Any], shape: tuple[int, ...], target: Target
) -> tuple[Tensor, Any]:
    rows, own = draw.choice([40, 71]), torch.Generator().manual_seed(draw.randrange(2**30))
    x = torch.randn(rows, *shape, generator=own)
    codes = torch.randint(_CODES, x.shape, generator=own)
    if architecture.get("layers", [{}])[0].get("op") == "Embedding":
        x = codes if draw.random() < 0.5 else codes.float()
    columns = architecture.get("arguments", {}).get("columns")
    if columns is not None:
        places = [2, 4, *range(_WIDTH, min(_WIDTH + 3, len(x[0])))]
        x[:, places] = codes[:, places].float()
    y = torch.randint(3, (rows,), generator=own)
    if target is LABELS:
        y = torch.randint(2, (rows, 2), generator=own).float()
    elif target is NUMBER:
        y = y * 2.0 + torch.randn(rows, generator=own)
    return x, (y, torch.rand(rows, generator=own)) if draw.random() < 0.2 else y


# -- Networks ----------------------------------------------------------------------

Drawn = tuple[dict[str, Any], tuple[int, ...], dict[str, Callable[[], Any]]]


def _mlp(draw: random.Random) -> Drawn:
    arguments = {
        "hidden": [draw.choice([1, 7, 16, 33]) for _ in range(draw.randint(1, 3))],
        "activation": draw.choice(["relu", "gelu", "silu", "tanh"]),
        "batch_norm": draw.random() < 0.3,
        "columns": draw.choice([None, COLUMNS]),
    }
    return _factory("mlp", arguments), (_WIDTH,), {"dropout": _share(draw, 0.1)}


def _tabular(draw: random.Random) -> Drawn:
    columns, width = draw.choice([(None, _WIDTH), (COLUMNS, _WIDTH), (_MIXED, _MIXED_WIDTH)])
    arguments = {
        "hidden": [draw.choice([5, 16, 33]) for _ in range(draw.randint(0, 2))],
        "ensemble": draw.choice([1, 3]),
        "periodic": draw.random() < 0.7,
        "columns": columns,
        "linear_gain": draw.choice([1.0, 10.0]),
    }
    shares = {"dropout": _share(draw), "embedding_dropout": _share(draw)}
    return _factory("tabular", arguments), (width,), shares


def _cnn(draw: random.Random) -> Drawn:
    shape = (draw.choice([1, 3]), draw.randint(3, 9), draw.randint(3, 9))
    arguments = {"width": draw.choice([1, 3, 8]), "depth": draw.randint(1, 3)}
    return _factory("cnn", arguments), shape, {"dropout": _share(draw, 0.2)}


def _resnet(draw: random.Random) -> Drawn:
    shape = (draw.choice([1, 3]), draw.randint(5, 9), draw.randint(5, 9))
    return _factory("resnet", {"width": draw.choice([1, 3, 8])}), shape, {}


def _transformer(draw: random.Random) -> Drawn:
    heads = draw.choice([1, 2, 4])
    arguments = {
        "heads": heads,
        "d_model": heads * draw.choice([1, 3, 8]),
        "layers": draw.randint(1, 2),
    }
    shape = draw.choice([(draw.randint(1, 9), draw.randint(1, 9)), (draw.randint(1, 9),)])
    return _factory("transformer", arguments), shape, {"dropout": _share(draw)}


def _pictures(draw: random.Random) -> Drawn:
    """Return a layer graph of pictures."""
    layers = _Chain(draw)
    for _ in range(draw.randint(1, 3)):
        layers.add(
            "Conv2d",
            out_channels=draw.choice([2, 4, 6]),
            kernel_size=draw.choice([1, 2, 3, [1, 3]]),
            stride=draw.choice([1, 1, 2]),
            padding=draw.choice([1, [1, 2]]),
            dilation=draw.choice([1, 1, 2]) if draw.random() < 0.3 else 1,
            bias=draw.random() < 0.7,
        )
        if draw.random() < 0.5:
            layers.add("BatchNorm2d", affine=draw.random() < 0.7)
        elif draw.random() < 0.5:
            layers.add("GroupNorm", num_groups=2, affine=draw.random() < 0.7)
        layers.activate()
        if draw.random() < 0.3:
            layers.add("Dropout2d", p=0.3)
    kind = draw.choice(["MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", None])
    if kind is not None:
        size: dict[str, Any] = {"output_size": 2} if "Adaptive" in kind else {"kernel_size": 2}
        layers.add(kind, **size)
    layers.add("Flatten")
    return layers.ended(), (draw.choice([1, 3]), draw.randint(7, 9), draw.randint(7, 9)), {}


def _series(draw: random.Random) -> Drawn:
    """Return a layer graph of series."""
    layers = _Chain(draw)
    for _ in range(draw.randint(1, 2)):
        padding = draw.choice([2, "same", "valid"])
        width, kernel = draw.choice([2, 5]), draw.choice([1, 3])
        layers.add("Conv1d", out_channels=width, kernel_size=kernel, padding=padding)
        if draw.random() < 0.5:
            layers.add("BatchNorm1d")
        layers.activate()
    kind = draw.choice(["MaxPool1d", "AvgPool1d", "AdaptiveAvgPool1d", None])
    if kind is not None:
        size: dict[str, Any] = {"output_size": 3} if "Adaptive" in kind else {"kernel_size": 2}
        layers.add(kind, **size)
    if draw.random() < 0.5:
        layers.add("transpose")
        layers.add("LayerNorm")
    layers.add("mean", dim=[draw.choice([1, 2, -1])])
    return layers.ended(), (draw.choice([1, 3]), draw.randint(7, 12)), {}


def _texts(draw: random.Random) -> Drawn:
    """Return a layer graph of texts."""
    layers, heads = _Chain(draw), draw.choice([1, 2])
    layers.add("Embedding", num_embeddings=_CODES, embedding_dim=heads * draw.choice([2, 5, 16]))
    layers.add("Position")
    for _ in range(draw.randint(0, 2)):
        if draw.random() < 0.4:
            before = layers.last
            layers.add("MultiheadAttention", num_heads=heads, dropout=draw.choice([0.0, 0.2]))
            layers.add("add", inputs=[before, layers.last])
            continue
        layers.add(
            "TransformerEncoderLayer",
            nhead=heads,
            dim_feedforward=draw.choice([7, 32]),
            dropout=draw.choice([0.0, 0.2]),
            activation=draw.choice(["relu", "gelu"]),
            norm_first=draw.random() < 0.5,
        )
    layers.add("mean", dim=[1])
    return layers.ended(), (draw.randint(1, 9),), {}


def _rest(draw: random.Random) -> Drawn:
    """Return a layer graph of rows, which forks and joins."""
    layers = _Chain(draw)
    layers.add("Linear", out_features=draw.choice([4, 10]), bias=draw.random() < 0.7)
    layers.activate()
    fork = layers.last
    layers.add("Linear", out_features=draw.choice([4, 10]))
    layers.add("Softmax")
    if draw.random() < 0.5:
        layers.add("concat", inputs=[fork, layers.last])
    else:
        layers.add("mean", dim=[1], keepdim=True)
        layers.add("mul", inputs=[fork, layers.last])
    layers.add("reshape", shape=[2, -1])
    layers.add("Flatten")
    layers.add("Unflatten", dim=1, unflattened_size=[-1, 2])
    layers.add("LayerNorm", bias=draw.random() < 0.5)
    layers.add("Flatten", start_dim=1, end_dim=2)
    layers.add("Dropout", p=0.2)
    return layers.ended(), (_WIDTH,), {}


_ACTIVATIONS = [
    *("ReLU", "ReLU6", "Hardswish", "Hardsigmoid", "ELU", "GELU", "SiLU", "Tanh", "Sigmoid"),
    *("LeakyReLU", "Identity"),
]


class _Chain:
    """A layer graph, layer by layer."""

    def __init__(self, draw: random.Random) -> None:
        self._draw, self._layers, self.last = draw, list[dict[str, Any]](), "input"

    def add(self, op: str, inputs: Sequence[str] | None = None, **args: Any) -> None:
        name = f"l{len(self._layers)}"
        inputs = [self.last] if inputs is None else inputs
        self._layers.append({"name": name, "op": op, "args": args, "inputs": [*inputs]})
        self.last = name

    def activate(self) -> None:
        op = self._draw.choice(_ACTIVATIONS)
        more = {"ELU": {"alpha": 0.7}, "LeakyReLU": {"negative_slope": 0.2}}
        gelu = {"approximate": self._draw.choice(["none", "tanh"])}
        self.add(op, **(gelu if op == "GELU" else more.get(op, {})))

    def ended(self) -> dict[str, Any]:
        self.add("Linear", out_features="$outputs")
        return {"layers": self._layers}


def _mean(draw: random.Random) -> Drawn:
    first, shape, _ = _mlp(draw)
    first["arguments"]["columns"] = None
    second = _factory("tabular", {"hidden": [7], "ensemble": draw.choice([1, 2])})
    return {"mean": [first, second], "averages": "outputs"}, shape, {}


def _factory(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"factory": name, "arguments": arguments}


def _share(draw: random.Random, least: float = 0.0) -> Callable[[], float]:
    return lambda: draw.choice([least, 0.1, 0.5])


FAMILIES: dict[str, Callable[[random.Random], Drawn]] = {
    "mlp": _mlp,
    "tabular": _tabular,
    "cnn": _cnn,
    "resnet": _resnet,
    "transformer": _transformer,
    "pictures": _pictures,
    "series": _series,
    "texts": _texts,
    "graph": _rest,
    "mean": _mean,
}


# -- Training ----------------------------------------------------------------------


def train(stack: RandomStack, members: Sequence[Member], which: Sequence[int], epoch: int) -> None:
    """Train members in one pass; `which` they are decides their seeds."""
    stacked_pass(
        [live for live, _ in members],
        stack.x,
        stack.y,
        setups=[setup for _, setup in members],
        seeds=[k + 100 * epoch for k in which],
        ends_epoch=True,
    )


def differing(draw: random.Random, stack: RandomStack, *, epochs: int = 2) -> list[int]:
    """Return the members that have other bits in company than alone.

    Before an epoch each is, by chance, written down and built again, and meets others; of as many
    as two is asked what they are alone.
    """
    count = len(stack.raws)
    members = {k: stack.member(k) for k in range(count)}
    assert all(stacks(live, setup, stack.x) for live, setup in members.values())
    assert len({shape_of_stack(*one) for one in members.values()}) == 1
    for epoch in range(epochs):
        for k in range(count):
            if draw.random() < 0.5:
                members[k] = _again(stack, k, members[k])
        order = draw.sample(range(count), count)
        cut = draw.randint(0, count)
        for part in (order[:cut], order[cut:]):
            if part:
                train(stack, [members[k] for k in part], part, epoch)
    wrong = []
    for k in draw.sample(range(count), 2):
        alone = stack.member(k)
        for epoch in range(epochs):
            alone = _again(stack, k, alone) if draw.random() < 0.5 else alone
            train(stack, [alone], [k], epoch)
        if encode(alone[0]) != encode(members[k][0]):
            wrong.append(k)
    return wrong


def _again(stack: RandomStack, k: int, member: Member) -> Member:
    """Return a member as a crash leaves it: built anew, with its state out of bytes."""
    state, found = encode(member[0]), stack.member(k)
    restore(found[0], state)
    return found


def layers_of(module: nn.Module) -> set[str]:
    """Return the names of the classes of a module's layers."""
    return {type(one).__name__ for one in module.modules()}
