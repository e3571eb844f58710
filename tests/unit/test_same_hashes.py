"""The names by which mmdb finds what it has stored: byte-identical, whatever is rewritten.

A fixed corpus of models and datasets is hashed anew and compared with a file, an item a line.
`python -m tests.unit.test_same_hashes` writes the file: only for a change that is meant to give
stored things other names. No float in it depends on the processor: drawn weights are rounded, and
hops compute with small fractions of two, which no order of additions rounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from blake3 import blake3
from torch import Tensor, nn

import mmdb
from mmdb.data.decoding import Target
from mmdb.errors import MmdbError
from mmdb.graph.factories import SHIPPED
from mmdb.graph.match.pack import DTYPES as PACKED
from mmdb.graph.match.pack import HEADER
from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.op_contraction import skeleton_of
from mmdb.graph.spec.build import initial_module
from mmdb.graph.spec.parse import canonical, parse
from mmdb.graph.trace.call_tracer import trace
from mmdb.store.files.exchange import state_hash as entries_hash
from mmdb.store.models.architectures import VERSION, outlined
from mmdb.store.models.model_rows import ModelDefinition, weights_hash
from mmdb.store.tensors.codec import Codec, encode
from mmdb.store.tensors.planes import Node as Plane
from mmdb.store.tensors.state_entries import contents_of
from mmdb.store.tensors.tensor_bytes import DTYPES, hash_of, raw_bytes
from mmdb.train.candidate.config import architecture_hash
from mmdb.train.candidate.setup import Setup, setup_of
from mmdb.train.compute.hop import train_pass
from mmdb.train.compute.live import build_live, encoding, state_hash
from mmdb.train.compute.live import encode as encode_state
from mmdb.train.features import prefix_groups
from mmdb.train.values import seeds
from mmdb.train.values.warm_spec import OPERATORS_VERSION
from tests.unit.hash_corpus import DATASETS, TABLE, WRITTEN, Model, models

GOLDEN = Path(__file__).with_name("same_hashes.txt")
Facts = dict[str, str]

NUMBER = Target(name="price", task="regression", size=1)
#: Optimizers that compute nothing inexact where every gradient is 0, and schedules.
OPTIMIZERS = ("sgd", "adam", "adamw", "adagrad", "adadelta", "adamax", "rmsprop", "rprop")
SCHEDULES: tuple[Any, ...] = (
    None,
    {"name": "step", "step_size": 2, "gamma": 0.5},
    {"name": "multistep", "milestones": [1, 3], "gamma": 0.5},
    {"name": "constant", "factor": 0.5, "total_iters": 2},
)
#: Of hops that train: name, architecture and shape, configuration.
HOPS: dict[str, tuple[Any, tuple[int, ...], dict[str, Any]]] = {
    "linear": ("linear", (4,), {}),
    "momentum": ("linear", (4,), {"optimizer": {"name": "sgd", "momentum": 0.5}}),
    "decay": ("linear", (4,), {"weight_decay": 0.125}),
    "mae": ("linear", (4,), {"loss": "mae", "accumulate": 2}),
    "mlp": ("mlp(hidden=4)", (4,), {"loss": "mae", "batch_size": 4}),
    "dropout": ("mlp(hidden=4, dropout=0.5)", (4,), {"loss": "mae"}),
    "cnn": ("cnn(width=2)", (4, 4), {"loss": "mae"}),
    "step": ("linear", (4,), {"schedule": {"name": "step", "step_size": 1, "gamma": 0.5}}),
}


def digest(*parts: object) -> str:
    """Return 16 letters for bytes, and for what `plain` takes."""
    hasher = blake3()
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(plain(part)).encode()
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.hexdigest()[:16]


def plain(value: object) -> object:
    """Return what JSON can hold: of a dataclass its values, however class and fields are called.

    >>> plain(Target(name="y", task="regression", size=1))
    ['y', 'regression', 1, None]
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.hex() if isinstance(value, bytes) else value


