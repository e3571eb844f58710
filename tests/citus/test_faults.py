"""A node's server killed, and its cable cut, in the middle of a run: it ends with the same bits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest

import mmdb
from mmdb.db.install import install
from tests.bench.citus.run import Work, create_run, make_dataset
from tests.bench.faults.checks import check
from tests.citus_cluster import CitusCluster, has_citus
from tests.network.network import Network, why_no_network
from tests.network.servers import HostedServer

WORK = Work(rows=6_000, width=16, hidden=(128,), rates=(0.05, 0.01, 0.002), partitions=4, epochs=2)
WORKERS = 2
DOWN_S, CUT_S = 0.5, 3.0

pytestmark = [
    pytest.mark.citus,
    pytest.mark.skipif(not has_citus(), reason="the extension Citus is not installed"),
    pytest.mark.skipif(bool(reason := why_no_network()), reason=reason),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[CitusCluster]:
    """Return a coordinator and two nodes, each on a host of its own."""
    with Network() as network, pytest.MonkeyPatch.context() as patched:
        patched.setenv("MMDB_GROUP_HOST", network.address)  # of the driver and of the servers
        with CitusCluster(2, network=network) as made:
            yield made


@pytest.fixture(scope="module")
def url(cluster: CitusCluster) -> str:
    """Return the URL of a database with an undisturbed run."""
    made = cluster.create_database("trial")
    install(made)
    with mmdb.connect(made) as db:
        make_dataset(db, WORK)
        create_run(db, "undisturbed", WORK).train(workers=WORKERS)
        for strategy in ("model_average", "data_parallel"):
            run = create_run(db, f"undisturbed-{strategy}", WORK, strategy=strategy)
            run.train(workers=WORKERS)
    return made


def wait_for_hops(url: str, run: str, hops: int, trained: Future[object]) -> bool:
    """Wait until so many hops of a run are done; return False if it ended before."""
    with psycopg.connect(url, autocommit=True) as connection:
        while not trained.done():
            row = connection.execute(
                "SELECT hops_done FROM mmdb.run_progress WHERE run = %s", (run,)
            ).fetchone()
            if row and row[0] >= hops:
                return True
            time.sleep(0.02)
    return False


def train_while(url: str, run: str, strike: Callable[[], None], strategy: str = "mop") -> None:
    """Train a run that is struck in the middle, and check it against the undisturbed one.

    This thread strikes: a server goes with the thread that started it.
    """
    with mmdb.connect(url) as db, ThreadPoolExecutor(1) as pool:
        made = create_run(db, run, WORK, strategy=strategy)
        trained = pool.submit(made.train, workers=WORKERS)
        assert wait_for_hops(url, run, 5, trained)
        strike()
        trained.result(timeout=120)
        check(db, run, "undisturbed" if strategy == "mop" else f"undisturbed-{strategy}")


def node(cluster: CitusCluster) -> HostedServer:
    server = cluster.nodes[0]
    assert isinstance(server, HostedServer)
    return server


@pytest.mark.parametrize("strategy", ["mop", "model_average", "data_parallel"])
def test_a_killed_node_costs_no_hop_and_changes_no_bit(
    cluster: CitusCluster, url: str, strategy: str
) -> None:
    def strike() -> None:
        node(cluster).kill()
        time.sleep(DOWN_S)
        node(cluster).start()

    train_while(url, f"killed-{strategy}", strike, strategy)


def test_a_cut_cable_costs_no_hop_and_changes_no_bit(cluster: CitusCluster, url: str) -> None:
    def strike() -> None:
        node(cluster).host.link.cut()
        time.sleep(CUT_S)
        node(cluster).host.link.mend()

    train_while(url, "cut", strike)


def test_a_coordinator_that_restarts_costs_no_hop_and_changes_no_bit(
    cluster: CitusCluster, url: str
) -> None:
    def strike() -> None:
        cluster.coordinator.halt()
        time.sleep(DOWN_S)
        cluster.coordinator.start()

    train_while(url, "restarted", strike)


def test_a_run_whose_driver_lost_its_session_goes_on_with_the_same_bits(url: str) -> None:
    def strike() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l WHERE l.locktype = "
                "'advisory' AND l.classid = 1835889763 AND l.granted AND l.mode = 'ExclusiveLock'"
            ).fetchall()
        assert ended == [(True,)]

    train_while(url, "driver-lost", strike)
