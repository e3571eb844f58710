"""The models and datasets whose hashes `test_same_hashes` holds; every one is fixed by its seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

Json = dict[str, Any]
#: Name, architecture, shape of a row, outputs.
Model = tuple[str, Json, tuple[int, ...], int]

#: Of 120 rows, every number a small fraction of two, so that no engine rounds.
TABLE = """
    CREATE TABLE points AS
    SELECT
        i AS id, (i % 7 - 3)::real AS a, (i % 11 - 5)::double / 4 AS b, i % 13 = 0 AS flag,
        (i % 2)::integer AS y, (i % 5)::smallint AS grade, (i % 7 - 3)::real * 2 + 1 AS price,
        CASE i % 3 WHEN 0 THEN 'red' WHEN 1 THEN 'grün' ELSE 'blue' END AS color,
        CASE WHEN i % 7 > 3 THEN 'high' ELSE 'low' END AS level,
        ARRAY[i % 5, i % 3]::real[] AS v, ARRAY[i % 2, i % 3 // 2, 1]::integer[] AS tags,
        'Row ' || i || ' of the größte table' AS text,
        unhex(lpad(lower(hex(i)), 32, '0')) AS picture
    FROM generate_series(1, 120) AS g (i)
"""

_WORDS = {"function": "words", "length": 6, "vocabulary": 500}
_BYTES = {"function": "bytes", "length": 20}
#: Arguments of `create_dataset` by name; the query is `SELECT {query} FROM points {where}`.
DATASETS: dict[str, Json] = {
    "plain": {"query": "a, b, y"},
    "other seed": {"query": "a, b, y", "seed": 1},
    "one part": {"query": "a, b, y", "partitions": 1, "validation": 0.0},
    "many parts": {"query": "a, b, y", "partitions": 30, "validation": 0.25, "seed": 7},
    "other order": {"query": "b, a, y"},
    "flag": {"query": "a, flag, y", "partitions": 2},
    "filtered": {"query": "a, b, y", "where": "WHERE id <= 50", "partitions": 3},
    "number": {"query": "a, b, price", "label": "price"},
    "number by task": {"query": "a, b, y", "options": {"task": "regression"}},
    "text label": {"query": "a, v, level", "label": "level", "validation": 0.5},
    "categories": {"query": "a, color, b, y", "partitions": 2, "seed": 3},
    "array": {"query": "v, grade", "label": "grade"},
    "picture": {"query": "picture, y", "options": {"shape": [1, 4, 4]}},
    "everything": {"query": "a, b, color, v, picture, y", "partitions": 5, "seed": 2**31 - 1},
    "multilabel": {"query": "a, b, tags", "label": "tags", "options": {"task": "multilabel"}},
    "two labels": {"query": "a, y, price", "options": {"labels": ["price"]}, "seed": 5},
    "words": {"query": "text, y", "options": {"tokenize": {"text": _WORDS}}},
    "bytes": {"query": "text, y", "options": {"tokenize": {"text": _BYTES}}, "partitions": 2},
    "two inputs": {
        "query": "a, b, picture, y",
        "options": {
            "inputs": {"image": ["picture"], "meta": ["b", "a"]},
            "shapes": {"image": [1, 4, 4]},
        },
    },
    "inputs and labels": {
        "query": "a, text, level, tags",
        "label": "level",
        "partitions": 3,
        "seed": 9,
        "options": {
            "inputs": {"meta": ["a"], "review": ["text"]},
            "tokenize": {"text": _WORDS},
            "labels": ["tags"],
            "tasks": {"tags": "multilabel"},
        },
    },
}


def models() -> Iterator[Model]:
    """Yield 200 models, each by a name of its own."""
    yield from _of_factories()
    yield from _of_layers()
    yield from _with_heads()
    for name, (shape, outputs, _) in WRITTEN.items():
        yield f"written {name}", {"factory": name}, shape, outputs


def _of_factories() -> Iterator[Model]:
    for shape, outputs in product([(3,), (64,), (2, 5), (3, 4, 4)], [1, 4]):
        yield _named("linear", shape, outputs)
    hidden: list[Any] = [8, [16, 4], [8, 8, 8]]
    for size, batch_norm, dropout, activation in product(
        hidden, [False, True], [0.0, 0.25], ["relu", "gelu", "silu", "tanh"]
    ):
        arguments = {"hidden": size, "batch_norm": batch_norm, "dropout": dropout}
        yield _named("mlp", (6,), 3, **arguments, activation=activation)
    for depth, shape in product([1, 2, 5], [(7,), (2, 3)]):
        yield _named("mlp", shape, 2, hidden=5, depth=depth)
    for width, depth, dropout in product([2, 4], [1, 2, 3], [0.0, 0.5]):
        for shape in ((8, 8), (3, 8, 6)):
            yield _named("cnn", shape, 3, width=width, depth=depth, dropout=dropout)
    for width, blocks, shape in product([2, 4, 6], [1, 2], [(8, 8), (3, 8, 8)]):
        yield _named("resnet", shape, 2, width=width, blocks=blocks)
    for d_model, heads, layers, shape in product([4, 8], [1, 2], [1, 2, 3], [(5,), (4, 3)]):
        yield _named("transformer", shape, 3, d_model=d_model, heads=heads, layers=layers)
    for dropout in (0.1, 0.3):
        yield _named("transformer", (4, 3), 1, d_model=6, heads=3, layers=1, dropout=dropout)


def _named(factory: str, shape: tuple[int, ...], outputs: int, **arguments: Any) -> Model:
    told = ", ".join(f"{key}={value}" for key, value in arguments.items())
    architecture = {"factory": factory, "arguments": arguments}
    return f"{factory}({told}) {shape} -> {outputs}", architecture, shape, outputs


def _layer(name: str, op: str, inputs: list[str] | None = None, **args: Any) -> Json:
    return {"name": name, "op": op, "args": args} | ({"inputs": inputs} if inputs else {})


_HEAD = [_layer("flat", "flatten"), _layer("head", "Linear", out_features="$outputs")]

#: Layers before a head, and the shape of a row.
_CHAINS: dict[str, tuple[tuple[int, ...], list[Json]]] = {
    "conv1d": ((3, 9), [_layer("a", "Conv1d", out_channels=4, kernel_size=2)]),
    "conv1d norm": (
        (3, 9),
        [_layer("a", "Conv1d", out_channels=4, kernel_size=3), _layer("b", "BatchNorm1d")],
    ),
    "group norm": ((4, 3), [_layer("a", "GroupNorm", num_groups=2)]),
    "layer norm": ((4, 3), [_layer("a", "LayerNorm")]),
    "max pool": ((1, 5, 5), [_layer("a", "MaxPool2d", kernel_size=[2, 1], ceil_mode=True)]),
    "mean pool": ((4, 6), [_layer("a", "AvgPool1d", kernel_size=2, stride=1)]),
    "adaptive pool": ((4, 6, 6), [_layer("a", "AdaptiveAvgPool2d", output_size=[1, 2])]),
    "embedding": ((5,), [_layer("a", "Embedding", num_embeddings=9, embedding_dim=4)]),
    "encoder": ((5, 4), [_layer("p", "Position"), _layer("a", "TransformerEncoderLayer", nhead=2)]),
    "attention": ((5, 4), [_layer("a", "MultiheadAttention", num_heads=2, dropout=0.5)]),
    "transpose": (
        (5, 4),
        [_layer("a", "transpose", dim0=1, dim1=2), _layer("b", "Softmax", dim=1)],
    ),
    "reshape": ((3, 8), [_layer("a", "reshape", shape=["$channels", -1, 2])]),
    "mean": ((3, 8), [_layer("a", "mean", dim=-1, keepdim=True)]),
    "square": ((3, 8), [_layer("a", "mul", ["input", "input"])]),
    "activations": (
        (3,),
        [
            _layer(f"x{k}", op)
            for k, op in enumerate(["GELU", "LeakyReLU", "SiLU", "Sigmoid", "ReLU6", "Hardswish"])
        ],
    ),
    "elu": ((3,), [_layer("a", "ELU", alpha=0.5), _layer("b", "Dropout", p=0.1)]),
    "unflatten": ((6,), [_layer("a", "Unflatten", dim=1, unflattened_size=[2, -1])]),
    "sized": ((3,), [_layer("a", "Linear", in_features="$features", out_features=4)]),
    "residual": (
        (3, 8, 8),
        [
            _layer("stem", "Conv2d", out_channels=8, kernel_size=3, padding=1),
            _layer("conv", "Conv2d", out_channels=8, kernel_size=3, padding="same"),
            _layer("norm", "BatchNorm2d"),
            _layer("sum", "add", ["norm", "stem"]),
            _layer("relu", "ReLU"),
        ],
    ),
    "branches": (
        (6,),
        [
            _layer("wide", "Linear", ["input"], out_features=12),
            _layer("narrow", "Linear", ["input"], out_features=3),
            _layer("both", "concat", ["wide", "narrow"], dim=-1),
        ],
    ),
}


def _of_layers() -> Iterator[Model]:
    for (name, (shape, layers)), outputs in product(_CHAINS.items(), [1, 3]):
        yield f"layers {name} -> {outputs}", {"layers": [*layers, *_HEAD]}, shape, outputs
    for depth, width in product([1, 2, 4, 8], [4, 12]):  # sums over a step each
        layers = [_layer("first", "Linear", ["input"], out_features=width)]
        for k in range(depth):
            before = layers[-1]["name"]
            layers += [
                _layer(f"dense{k}", "Linear", [before], out_features=width),
                _layer(f"relu{k}", "ReLU"),
                _layer(f"sum{k}", "add", [f"relu{k}", before]),
            ]
        yield f"layers skips {depth} x {width}", {"layers": [*layers, *_HEAD]}, (5,), 2
    for count, width in product([2, 3, 6], [4, 8]):  # towers side by side, alike
        towers = [_layer(f"t{k}", "Linear", ["input"], out_features=width) for k in range(count)]
        met = _layer("met", "concat", [one["name"] for one in towers], dim=1)
        yield f"layers towers {count} x {width}", {"layers": [*towers, met, *_HEAD]}, (5,), 2
    for width in (2, 4, 6):
        layers = [
            _layer("conv", "Conv2d", out_channels="$width", kernel_size=3),
            _layer("norm", "BatchNorm2d"),
            _layer("pool", "AvgPool2d", kernel_size=2),
        ]
        graph = {"layers": [*layers, *_HEAD], "defaults": {"width": width}}
        yield f"layers default {width}", graph, (1, 8, 8), 3


def _with_heads() -> Iterator[Model]:
    resnet = {"factory": "resnet", "arguments": {"width": 2}}
    cnn = {"factory": "cnn", "arguments": {"width": 4}}
    head = {"factory": "mlp", "arguments": {"hidden": [4]}}
    backbones = {"resnet": (resnet, ["2", "5"]), "cnn": (cnn, ["1", "3"])}
    for name, (backbone, cuts) in backbones.items():
        for cut, (kind, top) in product(cuts, [("linear", {"factory": "linear"}), ("mlp", head)]):
            architecture = {"backbone": backbone, "cut": cut, "pool": "mean", "head": top}
            yield f"headed {name} at {cut} {kind}", architecture, (3, 8, 8), 3


# -- modules as a user writes them -----------------------------------------------


class Tied(nn.Module):
    """Decodes with the matrix that it encodes with."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.decode.weight = self.encode.weight

    def forward(self, x: Tensor) -> Tensor:
        """Return rows as wide as those given."""
        decoded: Tensor = self.decode(torch.relu(self.encode(x)))
        return decoded


class Twice(nn.Module):
    """Calls one layer twice, beside another that is like it."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(width, width), nn.Linear(width, width)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, outputs)."""
        found: Tensor = self.head(self.one(self.one(x)) * self.other(x))
        return found


class Scaled(nn.Module):
    """Has a bare parameter, a buffer that is kept, and one that is not."""

    scale: Tensor
    shift: Tensor

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((width,), 0.5))
        self.register_buffer("scale", torch.arange(1.0, width + 1))
        self.register_buffer("shift", torch.ones(width), persistent=False)
        self.head = nn.Linear(width, outputs)
        self.unused = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, outputs)."""
        found: Tensor = self.head(x * self.gain / self.scale + self.shift)
        return found


class Branching(nn.Module):
    """Decides by values, so that its forward cannot be followed."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(width, outputs), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, outputs)."""
        found: Tensor = self.left(x) if x.sum() > 0 else self.right(x)
        return found