# -- models ----------------------------------------------------------------------


def model_facts(number: int, model: Model) -> Facts:
    """Return what names a model, its tensors, its state and its outline."""
    _, architecture, shape, outputs = model
    module = module_of(model)
    structure, packed = trace(module), outlined(trace(module))
    without_logarithms = replace(packed, feature=packed.feature[:0], mass=packed.mass[:0])
    contents = contents_of(module)
    hashes = [(entry, hash_of(contents.tensor(entry))) for entry in contents.entries]
    parsed = parse(architecture)
    row = ModelDefinition(
        architecture=parsed, arguments={}, input_shape=shape, outputs=outputs
    ).row()
    config = {"architecture.width": number, "freeze_up_to": "0" if number % 2 else None}
    facts = {
        "canonical": digest(structure.canonical_hash),
        "prefixes": digest(*structure.prefix_hashes, structure.prefixes),
        "structure": digest(structure.to_json()),
        "outline": digest(without_logarithms.to_bytes()),
        "definition": digest(
            canonical(architecture), row["definition_hash"], architecture_hash(parsed, config)
        ),
        "tensors": digest(*(name for _, name in hashes)),
        "weights": digest(weights_hash(hashes), entries_hash(hashes)),
        "chunks": digest(*map(chunk, module.state_dict().values())),
        "state": state(module, number),
    }
    return facts | ({"flow": flow(module, shape)} if number % 8 == 0 else {})


