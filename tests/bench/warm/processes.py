"""The pairs of one part, trained in several processes: the parents first, then the children."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from mmdb.bench.workload import FULL, BenchShare
from mmdb.terminal import console
from tests.bench.warm.arms import Arm
from tests.bench.warm.campaign import run, trained
from tests.bench.warm.pairs import Pair
from tests.bench.warm.trial import Trial, Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a process needs to know; all of it can be sent to another one.

    Attributes:
        whole: names of the arms that are trained to the end even if they reach the target before.
        folder: of the journal.
    """

    name: str
    pairs: Callable[[BenchShare], Iterator[Pair]]
    arms: tuple[Arm, ...]
    whole: tuple[str, ...]
    seeds: int
    folder: Path
    share: BenchShare = FULL


def train_part(part: Part, pairs: int | None, processes: int) -> list[Trial]:
    """Train what the journal lacks, and return the trials of the pairs that were asked for.

    Args:
        pairs: how many, from the first on; all without it.
    """
    chosen = part.share.first(_pairs_of(part.pairs, part.share)[:pairs])
    firsts = {pair.parent.key: k for k, pair in reversed(list(enumerate(chosen)))}
    steps: tuple[tuple[str, Callable[[Part, int], None], Sequence[int]], ...] = (
        ("parents", _train_parent, sorted(firsts.values())),
        ("pairs", _train_pair, range(len(chosen))),
    )
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        for what, work, ordinals in steps:
            futures = [pool.submit(work, part, k) for k in ordinals]
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                console.print(f"{part.name}: {done} of {len(futures)} {what}")
    finally:
        pool.shutdown(cancel_futures=True)
    names, seeds = {pair.name for pair in chosen}, range(part.seeds)
    arms = {"cold", "parent", *(arm.name for arm in part.arms)}
    return [
        trial
        for trial in Trials(part.folder).records()
        if trial.pair in names
        and trial.arm in arms
        and (trial.arm == "parent" or trial.seed in seeds)
    ]


def _train_parent(part: Part, ordinal: int) -> None:
    trained(_pairs_of(part.pairs, part.share)[ordinal].parent, Trials(part.folder))


def _train_pair(part: Part, ordinal: int) -> None:
    pair = _pairs_of(part.pairs, part.share)[ordinal]
    run([pair], part.arms, range(part.seeds), Trials(part.folder), part.whole)


@cache
def _pairs_of(make: Callable[[BenchShare], Iterator[Pair]], share: BenchShare) -> list[Pair]:
    return list(make(share))