class Recurrent(nn.Module):
    """Reads a sequence by a GRU, or by an LSTM."""

    def __init__(self, kind: type[nn.RNNBase], width: int, outputs: int) -> None:
        super().__init__()
        self.cells = kind(width, 4, batch_first=True)  # type: ignore[arg-type, call-arg]
        self.head = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, outputs)."""
        found: Tensor = self.head(self.cells(x)[0].mean(1))
        return found


def _views(width: int) -> nn.Module:
    whole = torch.arange(2.0 * width * width).reshape(2 * width, width) / 64
    module = nn.Sequential(nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False))
    for part, layer in zip((whole[:width], whole[width:]), module, strict=True):
        layer.weight = nn.Parameter(part)
    return module


def _half(width: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 8), nn.PReLU(8), nn.Linear(8, outputs)).to(torch.bfloat16)


#: By name: the shape of a row, outputs, and what makes the module.
WRITTEN: Mapping[str, tuple[tuple[int, ...], int, Any]] = {
    "tied": ((6,), 6, lambda: Tied(6)),
    "twice": ((5,), 3, lambda: Twice(5, 3)),
    "scaled": ((4,), 2, lambda: Scaled(4, 2)),
    "branching": ((4,), 2, lambda: Branching(4, 2)),
    "gru": ((5, 3), 2, lambda: Recurrent(nn.GRU, 3, 2)),
    "lstm": ((5, 3), 2, lambda: Recurrent(nn.LSTM, 3, 2)),
    "views": ((4,), 4, lambda: _views(4)),
    "bfloat16": ((4,), 3, lambda: _half(4, 3)),
    "depthwise": (
        (4, 6, 6),
        4,
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=4),
            nn.ConvTranspose2d(8, 4, 2),
            nn.Flatten(),
            nn.Linear(100, 4),
        ),
    ),
    "weight_norm": ((5,), 2, lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 2))),
    "normed": (
        (4, 6),
        4,
        lambda: nn.Sequential(
            nn.InstanceNorm1d(4, affine=True), nn.RMSNorm(6), nn.Flatten(), nn.Linear(24, 4)
        ),
    ),
}
