"""`mmdb bench store`: models saved, recovered and read, beside files on the same disk.

What needs packages that mmdb does not depend on is measured by tests/bench.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch

from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.bench.store_access import measure_access
from mmdb.bench.store_catalog import measure_catalog
from mmdb.bench.store_chain import measure_chain
from mmdb.bench.store_provenance import measure_provenance
from mmdb.bench.store_push import measure_push
from mmdb.bench.store_recovery import measure_recovery
from mmdb.bench.store_saves import measure_saves
from mmdb.bench.store_sizes import measure_sizes
from mmdb.bench.store_subject import Subject, subject_in

GROUPS: dict[str, Callable[[Subject], Iterator[Figure]]] = {
    "sizes": measure_sizes,
    "saves": measure_saves,
    "recovery": measure_recovery,
    "access": measure_access,
    "provenance": measure_provenance,
    "push": measure_push,
    "catalog": measure_catalog,
    "chain": measure_chain,
}


def bench_store(
    databases: list[Database], groups: Iterable[str] = tuple(GROUPS)
) -> Iterator[Figure]:
    """Measure every database in one run, each group of figures on both before the next.

    Args:
        groups: keys of GROUPS.
    """
    for group in groups:
        for db in databases:
            with subject_in(db) as subject, torch.no_grad():
                yield from GROUPS[group](subject)
