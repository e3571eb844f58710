"""Seconds of a recovery, verified in full, beside safetensors and torch; and of a deep version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from mmdb.bench.figures import Figure, at_most
from mmdb.bench.store import peers, variants
from mmdb.bench.store.subject import Subject, reference
from mmdb.bench.timing import beside, least, take_turns

NETWORK = "resnet152"
ROUNDS, DEPTH = 7, 5
RECOVER_BAR_S = 0.5
SAFETENSORS_BAR = 4.0
PEER = "safetensors.load_file + copy"
#: How each of the updates differs from the one before, and the bar of the fifth against a snapshot.
CHAINS: dict[str, tuple[Callable[[nn.Module, int], nn.Module], float]] = {
    "last block changed": (variants.last_block_changed, 1.2),
    "every weight moved": (variants.every_weight_moved, 2.0),
}


def measure_recovery(subject: Subject) -> Iterator[Figure]:
    """Yield the times to recover a network of 240 MB, and versions five updates deep."""
    (network,) = subject.networks(NETWORK)
    fresh = variants.filled(network, 30)
    saved = subject.save("recover", network, fresh)
    yield from _beside_peers(subject, network, saved, fresh)
    for change, (vary, bar) in CHAINS.items():
        yield from _deep(subject, network, saved, fresh, change, vary, bar)


def _beside_peers(
    subject: Subject, network: str, saved: Any, module: nn.Module
) -> Iterator[Figure]:
    state = module.state_dict()
    packed, pickled = subject.folder / "peer.safetensors", subject.folder / "peer.pt"
    peers.safetensors_save(state, packed)
    peers.torch_save(state, pickled)
    name = reference(saved)
    seconds = take_turns(
        {
            "mmdb": lambda: subject.db.recover(name, verify="full"),
            "unverified": lambda: subject.db.recover(name, verify="none"),
            "safetensors": lambda: peers.safetensors_load(packed),
            "torch": lambda: peers.torch_load(pickled),
        },
        subject.share.of(ROUNDS),
    )
    where = f"{subject.engine}, {network}"
    yield at_most(f"{where}: recover, verified in full", seconds["mmdb"], "s", RECOVER_BAR_S, PEER)
    ours, theirs = seconds["mmdb"], seconds["safetensors"]
    yield beside(f"{where}: recover / {PEER}", ours, theirs, SAFETENSORS_BAR, PEER)
    yield least(f"{where}: {PEER}", seconds["safetensors"], "s")
    yield least(f"{where}: recover, not verified", seconds["unverified"], "s")
    yield least(f"{where}: torch.load", seconds["torch"], "s")
    yield same_bits(f"{where}: recovered bit for bit", subject.db.recover(name), module)


def _deep(
    subject: Subject,
    network: str,
    base: Any,
    fresh: nn.Module,
    change: str,
    vary: Callable[[nn.Module, int], nn.Module],
    bar: float,
) -> Iterator[Figure]:
    module, saved, label = fresh, base, f"deep-{change.replace(' ', '-')}"
    for k in range(DEPTH):
        module = vary(module, 40 + k)
        saved = subject.save(label, network, module, saved)
    name, snapshot = reference(saved), reference(base)
    seconds = take_turns(
        {
            "deep": lambda: subject.db.recover(name, verify="full"),
            "snapshot": lambda: subject.db.recover(snapshot, verify="full"),
        },
        subject.share.of(ROUNDS),
    )
    where = f"{subject.engine}, {network}, {DEPTH} updates deep, {change}"
    ours, theirs = seconds["deep"], seconds["snapshot"]
    yield beside(f"{where}: recover / snapshot's", ours, theirs, bar, "its snapshot; MMLib: 2.2")
    yield least(f"{where}: recover", seconds["deep"], "s")
    yield same_bits(f"{where}: recovered bit for bit", subject.db.recover(name), module)


def same_bits(name: str, found: nn.Module, expected: nn.Module) -> Figure:
    """Return a figure that holds if both modules have the same tensors under the same paths."""
    a, b = found.state_dict(), expected.state_dict()
    same = list(a) == list(b) and all(_identical(a[path], b[path]) for path in a)
    return Figure(name=name, value=float(same), unit="", bar="= 1", holds=same)


def _identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare bytes: NaN equals the same NaN, and -0.0 is not 0.0."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    flat = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return torch.equal(*flat)
