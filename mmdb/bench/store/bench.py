"""`mmdb bench store`: models saved, recovered and read, beside files on the same disk.

What needs packages that mmdb does not depend on is measured by tests/bench.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.bench.share import Share
from mmdb.bench.store.access import measure_access
from mmdb.bench.store.catalog import measure_catalog
from mmdb.bench.store.chain import measure_chain
from mmdb.bench.store.provenance import measure_provenance
from mmdb.bench.store.push import measure_push
from mmdb.bench.store.recovery import measure_recovery
from mmdb.bench.store.saves import measure_saves
from mmdb.bench.store.sizes import measure_sizes
from mmdb.bench.store.subject import Subject, subject_in

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


def bench_store(databases: list[Database], share: Share) -> Iterator[Figure]:
    """Measure every database in one run, each group of figures on both before the next."""
    for measure in GROUPS:
        for db in databases:
            with subject_in(db, share) as subject, torch.no_grad():
                yield from measure(subject)
