"""Experiment `match`: how fast the best parents are found, and whether they are the best.

One thread computes, so that its processor time is what a query takes on a machine that is not
shared. A query is an outline of the zoo, which itself is left out. Databases are given the same
outlines, as those of models, for the first search of a session.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_least, at_most
from mmdb.bench.workload import BenchShare
from mmdb.graph.match.pack import pack
from mmdb.graph.match.packed_zoo import PackedZoo, unpack
from mmdb.graph.match.zoo_search import explore
from mmdb.graph.ops.skeleton import LayerSkeleton
from tests.bench.match.all_scores import score_all
from tests.bench.match.families import draw, mutated
from tests.bench.match.session import measure

ZOO, QUERIES = 2_500, 500
LARGE_ZOO, LARGE_QUERIES = 100_000, 10
K, ROUNDS = 5, 3
BATCH = 2_000
P50_BAR_MS, P95_BAR_MS, LARGE_P95_BAR_MS = 100.0, 500.0, 2_000.0

#: What a new process does before its first answer.
_FIRST = """
from time import perf_counter
started = perf_counter()
from tests.bench.match.families import resnet
from mmdb.graph.match.pack import pack
from mmdb.graph.match.zoo_search import search
from mmdb.graph.match.packed_zoo import PackedZoo
imported = perf_counter()
zoo = PackedZoo()
zoo.add(b"", pack(resnet([2, 2, 2, 2], 64)))
search(pack(resnet([3, 4, 6, 3], 64)), zoo, 1)
print(imported - started, perf_counter() - imported)
"""


def bench_match(
    databases: list[Database],
    share: BenchShare,
    outlines: Callable[[], Sequence[LayerSkeleton]] | None = None,
) -> Iterator[Figure]:
    """Search two zoos, and databases that hold them.

    Args:
        outlines: gives those of the first zoo, each different; without it, ZOO drawn ones.
    """
    source = np.random.default_rng(0)
    drawn = outlines() if outlines else list(draw(source, share.of(ZOO, 40)))
    zoo = _zoo_of(_packed(drawn))
    yield from (_packing(drawn), _memory(zoo))
    asked = source.choice(len(drawn), min(share.of(QUERIES, 2), len(drawn)), replace=False).tolist()
    queries = [(drawn[number], number) for number in asked]
    yield from _ask(zoo, queries, P50_BAR_MS, P95_BAR_MS)
    changed = list(islice(_changed(drawn, source), share.of(LARGE_ZOO, 80)))
    packed = _packed(changed)
    large = _zoo_of(packed)
    yield _memory(large)
    asked = source.choice(len(changed), share.of(LARGE_QUERIES), replace=False).tolist()
    yield from _ask(large, [(changed[n], n) for n in asked], None, LARGE_P95_BAR_MS)
    for db in databases:
        yield from measure(db, packed, share)
    yield from _cold_start(share.of(ROUNDS))


def _changed(
    outlines: Sequence[LayerSkeleton], source: np.random.Generator
) -> Iterator[LayerSkeleton]:
    yield from outlines
    while True:
        yield mutated(outlines[int(source.integers(len(outlines)))], source)


def _packed(outlines: Sequence[LayerSkeleton]) -> list[bytes]:
    return [pack(outline).to_bytes() for outline in outlines]


def _zoo_of(packed: Sequence[bytes]) -> PackedZoo:
    zoo = PackedZoo()
    for start in range(0, len(packed), BATCH):
        numbers, found = unpack(packed[start : start + BATCH])
        zoo.extend([(start + number).to_bytes(8) for number in numbers.tolist()], found)
    return zoo


def _packing(outlines: Sequence[LayerSkeleton]) -> Figure:
    started = process_time()
    zoo = _zoo_of(_packed(outlines))
    value = (process_time() - started) / len(zoo) * 1e3
    return Figure(name="an outline packed and added", value=round(value, 3), unit="ms")


def _memory(zoo: PackedZoo) -> Figure:
    return Figure(
        name=f"{len(zoo)} outlines: memory, with room to grow",
        value=round(zoo.size_bytes / 1e6, 1),
        unit="MB",
    )


def _ask(
    zoo: PackedZoo,
    queries: Sequence[tuple[LayerSkeleton, int]],
    p50_bar: float | None,
    p95_bar: float,
) -> Iterator[Figure]:
    """Time each query, the best of ROUNDS, and compare its answer with that of all scores."""
    times, looked_at, equal = [], [], 0
    explore(pack(queries[0][0]), zoo, K)  # compiles
    for outline, number in queries:
        among = np.arange(len(zoo)) != number
        seconds = []
        for _ in range(ROUNDS):
            started = process_time()
            found = explore(pack(outline), zoo, K, among=among)
            seconds.append(process_time() - started)
        times.append(min(seconds) * 1e3)
        looked_at.append(found.looked_at / len(zoo))
        scores = score_all(pack(outline), zoo)[among]
        best = sorted(scores.tolist(), reverse=True)[:K]
        equal += best == [match.score for match in found.matches]
    name = f"{len(zoo)} outlines, {len(queries)} queries"
    p50, p95 = (float(np.percentile(times, share)) for share in (50, 95))
    if p50_bar is not None:
        yield at_most(f"{name}: p50", [round(p50, 2)], "ms", p50_bar)
    else:
        yield Figure(name=f"{name}: p50", value=round(p50, 2), unit="ms")
    yield at_most(f"{name}: p95", [round(p95, 2)], "ms", p95_bar)
    yield at_least(f"{name}: equal to exhaustive", [100 * equal / len(queries)], "%", 100.0)
    yield Figure(
        name=f"{name}: scores computed, mean",
        value=round(100 * float(np.mean(looked_at)), 2),
        unit="% of zoo",
        runs=looked_at,
    )


def _cold_start(rounds: int) -> Iterator[Figure]:
    with TemporaryDirectory() as empty:
        compiling = [_first_answer({"NUMBA_CACHE_DIR": empty})]
    kept = [_first_answer({}) for _ in range(rounds)]
    yield _seconds("a process: imports", [imports for imports, _ in kept])
    yield _seconds("a process: first answer", [answer for _, answer in kept])
    yield _seconds("a process: first answer, nothing compiled", [a for _, a in compiling])


def _first_answer(environment: dict[str, str]) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    imports, answer = map(float, done.stdout.split())
    return imports, answer


def _seconds(name: str, runs: list[float]) -> Figure:
    return Figure(name=name, value=round(min(runs), 2), unit="s", runs=runs)
