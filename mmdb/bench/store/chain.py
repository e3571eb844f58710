"""A network that is fine-tuned over and over: bytes of a long chain of versions."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import torch
from torch import nn

from mmdb.bench.figures import Figure
from mmdb.bench.store import variants
from mmdb.bench.store.recovery import same_bits
from mmdb.bench.store.subject import MB, Subject, reference

NETWORK = "mobilenet_v2"
VERSIONS = 1000
BUDGET_S = 300.0  # a chain that would take longer is cut short, and its figures say so
TRIAL = 20  # versions from which that is foretold


def chain(count: int) -> Iterator[nn.Module]:
    """Yield the same network again and again, its classifier moved by a step each time."""
    module = variants.filled(NETWORK, 60)
    yield module
    draw = torch.Generator().manual_seed(61)
    head = module.get_submodule(variants.last_linear(module).removesuffix("."))
    for _ in range(1, count):
        for tensor in head.state_dict().values():
            std = variants.STEP * float(tensor.std())
            tensor += torch.empty_like(tensor).normal_(0, std, generator=draw)
        yield module


def measure_chain(subject: Subject) -> Iterator[Figure]:
    """Yield the stored bytes of a chain beside those of as many snapshots."""
    before, saved, seconds = subject.stored(), None, list[float]()
    for module in chain(subject.share.of(VERSIONS, TRIAL)):
        started = perf_counter()
        saved = subject.save("chain", NETWORK, module, saved)
        seconds.append(perf_counter() - started)
        if len(seconds) >= TRIAL and sum(seconds) > BUDGET_S:
            break
    stored, raw = subject.stored() - before, variants.raw_bytes(module) * len(seconds)
    where = f"{subject.engine}, {NETWORK}, {len(seconds)} versions in a chain"
    yield _share(f"{where}: stored / raw snapshots", stored.total / raw)
    yield _share(f"{where}: space on the disk / raw snapshots", stored.space / raw)
    yield Figure(name=f"{where}: stored", value=stored.total / MB, unit="MB")
    yield Figure(name=f"{where}: raw snapshots", value=raw / MB, unit="MB")
    mean = sum(seconds) / len(seconds)
    yield Figure(name=f"{where}: a save", value=mean * 1e3, unit="ms")
    yield from _last(subject, where, saved, module)


def _last(subject: Subject, where: str, saved: Any, module: nn.Module) -> Iterator[Figure]:
    started = perf_counter()
    found = subject.db.recover(reference(saved))
    taken = perf_counter() - started
    yield Figure(name=f"{where}: recover the last", value=taken * 1e3, unit="ms")
    yield same_bits(f"{where}: the last bit for bit", found, module)


def _share(name: str, value: float) -> Figure:
    return Figure(name=name, value=value, unit="")
