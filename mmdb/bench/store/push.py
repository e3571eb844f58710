"""Bytes on the wire when a fine-tuned variant goes to a server that has its parent."""

from __future__ import annotations

from collections.abc import Iterator

from mmdb.api import connect
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.store import variants
from mmdb.bench.store.recovery import same_bits
from mmdb.bench.store.subject import MB, Subject, reference
from mmdb.bench.store.wire import Wire

WIRE_BAR = 1.05  # of what the update stores


def measure_push(subject: Subject) -> Iterator[Figure]:
    """Yield what a node with a DuckDB file sends to the subject's server; both directions count.

    A DuckDB file is no server: nothing passes a wire there.
    """
    if subject.engine != "postgres":
        return
    for network in subject.networks("resnet18", "resnet152"):
        yield from _push(subject, network)


def _push(subject: Subject, network: str) -> Iterator[Figure]:
    fresh = variants.filled(network, 70)
    changed = variants.classifier_changed(fresh, 71)
    label = f"push-{network}"
    with connect(f"duckdb:///{subject.folder / network}.duckdb") as edge:
        node = Subject(edge, subject.prefix, subject.folder)
        node.register_factories()
        base = node.save(label, network, fresh)
        edge.push(reference(base), to=subject.db.connection.url)
        update = reference(node.save(label, network, changed, base))
        before = subject.stored()
        with Wire(subject.db.connection.url) as wire:
            edge.push(update, to=wire.url)
            passed = sum(wire.passed)
        stored = subject.stored() - before
    where = f"{subject.engine}, {network}: push, classifier changed"
    yield at_most(f"{where}, wire / stored", [passed / stored.total], "x", WIRE_BAR)
    yield Figure(name=f"{where}, on the wire", value=passed / MB, unit="MB")
    yield same_bits(f"{where}, recovered bit for bit", subject.db.recover(update), changed)
