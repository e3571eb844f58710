"""Experiment `scale`: 1,000 nodes and 10,000 candidates, simulated on one machine.

Two halves, neither of which trains anything. The makespan of an epoch of ten million hops comes
from simulated time, decided by the code that decides real runs. What a hop costs the driver comes
from real time: the real driver over a real run in the database, with a thread for each of 1,000
workers that only wait; nothing is sent to a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

import numpy as np

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.workload import BenchShare
from mmdb.train.schedule import Simulation, Workload, choose, simulate
from mmdb.train.schedule.simulate import Seconds
from mmdb.train.values.seeds import VALIDATION
from tests.bench.scale.driver import Load, measure_driver
from tests.bench.schedule.cases import DEAR, DEAR_SHARE, NOISE, nodes_of

NODES, CANDIDATES, HOP_S = 1000, 10_000, 2.0
MAKESPAN_BAR, HELD_OUT_BAR, DRIVER_BAR_MS, BUSY_BAR = 1.03, 1.05, 1.0, 0.97
#: Seconds of real time for which the driver is watched.
WINDOW_S = 60.0
#: The held-out share of the rows, and the seconds of a step backward for each one forward.
HELD_OUT, BACKWARD = 0.2, 2.0


def bench_scale(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Simulate epochs, then drive 1,000 workers over every database."""
    for kind in ("equal", "mixed"):
        yield from _makespans(kind, share.of(CANDIDATES, 20), share.of(NODES, 8))
    for nodes in (8, 64, share.of(NODES, 16)):
        yield from _validation(nodes)
    for db in databases:
        yield from _driven(db, share)


def _makespans(kind: str, candidates: int, nodes: int) -> Iterator[Figure]:
    """An epoch in the seed's order, which is the default, and in a free one."""
    slots, placement = nodes_of(nodes)
    costs = _costs(kind, candidates, nodes)
    for order in ("fixed", "free"):
        free = order == "free"
        load = Workload(
            candidates=candidates,
            partitions=nodes,
            epochs=1,
            seed=0,
            validates=False,
            free=free,
        )
        policy, _ = choose(costs, slots, load, placement)
        began = process_time()
        found = simulate(
            costs, slots, placement=placement, policy=policy, order="free" if free else "fixed",
            noise=NOISE, seed=1,
        )  # fmt: skip
        seconds = process_time() - began
        name = f"simulated, {candidates} x {nodes}, {kind}, {order} order"
        yield at_most(f"{name}: makespan / bound", [found.ratio], "x", MAKESPAN_BAR)
        yield Figure(name=f"{name}: a decision", value=seconds / found.hops * 1e6, unit="us")


def _costs(kind: str, candidates: int, nodes: int) -> Seconds:
    """Return (M, P) seconds of a hop; mixed: a fifth of the candidates cost eight times as much."""
    costs = np.ones(candidates)
    if kind == "mixed":
        costs[: round(DEAR_SHARE * candidates)] = DEAR
        np.random.default_rng(0).shuffle(costs)
    return np.broadcast_to(costs[:, None], (candidates, nodes))


def _validation(nodes: int) -> Iterator[Figure]:
    """An epoch whose held-out slice any node looks at; of few nodes also where one does for all."""
    slots, placement = nodes_of(nodes)
    costs = np.full((10 * nodes, nodes), (1 + BACKWARD) * (1 - HELD_OUT) / nodes)
    held_out = np.full(10 * nodes, HELD_OUT)

    def run(where: dict[int, frozenset[str]]) -> Simulation:
        return simulate(
            costs, slots, placement={**placement, **where}, policy="longest", order="fixed",
            validation=held_out, noise=NOISE,
        )  # fmt: skip

    found = run({})
    name = f"simulated, {nodes} nodes, a fifth held out"
    yield at_most(f"{name}: makespan / bound", [found.ratio], "x", HELD_OUT_BAR)
    if nodes <= 64:
        one = run({VALIDATION: frozenset({"n0"})})
        value = one.makespan_s / found.makespan_s
        yield Figure(name=f"{name} on one of them: epoch / on any of them", value=value, unit="x")


def _driven(db: Database, share: BenchShare) -> Iterator[Figure]:
    nodes, hop_s = share.of(NODES, 8), share.time(HOP_S)
    candidates, window_s = share.of(CANDIDATES, 20), share.time(WINDOW_S)
    load = Load(candidates=candidates, nodes=nodes, hop_s=hop_s, window_s=window_s)
    found = measure_driver(db, load)
    name = f"{db.connection.engine}, {nodes} workers that only wait {hop_s:g} s"
    yield at_most(f"{name}: the driver's thread a hop", [found.driver_ms], "ms", DRIVER_BAR_MS)
    yield Figure(
        name=f"{name}: busy share of the workers",
        value=found.busy,
        unit="",
        bar=f">= {BUSY_BAR:g}",
        holds=found.busy >= BUSY_BAR,
    )
    for label, value, unit in (
        ("hops", found.hops_per_s, "1/s"),
        ("the whole process a hop", found.process_ms, "ms"),
        ("from a hop's end to the next one's begin, mean", found.gap_ms, "ms"),
        ("from a hop's end to the next one's begin, longest", found.longest_gap_ms, "ms"),
        ("a snapshot for those who watch", found.snapshot_ms, "ms"),
        ("creating the run", found.create_s, "s"),
        ("taking it up", found.take_up_s, "s"),
        ("memory for the run", found.run_mb, "MB"),
        ("memory for the workers' threads", found.threads_mb, "MB"),
    ):
        yield Figure(name=f"{name}: {label}", value=value, unit=unit)
    nodes, candidates, window_s = share.of(100, 8), share.of(1000, 20), share.time(10.0)
    load = Load(candidates=candidates, nodes=nodes, hop_s=0.0, window_s=window_s)
    hasty = measure_driver(db, load)
    name = f"{db.connection.engine}, {nodes} workers that answer at once"
    yield Figure(name=f"{name}: hops", value=hasty.hops_per_s, unit="1/s")
