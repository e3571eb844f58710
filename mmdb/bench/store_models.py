"""Whole models in the store's bench: saves, recoveries, stored bytes, chains and recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import torch
from torch import nn

from mmdb.bench import store_subject
from mmdb.bench.figures import Figure, at_least, at_most, beside, is_so, least, take_turns
from mmdb.bench.networks import PARAMETERS
from mmdb.bench.store_subject import MB, StoredBytes, Subject, reference
from mmdb.bench.workload import make_points
from mmdb.data import node_cache

SAVE_ROUNDS = 5
UPDATE_BAR = 0.4  # of torch.save + fsync of the whole network
FIRST_SAVE_BAR = 140.0  # MB of raw bytes a second
SAVE_PEER = "torch.save + fsync"


def measure_saves(subject: Subject) -> Iterator[Figure]:
    """Yield the times of updates of both ResNets, and the rate of a first save."""
    for network in subject.networks("resnet18", "resnet152"):
        yield from _updates(subject, network)
    for network in subject.networks("resnet152"):
        yield from _first_saves(subject, network)


def _updates(subject: Subject, network: str) -> Iterator[Figure]:
    fresh = store_subject.filled(network, 10)
    base = subject.save(f"save-{network}", network, fresh)
    rounds = subject.share.of(SAVE_ROUNDS)
    # Another variant each time: the same one again would be found and not be stored.
    changed = iter([store_subject.classifier_changed(fresh, 11 + k) for k in range(rounds + 1)])
    state, file = fresh.state_dict(), subject.folder / "peer"
    seconds = take_turns(
        {
            "mmdb": lambda: subject.save(f"save-{network}", network, next(changed), base),
            "torch": lambda: store_subject.torch_save(state, file),
            "safetensors": lambda: store_subject.safetensors_save(state, file),
        },
        rounds,
    )
    where = f"{subject.engine}, {network}"
    name = f"{where}: save, classifier changed"
    yield beside(f"{name} / {SAVE_PEER}", seconds["mmdb"], seconds["torch"], UPDATE_BAR, SAVE_PEER)
    yield least(name, seconds["mmdb"])
    yield least(f"{where}: {SAVE_PEER}", seconds["torch"])
    yield least(f"{where}: safetensors + fsync", seconds["safetensors"])


def _first_saves(subject: Subject, network: str) -> Iterator[Figure]:
    rounds = subject.share.of(3)
    fresh = iter([store_subject.filled(network, 20 + k) for k in range(1 + rounds)])
    first = next(fresh)
    raw, state, file = store_subject.raw_bytes(first), first.state_dict(), subject.folder / "peer"
    subject.save("first", network, first)
    seconds = take_turns(
        {
            "mmdb": lambda: subject.save("first", network, next(fresh)),
            "torch": lambda: store_subject.torch_save(state, file),
        },
        rounds,
        warm=0,
    )
    where, rates = f"{subject.engine}, {network}", [raw / MB / s for s in seconds["mmdb"]]
    yield at_least(f"{where}: first save", rates, "MB/s", FIRST_SAVE_BAR, SAVE_PEER)
    rates = [raw / MB / s for s in seconds["torch"]]
    yield Figure(f"{where}: {SAVE_PEER}", max(rates), "MB/s", runs=rates)


RECOVERED_NETWORK = "resnet152"
ROUNDS, DEPTH = 7, 5
RECOVER_BAR_S = 0.5
SAFETENSORS_BAR, AGAIN_BAR = 4.0, 1.3
RECOVERY_PEER = "safetensors.load_file + copy"
#: How each of the updates differs from the one before, and the bar of the fifth against a snapshot.
CHAINS: dict[str, tuple[Callable[[nn.Module, int], nn.Module], float]] = {
    "last block changed": (store_subject.last_block_changed, 1.2),
    "every weight moved": (store_subject.every_weight_moved, 2.0),
}


def measure_recovery(subject: Subject) -> Iterator[Figure]:
    """Yield the times to recover a network of 240 MB, and versions five updates deep."""
    (network,) = subject.networks(RECOVERED_NETWORK)
    fresh = store_subject.filled(network, 30)
    saved = subject.save("recover", network, fresh)
    with store_subject.own_cache(subject.folder / "cache"):
        yield from _beside_peers(subject, network, saved, fresh)
    with store_subject.own_cache(subject.folder / "cache", limit_bytes=0):
        for change, (vary, bar) in CHAINS.items():
            yield from _deep(subject, network, saved, fresh, change, vary, bar)


def _beside_peers(
    subject: Subject, network: str, saved: Any, module: nn.Module
) -> Iterator[Figure]:
    state = module.state_dict()
    packed, pickled = subject.folder / "peer.safetensors", subject.folder / "peer.pt"
    store_subject.safetensors_save(state, packed)
    store_subject.torch_save(state, pickled)
    name = reference(saved)
    seconds = take_turns(
        {
            "forgotten": node_cache.clear,
            "mmdb": lambda: subject.db.recover(name, verify="full"),
            "again": lambda: subject.db.recover(name, verify="full"),
            "safetensors": lambda: store_subject.safetensors_load(packed),
            "torch": lambda: store_subject.torch_load(pickled),
        },
        subject.share.of(ROUNDS),
    )
    where = f"{subject.engine}, {network}"
    yield at_most(
        f"{where}: recover, verified in full", seconds["mmdb"], "s", RECOVER_BAR_S, RECOVERY_PEER
    )
    ours, theirs = seconds["mmdb"], seconds["safetensors"]
    yield beside(
        f"{where}: recover / {RECOVERY_PEER}", ours, theirs, SAFETENSORS_BAR, RECOVERY_PEER
    )
    yield least(f"{where}: {RECOVERY_PEER}", seconds["safetensors"], "s")
    again = seconds["again"]
    yield beside(
        f"{where}: recover again / {RECOVERY_PEER}", again, theirs, AGAIN_BAR, RECOVERY_PEER
    )
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
    return is_so(name, list(a) == list(b) and all(_identical(a[p], b[p]) for p in a), "= 1")


def _identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare bytes: NaN equals the same NaN, and -0.0 is not 0.0."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    flat = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return torch.equal(*flat)


FRESH_BAR = {"fp32": 0.86, "bf16": 0.70}
EVERY_WEIGHT_BAR = {"fp32": 0.65, "bf16": 0.30}
CHANGED_SHARE, CHANGED_BYTES = 0.65, 20_000  # of the raw bytes that changed, and beside them
RESNET152_SHARE = 0.025  # of its snapshot, classifier changed; MMLib: 0.035

ROUNDINGS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "fp32": lambda module: module,
    "bf16": store_subject.in_bfloat16,
}


def measure_sizes(subject: Subject) -> Iterator[Figure]:
    """Yield the stored sizes of all networks in both precisions."""
    for network in subject.networks(*PARAMETERS):
        fresh = store_subject.filled(network, 0)
        head = store_subject.classifier_changed(fresh, 1)
        every = store_subject.every_weight_moved(fresh, 2)
        for precision, rounded in ROUNDINGS.items():
            versions = [rounded(module) for module in (fresh, head, every)]
            yield from _of_network(subject, network, precision, versions)


def _of_network(
    subject: Subject, network: str, precision: str, versions: list[nn.Module]
) -> Iterator[Figure]:
    fresh, head, every = versions
    where, label = f"{subject.engine}, {network} {precision}", f"size-{network}-{precision}"
    raw, changed = store_subject.raw_bytes(fresh), store_subject.changed_bytes(fresh, head)
    base, snapshot = _saved(subject, label, network, fresh)
    _, update = _saved(subject, label, network, head, base)
    _, moved = _saved(subject, label, network, every, base)
    yield at_most(f"{where}: fresh / raw", [snapshot.total / raw], "", FRESH_BAR[precision])
    yield Figure(f"{where}: fresh, space on the disk / raw", snapshot.space / raw, "")
    budget = CHANGED_SHARE * changed + CHANGED_BYTES
    yield Figure(
        name=f"{where}: classifier changed",
        value=update.total / MB,
        unit="MB",
        bar=f"<= {budget / MB:.3f} ({CHANGED_SHARE:g} of {changed / MB:.3f} + 20 kB)",
        holds=update.total <= budget,
        runs=[update.total / MB],
    )
    if network == "resnet152":
        share = update.total / snapshot.total
        peer = "MMLib: 0.035"
        yield at_most(f"{where}: classifier changed / snapshot", [share], "", RESNET152_SHARE, peer)
    yield at_most(
        f"{where}: every weight moved / raw", [moved.total / raw], "", EVERY_WEIGHT_BAR[precision]
    )


def _saved(
    subject: Subject, label: str, network: str, module: nn.Module, parent: object = None
) -> tuple[object, StoredBytes]:
    before = subject.stored()
    saved = subject.save(label, network, module, parent)
    return saved, subject.stored() - before


CHAIN_NETWORK = "mobilenet_v2"
VERSIONS = 1000
BUDGET_S = 300.0  # a chain that would take longer is cut short, and its figures say so
TRIAL = 20  # versions from which that is foretold


def chain(count: int) -> Iterator[nn.Module]:
    """Yield the same network again and again, its classifier moved by a step each time."""
    module = store_subject.filled(CHAIN_NETWORK, 60)
    yield module
    draw = torch.Generator().manual_seed(61)
    head = module.get_submodule(store_subject.last_linear(module).removesuffix("."))
    for _ in range(1, count):
        for tensor in head.state_dict().values():
            std = store_subject.STEP * float(tensor.std())
            tensor += torch.empty_like(tensor).normal_(0, std, generator=draw)
        yield module


def measure_chain(subject: Subject) -> Iterator[Figure]:
    """Yield the stored bytes of a chain beside those of as many snapshots."""
    before, saved, seconds = subject.stored(), None, list[float]()
    for module in chain(subject.share.of(VERSIONS, TRIAL)):
        started = perf_counter()
        saved = subject.save("chain", CHAIN_NETWORK, module, saved)
        seconds.append(perf_counter() - started)
        if len(seconds) >= TRIAL and sum(seconds) > BUDGET_S:
            break
    stored, raw = subject.stored() - before, store_subject.raw_bytes(module) * len(seconds)
    where = f"{subject.engine}, {CHAIN_NETWORK}, {len(seconds)} versions in a chain"
    yield Figure(f"{where}: stored / raw snapshots", stored.total / raw, "")
    yield Figure(f"{where}: space on the disk / raw snapshots", stored.space / raw, "")
    yield Figure(f"{where}: stored", stored.total / MB, "MB")
    yield Figure(f"{where}: raw snapshots", raw / MB, "MB")
    mean = sum(seconds) / len(seconds)
    yield Figure(f"{where}: a save", mean * 1e3, "ms")
    yield from _last(subject, where, saved, module)


def _last(subject: Subject, where: str, saved: Any, module: nn.Module) -> Iterator[Figure]:
    started = perf_counter()
    found = subject.db.recover(reference(saved))
    taken = perf_counter() - started
    yield Figure(f"{where}: recover the last", taken * 1e3, "ms")
    yield same_bits(f"{where}: the last bit for bit", found, module)


ROWS, WIDTH, CLASSES, HIDDEN = 20_000, 64, 10, 1024
RECIPE_BAR = 20_000  # bytes


def measure_provenance(subject: Subject) -> Iterator[Figure]:
    """Yield the bytes of a recipe, and whether it gives the same bits again."""
    db, name = subject.db, subject.name("provenance")
    make_points(db, f"{subject.prefix}_points", subject.share.of(ROWS, 400), WIDTH, CLASSES)
    db.create_dataset(name, f"SELECT * FROM {subject.prefix}_points", partitions=2)
    run = db.create_run(
        name,
        dataset=name,
        architecture=f"mlp(hidden=[{HIDDEN}, {HIDDEN}], dropout=0.1)",
        search={"space": {"optimizer": "adam", "lr": 1e-3}},
        epochs=2,
    )
    summary = run.train(workers=1)
    assert summary.best_candidate_id is not None
    saved = db.recover(f"{summary.model}@{summary.version}")
    before, started = subject.stored(), perf_counter()
    kept = db.save_candidate(summary.best_candidate_id, f"{name}-recipe", approach="provenance")
    save_s = perf_counter() - started
    added = (subject.stored() - before).total
    where = f"{subject.engine}, provenance of an mmdb-trained model"
    yield at_most(f"{where}: stored", [added], "B", RECIPE_BAR)
    yield Figure(f"{where}: save", save_s, "s")
    started = perf_counter()
    recovered = db.recover(kept)
    yield Figure(f"{where}: recover", perf_counter() - started, "s")
    yield same_bits(f"{where}: recovered bit for bit", recovered, saved)
