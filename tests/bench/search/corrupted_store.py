"""A small database with something of all that is stored, and what reads it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from mmdb.api import Database
from mmdb.data.dataset import find_dataset
from mmdb.data.reader import read_partition
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recipe import Recipe
from mmdb.store.models.recover import ModelReader, Verify
from mmdb.store.models.save import save_model
from mmdb.store.tensors import tensor_bytes
from mmdb.train.compute.exact import rng_state
from mmdb.train.replay.recipe_replay import load_weights
from mmdb.train.replay.saving import save_candidate, save_with_recipe
from tests import points, trainers

#: Models, and how each is saved.
MODELS: dict[str, dict[str, str]] = {
    "net": {"approach": "snapshot"},
    "tuned": {"approach": "update", "parent": "net"},
    "patched": {"approach": "update", "parent": "net"},
}
_CHUNK_BYTES = 4 << 10
_STORE = {"tensor_chunk", "encoding", "tensor"}
_MODEL = _STORE | {"manifest_tensor", "model", "model_change"}


@dataclass(frozen=True, slots=True)
class Read:
    """One way to read what is stored."""

    name: str
    tables: set[str]
    function: Callable[[Database, Verify], Any]
    thing: str  # what an error names, as a pattern
    verifies: bool = True  # whether it can be told to verify less

    def names(self, error: str) -> bool:
        """Return whether an error names the thing that it could not read."""
        return re.search(self.thing, error) is not None


@cache
def models() -> dict[str, dict[str, torch.Tensor]]:
    """Return models whose chunks are of every codec, with ties, views and empty tensors."""
    source = torch.Generator().manual_seed(0)
    net: dict[str, torch.Tensor] = {
        "weight": torch.randn(50, 100, generator=source) * 0.02,
        "noise": torch.randint(0, 256, (50, 300), generator=source, dtype=torch.uint8),
        "constant": torch.full((30, 100), 0.5),
        "sparse": torch.zeros(40, 100).index_fill_(0, torch.tensor([3]), 1.5),
        "half": torch.randn(70, 100, generator=source).bfloat16(),
        "complex": torch.randn(20, 60, generator=source, dtype=torch.complex64),
        "bias": torch.randn(300, generator=source),
        "count": torch.tensor(7),
        "empty": torch.empty(0, 5),
        "same": torch.full((30, 100), 0.5),
    }
    memory = torch.randn(3000, generator=source)
    net |= {"all": memory, "part": memory[500:2500].view(40, 50).t()}
    net["tied"] = net["weight"]
    tuned = {p: t + 1e-5 * t.abs() if t.is_floating_point() else t.clone() for p, t in net.items()}
    patched = dict(net)
    patched["weight"] = net["weight"].clone()
    patched["weight"][7, 3:9] += 1e-4
    patched["tied"] = patched["weight"]
    return {"net": net, "tuned": tuned, "patched": patched}


@contextmanager
def small_chunks() -> Iterator[None]:
    """Cut tensors into more chunks than usual."""
    before = tensor_bytes.CHUNK_BYTES
    tensor_bytes.CHUNK_BYTES = _CHUNK_BYTES
    try:
        yield
    finally:
        tensor_bytes.CHUNK_BYTES = before


def fill(db: Database) -> dict[str, Any]:
    """Store models, a recipe, a dataset and a run's checkpoints; return what each read gives."""
    for name, how in MODELS.items():
        save_model(db.connection, name, models()[name], **how)  # type: ignore[arg-type]
    points.fill(db, rows=120)
    db.create_run("r", dataset="d", architecture="linear", epochs=1).train(workers=1)
    db.register_trainer("every_generator", "tests.trainers:every_generator")
    module = _module()
    save_model(db.connection, "odd", module)
    state = {"rng": rng_state()}
    trainers.every_generator(module, None)  # type: ignore[arg-type]
    recipe = Recipe(trainer="every_generator", seed=3, state=state)
    save_with_recipe(db.connection, "made", module, recipe, parent="odd", approach="provenance")
    right: dict[str, Any] = {name: models()[name] for name in MODELS}
    right |= {f"{name}, by rows": models()[name]["weight"][20:40] for name in MODELS}
    found = {read.name: read.function(db, "full") for read in READS if read.name not in right}
    return right | found


def _module() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(60, 40), nn.Linear(40, 2))


def _tensors(name: str) -> Callable[[Database, Verify], Any]:
    return lambda db, verify: ModelReader(db.connection).tensors(
        find_model(db.connection, name), verify=verify
    )


def _rows(name: str) -> Callable[[Database, Verify], Any]:
    return lambda db, verify: ModelReader(db.connection).rows(
        find_model(db.connection, name), "weight", 20, 40, verify=verify
    )


def _made(db: Database, verify: Verify) -> Any:
    found = load_weights(db.connection, find_model(db.connection, "made"), into=_module())
    return {path: tensor.detach().clone() for path, tensor in found.items()}


def _blocks(db: Database, verify: Verify) -> Any:
    """Return the rows of a dataset, through an empty cache."""
    before = os.environ["MMDB_CACHE_DIR"]
    found = {}
    with tempfile.TemporaryDirectory(prefix="mmdb-search-") as folder:
        os.environ["MMDB_CACHE_DIR"] = folder
        try:
            for part in find_dataset(db.connection, "d").partitions:
                rows = read_partition(db.connection, part.part_id, part.content_hash)
                arrays = [*rows.input_arrays, *rows.label_arrays]
                found[str(part.part_id)] = {str(k): a.copy() for k, a in enumerate(arrays)}
        finally:
            os.environ["MMDB_CACHE_DIR"] = before
    return found


def _candidate(db: Database, verify: Verify) -> Any:
    (row,) = db.sql("SELECT candidate_id FROM mmdb.candidate")
    saved = save_candidate(db.connection, row["candidate_id"], "best", approach="snapshot")
    return _tensors(f"best@{saved['version']}")(db, "full")


READS = [
    *(Read(name, _MODEL, _tensors(name), rf"{name}@|{name}") for name in MODELS),
    *(Read(f"{name}, by rows", _MODEL, _rows(name), name) for name in MODELS),
    Read(
        "recipe", _MODEL | {"recipe", "recipe_tensor"}, _made, "made|odd|trainer '", verifies=False
    ),
    Read("blocks", {"block"}, _blocks, r"[Bb]lock|[Pp]artition", verifies=False),
    Read("checkpoint", {"checkpoint_chunk"}, _candidate, "candidate", verifies=False),
]


def reads(table: str) -> list[Read]:
    """Return what reads a table."""
    return [read for read in READS if table in read.tables]