def module_of(model: Model) -> nn.Module:
    """Return a module whose weights the seed 3 gives, rounded: processors differ in a last bit."""
    _, architecture, shape, outputs = model
    if architecture.get("factory") in WRITTEN:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(3)
            module: nn.Module = WRITTEN[architecture["factory"]][2]()
    else:
        module = initial_module(architecture, {}, shape, outputs, SHIPPED, seed=3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_((parameter * 256).round() / 256)
    return module


def chunk(tensor: Tensor) -> bytes:
    """Return a tensor's bytes as they are stored, alone and against itself moved by a place."""
    raw = raw_bytes(tensor)
    size = tensor.element_size()
    alone, beside = encode(raw, size), encode(raw, size, np.roll(raw, size))
    return b"%d:%b%d:%b" % (alone.codec, alone.data, beside.codec, beside.data)


def state(module: nn.Module, number: int) -> str:
    """Return the hash of a state after a step by gradients of 0."""
    raw = {
        "optimizer": OPTIMIZERS[number % len(OPTIMIZERS)],
        "schedule": SCHEDULES[number % len(SCHEDULES)],
        "lr": 0.25,
    }
    live = build_live(module, setup_of(raw, (NUMBER,)).config)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    live.optimizer.step()
    if live.schedule is not None:
        live.schedule.step()
    found = encode_state(live)
    assert encoding(live).digest() == state_hash(found)
    return digest(state_hash(found))


def flow(module: nn.Module, shape: tuple[int, ...]) -> str:
    """Return a hash of what a forward does, operation by operation, and of its outline."""
    try:
        found = capture(module.eval(), (torch.zeros(2, *shape),))
    except MmdbError:
        return "none"
    return digest(found, skeleton_of(found))


# -- a hop, chunks, numbers --------------------------------------------------------


def hop(name: str) -> Facts:
    """Return the state that a real hop leaves."""
    architecture, shape, config = HOPS[name]
    module = initial_module(architecture, {}, shape, 1, SHIPPED, seed=0)
    for k, parameter in enumerate(module.parameters()):
        count = parameter.numel()
        values = ((torch.arange(count) * 5 + 3 * k) % 9 - 4) / 4.0
        parameter.data = values.reshape(parameter.shape)
    raw = {"optimizer": "sgd", "lr": 0.0625, "batch_size": 8, "loss": "mse"} | config
    setup: Setup = setup_of(raw, (NUMBER,))
    x = ((torch.arange(16 * int(np.prod(shape))) * 7) % 5 - 2.0).reshape(16, *shape)
    y = (torch.arange(16) % 5 - 2.0).reshape(16)
    live = build_live(module, setup.config)
    train_pass(live, x, y, setup=setup, seed=5, ends_epoch=True)
    return {"state": digest(encode_state(live))}


def runs() -> dict[str, list[tuple[np.ndarray, np.ndarray | None]]]:
    """Return runs of bytes and their bases, by the kind of run."""
    noise = np.random.default_rng(0).integers(0, 256, 64 << 10, np.uint8)
    sparse = np.where(np.arange(noise.size) % 97 < 2, noise, 0).astype(np.uint8)
    planes = np.where(np.arange(noise.size) % 4 == 3, noise % 3, noise).astype(np.uint8)
    alone = {
        "empty": noise[:0],
        "constant": np.resize(noise[:8], noise.size),
        "noise": noise,
        "sparse": sparse,
        "ramp": np.arange(noise.size // 8, dtype="<i8").view(np.uint8),
        "repeats": np.resize(noise[:1000], noise.size),
        "planes": planes,
    }
    moved = {"same": 0 * noise, "patch": sparse, "delta": noise % 2, "other": noise[::-1]}
    found: dict[str, list[Any]] = {name: [(raw, None)] for name, raw in alone.items()}
    for name, change in moved.items():
        found[name] = [(raw, raw + change) for raw in (noise, planes)]
    return found


def coded(given: Iterable[tuple[np.ndarray, np.ndarray | None]]) -> Iterator[bytes]:
    """Yield codec and bytes of each run, in words of each size."""
    for raw, base in given:
        for itemsize in (1, 2, 4, 8):
            for level in (1, 9):
                made = encode(raw, itemsize, base, level=level)
                yield bytes([made.codec]) + made.data


def number_facts() -> Facts:
    """Return the numbers that stand in stored rows."""
    return {
        "operators": str(OPERATORS_VERSION),
        "outline": str(VERSION),
        "packed": digest(HEADER, list(PACKED.values())),
        "codecs": digest({one.name: int(one) for one in Codec}),
        "planes": digest({one.name: int(one) for one in Plane}),
        "factories": digest(sorted(SHIPPED)),
    }


def key_facts() -> Facts:
    """Return seeds, orders, names of features, and hashes of a tensor of each dtype."""
    numbers = range(20)
    a, b = bytes(range(32)), bytes(32)
    origins: list[dict[str, Any]] = [{"seed": 3}, {"model": "m@1"}]
    source = torch.arange(48, dtype=torch.uint8)
    tensors = [
        source.view(dtype).reshape(-1, 3) for dtype in DTYPES.values() if dtype != torch.bool
    ]
    return {
        "candidate": digest([seeds.candidate_seed(7, k) for k in numbers], seeds.frozen_seed(7)),
        "hop": digest([seeds.hop_seed(7, k, k % 3, part) for k in numbers for part in (-2, -1, 4)]),
        "order": digest([seeds.visit_order(7, k, epoch, 9) for k in numbers for epoch in (1, 2)]),
        "prefix": digest(prefix_groups.prefix_key(a, b)),
        "feature": digest(prefix_groups.feature_key(a, b, "float16", "cpu")),
        "partition": digest(prefix_groups.partition_key(a, "owner", b)),
        "network": digest(
            *(prefix_groups.network_hash({"factory": "mlp"}, {"w": 1}, o) for o in origins)
        ),
        "dtypes": digest(sorted(DTYPES), *map(hash_of, tensors)),
        "shapes": digest(*(hash_of(torch.zeros(s)) for s in [(), (0,), (3, 0), (1, 1), (2, 3)])),
    }


# -- datasets --------------------------------------------------------------------


def dataset_facts() -> dict[str, Facts]:
    """Return the hashes of each dataset, its partitions and its blocks, on DuckDB."""
    with (
        TemporaryDirectory() as folder,
        mmdb.connect(f"duckdb:///{folder}/mmdb.duckdb") as database,
    ):
        database.sql(TABLE)
        return {f"dataset {name}": _dataset_facts(database, name) for name in DATASETS}


def _dataset_facts(database: mmdb.Database, title: str) -> Facts:
    name, asked = title.replace(" ", "_"), dict(DATASETS[title])
    query = f"SELECT {asked.pop('query')} FROM points {asked.pop('where', '')}"
    database.create_dataset(name, query, **asked)
    ((_, content_hash),) = _rows(database, "dataset_id, content_hash", "dataset", name)
    parts = _rows(database, "role, p.ordinal, p.row_count, p.content_hash", "partition p", name)
    blocks = _rows(
        database,
        "role, p.ordinal, b.ordinal AS block, b.row_count, b.digest, octet_length(b.data) AS size",
        "block b JOIN mmdb.partition p USING (part_id)",
        name,
    )
    return {
        "hash": digest(content_hash),
        "partitions": digest(*(part for row in parts for part in row)),
        "blocks": digest(*(part for row in blocks for part in row)),
    }


def _rows(database: mmdb.Database, columns: str, table: str, name: str) -> list[tuple[Any, ...]]:
    rows = database.sql(
        f"SELECT {columns} FROM mmdb.{table} WHERE dataset_id = "
        f"(SELECT dataset_id FROM mmdb.dataset WHERE name = '{name}')"
    )
    return sorted(tuple(row.values()) for row in rows)


# -- all of them -------------------------------------------------------------------


@cache
def current() -> dict[str, Facts]:
    """Return the facts of each item of the corpus."""
    named: dict[str, Callable[[], Facts]] = {
        "numbers": number_facts,
        "keys": key_facts,
        "chunks": lambda: {name: digest(*coded(each)) for name, each in runs().items()},
    }
    found = {name: facts() for name, facts in named.items()}
    found |= {f"hop {name}": hop(name) for name in HOPS}
    found |= {model[0]: model_facts(number, model) for number, model in enumerate(models())}
    return found | dataset_facts()


def written(items: dict[str, Facts]) -> str:
    """Return the file's text."""
    return "".join(
        "\t".join([name, *(f"{fact}={value}" for fact, value in facts.items())]) + "\n"
        for name, facts in items.items()
    )


def golden() -> dict[str, Facts]:
    """Return the facts that the file holds."""
    lines = [line.split("\t") for line in GOLDEN.read_text().splitlines()]
    return {name: dict(fact.split("=") for fact in facts) for name, *facts in lines}


def differences(expected: dict[str, Facts], found: dict[str, Facts]) -> list[str]:
    """Return the items that differ, each with the facts that do."""
    told = []
    for name in {**expected, **found}:
        was, now = expected.get(name, {}), found.get(name, {})
        facts = [fact for fact in {**was, **now} if was.get(fact) != now.get(fact)]
        if facts:
            told.append(f"{name}: {', '.join(facts)}")
    return told


def test_every_item_has_the_hashes_that_it_had() -> None:
    changed = differences(golden(), current())
    if changed:
        pytest.fail(f"{len(changed)} items differ:\n" + "\n".join(changed), pytrace=False)


def test_the_corpus_is_as_large_as_it_says() -> None:
    names = [model[0] for model in models()]
    assert (len(names), len(set(names)), len(DATASETS)) == (200, 200, 20)
    assert {data[0] for each in runs().values() for data in coded(each)} == set(Codec)


def test_a_changed_fact_is_told_by_item_and_fact() -> None:
    was = {"a": {"x": "1", "y": "2"}, "b": {"x": "1"}}
    now = {"a": {"x": "1", "y": "3"}, "c": {"x": "1"}}
    assert differences(was, now) == ["a: y", "b: x", "c: x"]


if __name__ == "__main__":
    GOLDEN.write_text(written(current()))
