"""`train`: one run, trained to its end by a driver of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from time import perf_counter

from mmdb.arguments import is_whole, unfit
from mmdb.db.install import Mode
from mmdb.db.owners import check_start, require_own
from mmdb.db.postgres import PostgresConnection
from mmdb.db.url import AnyConnection
from mmdb.errors import InTransaction, InvalidOption, MmdbError
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.locked_connection import LockedConnection
from mmdb.train.drive.run_state import RunState, load_run
from mmdb.train.drive.server_worker import processors
from mmdb.train.drive.worker import PoolWorker, workers_of
from mmdb.train.ledger.run_options import Decide
from mmdb.train.ledger.shards import shards_of
from mmdb.train.replay.summary import Summary, summarise
from mmdb.train.watch import Watch


def train(
    connection: AnyConnection,
    name: str,
    *,
    workers: int | None = None,
    devices: tuple[str, ...] = ("cpu",),
    mode: Mode | None = None,
    watch: Watch | None = None,
    on_wait: Callable[[], None] = lambda: None,
    decide: Decide | None = None,
) -> Summary:
    """Train a run to its end, or go on with one that was interrupted, and save its best candidate.

    Args:
        workers: sessions to train with; None for one per processor.
        devices: where they compute, dealt out in turn.
        mode: on PostgreSQL, whether hops compute in the server or in processes of the client.
        watch: is told what happens.
        on_wait: called about every 0.1 seconds; may raise to end the call.
        decide: how the run is to be trained, if it never was; without it, `auto` is `mop`.
    Raises:
        RunNotFound, DatasetDropped, RunBusy, RunFailed, InTransaction, InvalidOption, Cancelled
        RunEnded: it was copied from another database. RightsMissing: it is another team's.
        LimitReached: its owner has no workers, seconds or bytes left for it.
    """
    count = _worker_count(workers)
    if connection.in_transaction:
        raise InTransaction("train cannot run inside a transaction block.")
    again = LockedConnection(connection).do  # before there is a driver, which has its own
    again(lambda c: require_own(c, name))
    run = again(lambda c: load_run(c, name))
    nodes = sorted(frozenset[str]().union(*run.placement.values()))
    if nodes and workers is None and isinstance(connection, PostgresConnection):
        there = again(lambda _: processors(connection))
        count = sum(there.get(node, 1) for node in nodes)
    if count < run.workload.group:
        raise InvalidOption(
            f"Run {name!r} trains with groups of {run.workload.group} workers; "
            f"there {'is' if count == 1 else 'are'} {count}.",
            hint=f"Train it with workers => {run.workload.group}, or more.",
        )
    useful = count
    serial = itertools.count()

    def workers_on(node: str) -> list[PoolWorker]:
        share = max(1, useful // max(len(nodes), 1))
        name = f"worker {next(serial)} on {node}"
        return workers_of(connection, share, devices=devices, name=name, nodes=[node])

    shards = again(lambda c: shards_of(c, name))
    started = perf_counter()
    driver = Driver(
        connection,
        watch=watch,
        on_wait=on_wait,
        decide=None if shards else decide,
        workers_on=workers_on,
    )
    runs = driver.add_runs(shards or [name], workers)
    if not all(map(driver.is_finished, driver.runs)):  # else there is no need of sessions
        run = runs[0]
        useful = min(count, sum(map(useful_workers, runs)))
        if workers is None and run.workers is not None:
            useful = min(useful, run.workers)
        opened = driver.do(lambda c: workers_of(c, useful, mode=mode, devices=devices, nodes=nodes))
        # On a cluster, there is one for each node at least.
        driver.do(lambda c: check_start(c, run.run_id, len(opened)))
        for worker in opened:
            driver.add_worker(worker)
    driver.drive()
    summaries = []
    for run in runs:
        outcome = driver.outcomes[run.name]
        if isinstance(outcome, MmdbError):
            raise outcome
        summaries.append(outcome)
    if not shards:
        return summaries[0]
    hops = sum(summary.hops for summary in summaries)
    return again(lambda c: summarise(c, name, hops, perf_counter() - started))


def useful_workers(run: RunState) -> int:
    """Return how many workers a run can use at most."""
    candidates = len(run.members) if run.search.get("method", "grid") == "grid" else 10_000
    partitions = run.workload.partitions
    at_once = {"model_average": partitions, "data_parallel": partitions}
    return max(1, candidates * at_once.get(run.workload.strategy, 1))


def _worker_count(workers: int | None) -> int:
    count = os.cpu_count() or 1 if workers is None else workers
    if not is_whole(count, 1):
        raise unfit("workers", workers, "It is a whole number from 1.")
    return count
