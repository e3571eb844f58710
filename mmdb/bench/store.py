"""`mmdb bench store`: models saved, recovered and read, and their bytes on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from mmdb.api import Database, connect
from mmdb.bench import store_subject
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.store_access import measure_access
from mmdb.bench.store_catalog import measure_catalog
from mmdb.bench.store_models import (
    measure_chain,
    measure_provenance,
    measure_recovery,
    measure_saves,
    measure_sizes,
    same_bits,
)
from mmdb.bench.store_subject import MB, Subject, Wire, reference, subject_in
from mmdb.bench.workload import BenchShare

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
    fresh = store_subject.filled(network, 70)
    changed = store_subject.classifier_changed(fresh, 71)
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
    yield Figure(f"{where}, on the wire", passed / MB, "MB")
    yield same_bits(f"{where}, recovered bit for bit", subject.db.recover(update), changed)


GROUPS: tuple[Callable[[Subject], Iterator[Figure]], ...] = (
    measure_sizes,
    measure_saves,
    measure_recovery,
    measure_access,
    measure_provenance,
    measure_push,
    measure_catalog,
    measure_chain,
)


def bench_store(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Measure every database in one run, each group of figures on both before the next."""
    for measure in GROUPS:
        for db in databases:
            with subject_in(db, share) as subject, torch.no_grad():
                yield from measure(subject)
