"""Experiment `feature`: heads on frozen layers, whose features are shared, beside training apart.

Parts: ResNet-18 with eight heads on each of four cuts; budgets of features; a transformer encoder;
fused hops; and whether features are kept where that costs least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.bench.workload import BenchShare
from tests.bench.feature.budgets import measure_budgets
from tests.bench.feature.choice import REPEATS, measure_choice
from tests.bench.feature.fused import measure_fused
from tests.bench.feature.resnet import measure_resnet
from tests.bench.feature.subject import Subject, subject_of
from tests.bench.feature.transformer import measure_transformer

PARTS = ("resnet", "budgets", "transformer", "fused", "choice")
SECONDS = 80.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureShare(BenchShare):
    """How much is measured.

    Attributes:
        only: of PARTS; all if empty.
        seconds: about what ResNet-18 takes without sharing; the transformer takes less with less.
        workloads: of the choice, the first ones; all without it.
        repeats: runs of each way of training one of them.
    """

    only: Sequence[str] = ()
    seconds: float = SECONDS
    workloads: int | None = None
    repeats: int = REPEATS


def bench_feature(databases: list[Database], share: FeatureShare) -> Iterator[Figure]:
    """Measure every database in one run."""
    for db in databases:
        yield from _measure(db, share)


def _measure(db: Database, share: FeatureShare) -> Iterator[Figure]:
    for part in share.only or PARTS:
        with subject_of(db, share) as subject:
            yield from _part(subject, part, share)


def _part(subject: Subject, part: str, share: FeatureShare) -> Iterator[Figure]:
    if part == "resnet":
        return measure_resnet(subject, share.time(share.seconds))
    if part == "budgets":
        return measure_budgets(subject)
    if part == "transformer":
        return measure_transformer(subject, share.time(share.seconds))
    if part == "fused":
        return measure_fused(subject)
    return measure_choice(subject, share.workloads, share.of(share.repeats))
