"""mmdb beside MMLib's three approaches: bytes, seconds of a save, seconds of a recovery."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from mmdb.bench import store_subject
from mmdb.bench.figures import Figure, least, take_turns
from mmdb.bench.networks import PARAMETERS
from mmdb.bench.store_models import DEPTH, same_bits
from mmdb.bench.store_subject import MB, Subject, reference
from tests.bench.store.peer_mmlib import MMLib, network, training

ROUNDS = 3
PICTURES, SIDE = 64, 32  # of the training that MMLib's provenance approach repeats


def measure_mmlib(subject: Subject, source: Path) -> Iterator[Figure]:
    """Yield both stores' figures for the three networks.

    Args:
        source: the folder that holds the package `mmlib`.
    """
    for name in PARAMETERS:
        yield from _approaches(subject, source, name)
    yield from _deep(subject, source, "resnet152")
    yield from _provenance(subject, source, "resnet18")


def _approaches(subject: Subject, source: Path, name: str) -> Iterator[Figure]:
    fresh = store_subject.filled(name, 100)
    changed = [store_subject.classifier_changed(fresh, 101 + k) for k in range(ROUNDS + 1)]
    moved = store_subject.every_weight_moved(fresh, 110)
    where = f"{subject.engine}, {name}"
    ours = Store(subject, name)
    stores: dict[str, Store] = {"mmdb": ours}
    for approach in ("baseline", "update"):
        folder = subject.folder / f"{name}-{approach}"
        stores[f"MMLib {approach}"] = MMLibStore(MMLib(source, folder, approach), name, subject)
    bases = {}
    for label, store in stores.items():
        bases[label], taken = store.measured(fresh, None)
        yield Figure(name=f"{where}: {label}, fresh", value=taken / MB, unit="MB")
        _, taken = store.measured(changed[0], bases[label])
        yield Figure(name=f"{where}: {label}, classifier changed", value=taken / MB, unit="MB")
        _, taken = store.measured(moved, bases[label])
        yield Figure(name=f"{where}: {label}, every weight moved", value=taken / MB, unit="MB")
    queues = {label: iter(changed[1:]) for label in stores}
    last: dict[str, Any] = {}

    def save(label: str) -> None:
        last[label] = stores[label].save(next(queues[label]), bases[label])

    turns = take_turns({label: partial(save, label) for label in stores}, ROUNDS, warm=0)
    for label, runs in turns.items():
        yield least(f"{where}: {label}, save, classifier changed", runs)
    turns = take_turns(
        {key: partial(store.recover, last[key]) for key, store in stores.items()}, ROUNDS
    )
    for label, runs in turns.items():
        yield least(f"{where}: {label}, recover and verify", runs, "s")


def _deep(subject: Subject, source: Path, name: str) -> Iterator[Figure]:
    """A version that is several updates away from its snapshot."""
    module = store_subject.filled(name, 120)
    library = MMLib(source, subject.folder / "deep", "update")
    stores = {"mmdb": Store(subject, name), "MMLib update": MMLibStore(library, name, subject)}
    chains = {label: [store.save(module, None)] for label, store in stores.items()}
    for k in range(DEPTH):
        module = store_subject.last_block_changed(module, 121 + k)
        for label, store in stores.items():
            chains[label].append(store.save(module, chains[label][-1]))
    calls = {}
    for label, store in stores.items():
        for depth in (0, DEPTH):
            key = chains[label][depth]
            calls[f"{label}, recover {depth} updates deep"] = partial(store.recover, key)
    for label, runs in take_turns(calls, ROUNDS).items():
        yield least(f"{subject.engine}, {name}: {label}", runs, "s")


def _provenance(subject: Subject, source: Path, name: str) -> Iterator[Figure]:
    """MMLib alone: mmdb's own recipes are measured by `mmdb bench store`."""
    folder = subject.folder / "provenance"
    data = folder / "data"
    data.mkdir(parents=True)
    draw = np.random.default_rng(130)
    np.save(data / "x.npy", draw.random((PICTURES, 3, SIDE, SIDE), dtype=np.float32))
    np.save(data / "y.npy", draw.integers(0, 1000, PICTURES))
    library = MMLib(source, folder / "store", "provenance")
    fresh = network(name, store_subject.filled(name, 131))
    base = library.save(fresh)
    module, before = deepcopy(fresh), library.stored_bytes()
    key, trained = library.train(base, training(module, data, folder), module)
    where = f"MMLib, {name}: provenance"
    taken = library.stored_bytes() - before
    pictures = sum(file.stat().st_size for file in data.iterdir())
    yield Figure(name=f"{where}, stored", value=taken / MB, unit="MB")
    yield Figure(name=f"{where}, of that the data", value=pictures / MB, unit="MB")
    with torch.enable_grad():
        runs = take_turns({"replay": lambda: library.recover(key)}, 1, warm=0)["replay"]
        found = library.recover(key)
    yield least(f"{where}, recover (trains again)", runs, "s")
    yield same_bits(f"{where}, recovered bit for bit", found, trained)


class Store:
    """mmdb, with what both stores are asked."""

    def __init__(self, subject: Subject, name: str) -> None:
        self._subject, self._name = subject, name

    def save(self, module: nn.Module, parent: Any) -> Any:
        """Save a module; return what names it."""
        return self._subject.save(f"mmlib-{self._name}", self._name, module, parent)

    def recover(self, key: Any) -> nn.Module:
        """Return a module, verified."""
        module: nn.Module = self._subject.db.recover(reference(key), verify="full")
        return module

    def stored_bytes(self) -> int:
        """Return the bytes stored so far."""
        return self._subject.stored().total

    def measured(self, module: nn.Module, parent: Any) -> tuple[Any, int]:
        """Save a module; return what names it, and the bytes that it added."""
        before = self.stored_bytes()
        key = self.save(module, parent)
        return key, self.stored_bytes() - before


class MMLibStore(Store):
    """MMLib."""

    def __init__(self, library: MMLib, name: str, subject: Subject) -> None:
        super().__init__(subject, name)
        self._library = library

    def save(self, module: nn.Module, parent: Any) -> Any:
        """Save a module; return its id."""
        return self._library.save(network(self._name, module), parent)

    def recover(self, key: Any) -> nn.Module:
        """Return a module, checked as MMLib does."""
        return self._library.recover(key)

    def stored_bytes(self) -> int:
        """Return the bytes of MMLib's files and documents."""
        return self._library.stored_bytes()
