"""Experiment `pretrained`: lineage and differences of imported models that nobody said it of, and
adapters of one network.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_least, at_most
from mmdb.bench.workload import BenchShare, bench_names
from mmdb.store.tensors.codec import encode
from mmdb.store.tensors.tensor_bytes import chunk_bytes, raw_bytes, spans
from tests.bench.pretrained.adapters import bench_adapters
from tests.bench.pretrained.draws import bench_draws

PARTS = ("heritage", "checkpoints", "adapters", "draws")
_ROOTS, _DESCENDANTS = 5, 20  # 105 models
_PACKED_BELOW = 8192  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainedShare(BenchShare):
    """How much is measured; see `PARTS`."""

    only: Sequence[str] = ()
    seeds: int = 1  # forests, each from another seed


def bench_pretrained(databases: list[Database], share: PretrainedShare) -> Iterator[Figure]:
    """Train models from each other, import them without lineage, and ask for it."""
    parts = share.only or PARTS
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small networks train no faster with more
    for db in databases:
        for seed in range(share.seeds if "heritage" in parts else 0):
            with bench_names(db) as prefix:
                yield from _heritage(db, share, seed, f"{prefix}/")
        if "checkpoints" in parts:
            with bench_names(db) as prefix:
                yield from _checkpoints(db, prefix)
        if "draws" in parts:
            with bench_names(db) as prefix:
                yield from bench_draws(db, prefix, count=share.of(50, 2), seed=0)
    torch.set_num_threads(threads)
    for db in databases if "adapters" in parts else ():
        with bench_names(db) as prefix:
            rows, candidates = share.of(640, 80), 2 * share.of(8, 1)
            yield from bench_adapters(db, prefix, rows=rows, candidates=candidates)


# -- Whose child -------------------------------------------------------------------


@dataclass
class _Forest:
    """Models that were trained from each other, and the parent of each; None: a root."""

    states: list[dict[str, Tensor]] = field(default_factory=list)
    parents: list[int | None] = field(default_factory=list)

    def add(self, module: nn.Module, parent: int | None) -> int:
        self.states.append({k: v.clone() for k, v in module.state_dict().items()})
        self.parents.append(parent)
        return len(self.parents) - 1


def _heritage(db: Database, share: PretrainedShare, seed: int, prefix: str) -> Iterator[Figure]:
    forest = _forest(share, seed)
    order = np.random.default_rng(seed).permutation(len(forest.states)).tolist()
    place = {f"{prefix}{k}@1": k for k in order}
    with tempfile.TemporaryDirectory(prefix="mmdb-bench-") as folder:
        for k in order:
            file = Path(folder) / f"{k}.safetensors"
            save_file(forest.states[k], file)
            db.import_model(file, f"{prefix}{k}")
    start = perf_counter()
    proposed = [one for one in db.propose_parents() if one.model in place]
    seconds = perf_counter() - start
    found = {place[one.model]: place[one.parent] for one in proposed if one.parent is not None}
    true = {k: p for k, p in enumerate(forest.parents) if p is not None}
    right = sum(found.get(k) == p for k, p in true.items())
    share_right = 100 * right / max(len(true), len(found))
    engine = db.connection.engine
    name = f"{engine}: edges of {len(place)} models that are right, seed {seed}"
    yield at_least(name, [share_right], "%", 95)
    yield at_most(f"{engine}: propose_parents of {len(place)} models", [seconds], "s", 60)
    recall = _recall(db, forest, order, prefix)
    yield at_least(f"{engine}: best base found, at first", [recall], "%", 95)


def _forest(share: PretrainedShare, seed: int) -> _Forest:
    x = torch.from_numpy(load_digits().images / 16).float()
    y = torch.from_numpy(load_digits().target)
    random, forest = np.random.default_rng(seed), _Forest()
    for tree in range(_ROOTS):
        torch.manual_seed(int(random.integers(2**31)))
        module = _cnn() if tree % 2 else _mlp()
        _train(module, x, y, lr=1e-3, epochs=15)
        modules = {forest.add(module, None): module}
        (root,) = modules
        children: list[int] = []
        few = int(random.integers(3, 6))
        for k in range(share.of(_DESCENDANTS, few + 1)):
            parent = root if k < few else int(random.choice(children))
            child = _tuned(modules[parent], x, y, random)
            added = forest.add(child, parent)
            if k < few:
                modules[added] = child
                children.append(added)
    return forest


def _tuned(
    parent: nn.Sequential, x: Tensor, y: Tensor, random: np.random.Generator
) -> nn.Sequential:
    """Return a network fine-tuned from another one: other data, another head, its own rate."""
    child = copy.deepcopy(parent)
    torch.manual_seed(int(random.integers(2**31)))
    classes = torch.from_numpy(random.permutation(10)[: int(random.integers(4, 10))])
    child[-1] = nn.Linear(child[-1].in_features, len(classes))  # type: ignore[arg-type]
    turned = torch.rot90(x, int(random.integers(4)), (1, 2))
    images = 1 - turned if random.random() < 0.25 else turned
    label = torch.full((10,), -1)
    label[classes] = torch.arange(len(classes))
    rows = torch.from_numpy(random.permutation(np.flatnonzero(label[y] >= 0))[:600])
    rate = float(np.exp(random.uniform(*np.log((3e-4, 1e-3)))))
    _train(child, images[rows], label[y[rows]], lr=rate, epochs=int(random.integers(3, 8)))
    return child


def _mlp() -> nn.Sequential:
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


def _cnn() -> nn.Sequential:
    layers = [
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)),
    ]
    return nn.Sequential(nn.Unflatten(1, (1, 8)), *layers)


def _train(module: nn.Module, x: Tensor, y: Tensor, *, lr: float, epochs: int) -> None:
    optimizer = torch.optim.AdamW(module.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            optimizer.step()


# -- Kept as a difference to whom --------------------------------------------------


def _recall(db: Database, forest: _Forest, order: Sequence[int], prefix: str) -> float:
    """Return for how many models no other base would have given fewer bytes, in percent.

    Every base that there was is tried; tensors that are differences stand for their own bases.
    """
    rows = db.sql(
        "SELECT model, path, tensor_id, coalesce(base_id, tensor_id) AS root_id"
        f" FROM mmdb.tensor_storage WHERE chunks > 0 AND model LIKE '{prefix}%'"
    )
    tensors = {(row["model"], row["path"]): row for row in rows}
    owners = {row["tensor_id"]: int(row["model"].partition("/")[2]) for row in rows}
    told = {
        row["model"]: row["base"]
        for row in db.sql("SELECT model, reason ->> 'base' AS base FROM mmdb.model_overview")
    }
    right = 0
    for at, k in enumerate(order):
        own = {p: t for p, t in forest.states[k].items() if t.nbytes >= _PACKED_BELOW}
        sizes: dict[tuple[str, int], int] = {}  # of a tensor as a difference to another one
        alone = sum(_bytes(tensor, None) for tensor in own.values())
        totals: dict[str | None, int] = {None: alone}
        for other in order[:at]:
            total = 0
            for path, tensor in own.items():
                row = tensors.get((f"{prefix}{other}", path))
                root = 0 if row is None else row["root_id"]
                if (path, root) not in sizes:
                    base = forest.states[owners[root]][path] if root else None
                    is_base = base is not None and base.shape == tensor.shape
                    sizes[path, root] = _bytes(tensor, base if is_base else None)
                total += sizes[path, root]
            totals[f"{prefix}{other}@1"] = total
        best, chosen = min(totals.values()), totals[told[f"{prefix}{k}"]]
        right += chosen == best or (chosen == alone and best > 0.95 * alone)
    return 100 * right / len(order)


def _bytes(tensor: Tensor, base: Tensor | None) -> int:
    data, size = raw_bytes(tensor), chunk_bytes(tensor.shape, tensor.element_size())
    origin = None if base is None else raw_bytes(base)
    return sum(
        len(encode(data[a:b], 4, None if origin is None else origin[a:b]).data)
        for _, a, b in spans(len(data), size)
    )


def _checkpoints(db: Database, prefix: str) -> Iterator[Figure]:
    """Keep eight checkpoints of one training, an epoch from each other, without saying so."""
    x = torch.from_numpy(load_digits().images / 16).float()
    y = torch.from_numpy(load_digits().target)
    for dtype, bar in ((torch.bfloat16, 0.44), (torch.float16, None), (torch.float32, None)):
        torch.manual_seed(0)
        module = _mlp()
        _train(module, x, y, lr=1e-3, epochs=10)
        stored = raw = 0
        for _ in range(8):
            _train(module, x, y, lr=1e-4, epochs=1)
            state = {path: tensor.to(dtype) for path, tensor in module.state_dict().items()}
            saved = db.save(f"{prefix}-{dtype}", state)
            stored += saved.stored_bytes
            raw += sum(tensor.nbytes for tensor in state.values())
            read = db.model(saved.reference).tensors
            assert all(torch.equal(read[path], tensor) for path, tensor in state.items())
        name = f"{db.connection.engine}: bytes of eight checkpoints in {dtype} / raw"
        ratio = stored / raw
        yield Figure(name, ratio, "") if bar is None else at_most(name, [ratio], "", bar)
