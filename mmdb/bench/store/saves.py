"""Seconds of a save beside torch.save and safetensors, each with fsync."""

from __future__ import annotations

from collections.abc import Iterator

from mmdb.bench.figures import Figure, at_least
from mmdb.bench.store import peers, variants
from mmdb.bench.store.subject import MB, Subject
from mmdb.bench.timing import beside, least, take_turns

ROUNDS = 5
UPDATE_BAR = 0.4  # of torch.save + fsync of the whole network
FIRST_SAVE_BAR = 140.0  # MB of raw bytes a second
PEER = "torch.save + fsync"


def measure_saves(subject: Subject) -> Iterator[Figure]:
    """Yield the times of updates of both ResNets, and the rate of a first save."""
    for network in subject.networks("resnet18", "resnet152"):
        yield from _updates(subject, network)
    for network in subject.networks("resnet152"):
        yield from _first_saves(subject, network)


def _updates(subject: Subject, network: str) -> Iterator[Figure]:
    fresh = variants.filled(network, 10)
    base = subject.save(f"save-{network}", network, fresh)
    rounds = subject.share.of(ROUNDS)
    # Another variant each time: the same one again would be found and not be stored.
    changed = iter([variants.classifier_changed(fresh, 11 + k) for k in range(rounds + 1)])
    state, file = fresh.state_dict(), subject.folder / "peer"
    seconds = take_turns(
        {
            "mmdb": lambda: subject.save(f"save-{network}", network, next(changed), base),
            "torch": lambda: peers.torch_save(state, file),
            "safetensors": lambda: peers.safetensors_save(state, file),
        },
        rounds,
    )
    where = f"{subject.engine}, {network}"
    name = f"{where}: save, classifier changed"
    yield beside(f"{name} / {PEER}", seconds["mmdb"], seconds["torch"], UPDATE_BAR, PEER)
    yield least(name, seconds["mmdb"])
    yield least(f"{where}: {PEER}", seconds["torch"])
    yield least(f"{where}: safetensors + fsync", seconds["safetensors"])


def _first_saves(subject: Subject, network: str) -> Iterator[Figure]:
    rounds = subject.share.of(3)
    fresh = iter([variants.filled(network, 20 + k) for k in range(1 + rounds)])
    first = next(fresh)
    raw, state, file = variants.raw_bytes(first), first.state_dict(), subject.folder / "peer"
    subject.save("first", network, first)
    seconds = take_turns(
        {
            "mmdb": lambda: subject.save("first", network, next(fresh)),
            "torch": lambda: peers.torch_save(state, file),
        },
        rounds,
        warm=0,
    )
    where, rates = f"{subject.engine}, {network}", [raw / MB / s for s in seconds["mmdb"]]
    yield at_least(f"{where}: first save", rates, "MB/s", FIRST_SAVE_BAR, PEER)
    rates = [raw / MB / s for s in seconds["torch"]]
    yield Figure(name=f"{where}: {PEER}", value=max(rates), unit="MB/s", runs=rates)
