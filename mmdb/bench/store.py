"""`mmdb bench store`: models saved, recovered and read, beside files on the same disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.bench.store_access import measure_access
from mmdb.bench.store_catalog import measure_catalog
from mmdb.bench.store_models import (
    measure_chain,
    measure_provenance,
    measure_recovery,
    measure_saves,
    measure_sizes,
)
from mmdb.bench.store_push import measure_push
from mmdb.bench.store_subject import Subject, subject_in
from mmdb.bench.workload import Share

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
