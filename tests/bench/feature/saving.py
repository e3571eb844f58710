"""The same run with shared features and without: seconds, and what both came to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.api import Run
from mmdb.bench.figures import Figure, seconds_of
from tests.bench.feature.compare import largest_difference, largest_gap, swapped, within
from tests.bench.feature.subject import Subject

WORKERS = 2
#: Nothing is shared: each batch passes the frozen layers, and each candidate hops by itself.
UNSHARED = {"choice": "streamed", "fuse": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two runs of one search with the same seed, and the seconds of each."""

    shared: Run
    apart: Run
    shared_s: float
    apart_s: float


def train_both(
    subject: Subject,
    dataset: str,
    architecture: Mapping[str, Any],
    space: Mapping[str, Any],
    epochs: int,
) -> Pair:
    """Train a search with shared features, and once more without."""

    def trained(name: str, features: Mapping[str, Any]) -> tuple[Run, float]:
        run = subject.run(name, dataset, architecture, space, epochs=epochs, features=features)
        return run, seconds_of(lambda: run.train(workers=WORKERS))

    shared, shared_s = trained(f"{dataset}-shared", {"reuse": 0})
    apart, apart_s = trained(f"{dataset}-apart", UNSHARED)
    return Pair(shared=shared, apart=apart, shared_s=shared_s, apart_s=apart_s)


def saving_figures(subject: Subject, pair: Pair, where: str, bar: float) -> Iterator[Figure]:
    """Yield how many times as fast sharing is, and whether it changes what comes out."""
    ratio = pair.apart_s / pair.shared_s
    yield Figure(
        name=f"{where}: sharing against not sharing",
        value=ratio,
        unit="x",
        bar=f">= {bar:g}",
        holds=ratio >= bar,
    )
    yield Figure(name=f"{where}: with sharing", value=pair.shared_s, unit="s")
    yield Figure(name=f"{where}: without sharing", value=pair.apart_s, unit="s")
    ours, theirs = subject.objectives(pair.shared), subject.objectives(pair.apart)
    count = len(subject.candidates(pair.shared))
    gap = largest_gap(ours, theirs) if len(ours) == count else float("inf")
    yield within(f"{where}: validation losses apart by, of {count} candidates", gap)
    moved = swapped(ours, theirs)
    yield Figure(
        name=f"{where}: pairs that change places, ties aside",
        value=moved,
        unit="",
        bar="0",
        holds=len(ours) == count and moved == 0,
    )
    apart = max(
        largest_difference(
            subject.weights(one["candidate_id"]), subject.weights(other["candidate_id"])
        )
        for one, other in zip(
            subject.candidates(pair.shared), subject.candidates(pair.apart), strict=True
        )
    )
    yield within(f"{where}: weights apart from end-to-end training by", apart)
