"""Experiment `warm`: steps to a target after a warm start beside a cold one, and unfit parents.

A pair's child is trained cold and, by each arm, from its parent: the same data, order of the data,
steps and seeds. Its parent was trained on other data. The target is the mean final score of the
cold trainings; a pair counts where that is above the parent's own score. No database is used.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.bench.workload import BenchShare
from tests.bench.warm.arms import Arm, CopyByName, Transferred
from tests.bench.warm.graph_transfer import graph_transfer
from tests.bench.warm.pairs import WORKLOADS, Pair, settings
from tests.bench.warm.processes import Part, train_part
from tests.bench.warm.report import safety_figures, saving_figures
from tests.bench.warm.safety import safety_pairs

SEEDS = 5
SAFETY = "safety"
PARTS: dict[str, Callable[[BenchShare], Iterator[Pair]]] = {**WORKLOADS, SAFETY: safety_pairs}
#: Beside the cold arm.
ARMS: tuple[Arm, ...] = (Transferred(graph_transfer), CopyByName())
#: Of unfit parents, only the arm that may refuse them is of interest.
SAFETY_ARMS: tuple[Arm, ...] = ARMS[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmShare(BenchShare):
    """How much is measured.

    Attributes:
        only: of PARTS; all if empty.
        pairs: of each part, the first ones; all without it.
        seeds: trainings of each pair and arm.
        processes: that train, each on one thread; one for each processor without it.
        folder: finished trainings are kept there and not done again; without it, they are deleted.
    """

    only: Sequence[str] = ()
    pairs: int | None = None
    seeds: int = SEEDS
    processes: int | None = None
    folder: Path | None = None


def bench_warm(databases: list[Database], share: WarmShare) -> Iterator[Figure]:
    """Train; `databases` are left alone."""
    return measure(share, ARMS, SAFETY_ARMS)


def measure(share: WarmShare, arms: Sequence[Arm], safety_arms: Sequence[Arm]) -> Iterator[Figure]:
    """Train a share of all parts with some arms, and yield the figures of each.

    The first arm is trained to the end, the others until they reach the target; with unfit
    parents, all are trained to the end.
    """
    seeds = share.of(share.seeds)
    with ExitStack() as stack:
        kept = share.folder
        if kept is None:
            kept = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mmdb-bench-")))
        for name in share.only or PARTS:
            chosen = tuple(safety_arms if name == SAFETY else arms)
            whole = chosen if name == SAFETY else chosen[:1]
            part = Part(
                name=name,
                pairs=PARTS[name],
                share=BenchShare(share=share.share),
                arms=chosen,
                whole=tuple(arm.name for arm in whole),
                seeds=seeds,  # the target depends on their number
                folder=kept / f"{name}-{seeds}-{settings(share)}",
            )
            trials = train_part(part, share.pairs, share.processes or os.cpu_count() or 1)
            is_whole = share.pairs is None and share.seeds >= SEEDS
            if name == SAFETY:
                yield from safety_figures(trials)
            else:
                yield from saving_figures(name, trials, is_whole)
