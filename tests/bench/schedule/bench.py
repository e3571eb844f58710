"""Experiment `schedule`: simulated makespans against their lower bounds, and what deciding costs.

No database is used, and nothing is trained. One thread computes, so that its processor time is what
it takes on a machine that is not shared.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from time import process_time

import numpy as np

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.workload import BenchShare
from mmdb.train.schedule import Done, Workload, begin, choose, simulate
from tests.bench.schedule.cases import EPOCHS, NOISE, Case, costs_of, enlist, learn, nodes_of
from tests.bench.schedule.peers import barrier_s, bound_s, drawn, random_s

SEEDS, ROUNDS = range(5), 3
#: Cases with the bar of makespan / lower bound.
CASES = [
    *((Case(workers, workers), 1.04) for workers in (8, 16, 64)),
    *((Case(2 * workers, workers), 1.02) for workers in (8, 16, 64)),
    (Case(64, 8), 1.02),
    *(
        (Case(int(times * workers), workers, mixed=True), 1.02)
        for workers in (8, 16)
        for times in (1.5, 2, 4, 8)
    ),
]
#: Cases whose schedules begin without any cost.
LEARNT = [Case(8, 8), Case(16, 8), Case(12, 8, mixed=True), Case(32, 8, mixed=True)]
#: Cases in which a fixed order of the partitions is compared with a free one.
ORDERED = [
    *(Case(m, 8) for m in (8, 16)),
    *(Case(m, 8, mixed=True) for m in (16, 32, 64)),
]
PLAN_BAR_S, DECISION_BAR_US, SAME_BAR = 5.0, 50.0, 1.005


def bench_schedule(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Simulate everything; `databases` are left alone."""
    seeds = share.first(SEEDS)
    for case, bar in share.first(CASES):
        yield from _compare(case, bar, seeds)
    for case in share.first(LEARNT):
        yield _mean(f"{case}: mmdb, costs not known", [learn(case, s) for s in seeds])
    for case in share.first(ORDERED):
        yield from _order(case, seeds)
    yield from _speed(share)


def _mean(name: str, runs: Sequence[float], bar: float | None = None) -> Figure:
    value = float(np.mean(runs))
    return Figure(
        name=f"{name}, mean",
        value=round(value, 4),
        unit="x bound",
        bar="" if bar is None else f"<= {bar:g}",
        holds=None if bar is None else value <= bar,
        runs=list(runs),
    )


def _compare(case: Case, bar: float, seeds: Sequence[int]) -> Iterator[Figure]:
    slots, placement = nodes_of(case.workers)
    ours: list[float] = []
    longest: list[float] = []
    random: list[float] = []
    barrier: list[float] = []
    for seed in seeds:
        costs = costs_of(case, seed)
        policy, _ = choose(costs, slots, case.load, placement)
        for runs, followed in ((ours, policy), (longest, "longest")):
            found = simulate(
                costs,
                slots,
                placement=placement,
                epochs=EPOCHS,
                policy=followed,
                noise=NOISE,
                seed=100 + seed,
            )
            runs.append(found.ratio)
        seconds = drawn(costs, EPOCHS, NOISE, 100 + seed)
        random.append(random_s(seconds, seed) / bound_s(seconds))
        barrier.append(barrier_s(seconds) / bound_s(seconds))
    yield _mean(f"{case}: mmdb", ours, bar)
    yield _mean(f"{case}: longest first", longest)
    yield _mean(f"{case}: Cerebro", random)
    yield _mean(f"{case}: MADlib", barrier)


def _order(case: Case, seeds: Sequence[int]) -> Iterator[Figure]:
    """A fixed order against a free one: where a partition has one worker, and where it has all."""
    slots, placement = nodes_of(case.workers)
    apart, together = [], []
    for seed in seeds:
        costs = costs_of(case, seed)
        policy, _ = choose(costs, slots, case.load, placement)
        run = partial(simulate, costs, epochs=EPOCHS, noise=NOISE, seed=seed)
        fixed = run(slots, placement=placement, policy="longest", order="fixed")
        free = run(slots, placement=placement, policy=policy, order="free")
        apart.append(fixed.makespan_s / free.makespan_s)
        fixed, free = run(case.workers, order="fixed"), run(case.workers, order="free")
        together.append(fixed.makespan_s / free.makespan_s)
    yield Figure(
        name=f"{case}: fixed / free order, W nodes, mean",
        value=round(float(np.mean(apart)), 4),
        unit="x",
        runs=apart,
    )
    value = float(np.mean(together))
    yield Figure(
        name=f"{case}: fixed / free order, one node, mean",
        value=round(value, 4),
        unit="x",
        bar=f"<= {SAME_BAR:g}",
        holds=value <= SAME_BAR,
        runs=together,
    )


def _speed(share: BenchShare) -> Iterator[Figure]:
    count, workers, rounds = share.of(1000, 10), share.of(100, 10), share.of(ROUNDS)
    slots, placement = nodes_of(count)
    seconds = []
    for _ in range(rounds):
        started = process_time()
        simulate(np.ones((count, count)), slots, placement=placement, policy="longest", noise=NOISE)
        seconds.append(process_time() - started)
    yield at_most(f"{count} x {count}: a simulated epoch", seconds, "s", PLAN_BAR_S)
    for name, nodes in (("one node", 1), (f"{workers} nodes", workers)):
        runs = [decision_us(count, workers, nodes) for _ in range(rounds)]
        yield at_most(f"{count} x {workers}, {name}: a decision", runs, "us", DECISION_BAR_US)


def decision_us(candidates: int, workers: int, nodes: int) -> float:
    """Return the mean processor time, in microseconds, of what a hop's end makes to decide."""
    load = Workload(
        candidates=candidates,
        partitions=workers,
        epochs=1,
        seed=0,
        validates=False,
        free=nodes > 1,
    )
    slots, placement = nodes_of(nodes) if nodes > 1 else ({"": workers}, {})
    schedule = begin(load, placement=placement)
    idle = enlist(schedule, slots)
    source = np.random.default_rng(0)
    ends: list[tuple[float, str, float]] = []
    now, spent, decisions = 0.0, 0.0, 0
    worker, seconds = "", 0.0
    while True:
        started = process_time()
        if worker:
            schedule.take(Done(worker, seconds))
        assignments = schedule.assign(list(idle))
        spent += process_time() - started
        decisions += 1
        for assignment in assignments:
            seconds = float(np.exp(source.normal(0.0, NOISE)))
            heapq.heappush(ends, (now + seconds, assignment.worker, seconds))
            del idle[assignment.worker]
        if not ends:
            return spent / decisions * 1e6
        now, worker, seconds = heapq.heappop(ends)
        idle[worker] = None
