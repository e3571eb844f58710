"""Stored bytes: a fresh network, its classifier fine-tuned, every weight fine-tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import nn

from mmdb.bench.figures import Figure, at_most
from mmdb.bench.networks import PARAMETERS
from mmdb.bench.store import variants
from mmdb.bench.store.subject import MB, Stored, Subject

FRESH_BAR = {"fp32": 0.86, "bf16": 0.70}
EVERY_WEIGHT_BAR = {"fp32": 0.65, "bf16": 0.30}
CHANGED_SHARE, CHANGED_BYTES = 0.65, 20_000  # of the raw bytes that changed, and beside them
RESNET152_SHARE = 0.025  # of its snapshot, classifier changed; MMLib: 0.035

ROUNDINGS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "fp32": lambda module: module,
    "bf16": variants.in_bfloat16,
}


def measure_sizes(subject: Subject) -> Iterator[Figure]:
    """Yield the stored sizes of all networks in both precisions."""
    for network in subject.networks(*PARAMETERS):
        fresh = variants.filled(network, 0)
        head = variants.classifier_changed(fresh, 1)
        every = variants.every_weight_moved(fresh, 2)
        for precision, rounded in ROUNDINGS.items():
            versions = [rounded(module) for module in (fresh, head, every)]
            yield from _of_network(subject, network, precision, versions)


def _of_network(
    subject: Subject, network: str, precision: str, versions: list[nn.Module]
) -> Iterator[Figure]:
    fresh, head, every = versions
    where, label = f"{subject.engine}, {network} {precision}", f"size-{network}-{precision}"
    raw, changed = variants.raw_bytes(fresh), variants.changed_bytes(fresh, head)
    base, snapshot = _saved(subject, label, network, fresh)
    _, update = _saved(subject, label, network, head, base)
    _, moved = _saved(subject, label, network, every, base)
    yield at_most(f"{where}: fresh / raw", [snapshot.total / raw], "", FRESH_BAR[precision])
    yield Figure(
        name=f"{where}: fresh, space on the disk / raw", value=snapshot.space / raw, unit=""
    )
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
) -> tuple[object, Stored]:
    before = subject.stored()
    saved = subject.save(label, network, module, parent)
    return saved, subject.stored() - before
