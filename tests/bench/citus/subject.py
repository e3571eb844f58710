"""A Citus on a network, and what can be done to it while a run is trained."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg

import mmdb
from mmdb.api import Database
from mmdb.db.install import install
from tests.bench.faults.disk import NoMount, SmallDisk, small_disk
from tests.bench.faults.driver import Driver
from tests.citus_cluster import CitusCluster
from tests.network.network import Network
from tests.network.servers import HostedServer, Standby

DATABASE = "campaign"
NODES = 2
DISK_MIB = 192
LOOK_S = 0.05
DOWN_S = (0.5, 3.0)  # for which a server stays down
FULL_S = (0.5, 2.0)  # for which a disk stays full
SHAPED_S = 10.0  # for which a cable stays cut, slow or lossy
DELAY_S, LOSS = 0.1, 0.01
REBALANCE = "SELECT citus_rebalance_start('by_partition', shard_transfer_mode => 'block_writes')"

#: Does harm; the run goes on meanwhile.
Fault = Callable[[random.Random], None]


class Subject:
    """A cluster under attack.

    The first node's database lies on a disk that can be filled. The last node is the one that has a
    standby, and that its standby replaces.

    Attributes:
        url: of the coordinator.
        faults: by name.
        no_disk: "" or why the disk cannot be filled.
    """

    def __init__(self, cluster: CitusCluster, url: str, disk: SmallDisk | str) -> None:
        self.url = url
        self.cluster = cluster
        self.no_disk = disk if isinstance(disk, str) else ""
        self._disk = disk
        self._standby: Standby | None = None
        self._spare: HostedServer | None = None
        self.faults: dict[str, Fault] = {
            "node": self._kill_node,
            "coordinator": self._restart_coordinator,
            "cut": self._cut,
            "delay": self._delay,
            "loss": self._lose,
            "disk": self._fill,
            "added": self._add,
            "standby": self._promote,
        }

    def open(self) -> Database:
        """Connect; a server that has just crashed may need some seconds."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return mmdb.connect(self.url)
            except mmdb.MmdbError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def prepare(self, kind: str) -> None:
        """Start the server that a fault needs, unless there is one: best before the run."""
        if kind == "standby" and self._standby is None:
            self._standby = self.cluster.start_standby(self._nodes()[-1])
        if kind == "added" and self._spare is None:
            server = self.cluster.start_server()
            assert isinstance(server, HostedServer)
            self.cluster.prepare(server, DATABASE)
            self._spare = server

    def wait_for_hops(self, run: str, hops: float, driver: Driver) -> bool:
        """Wait until so many hops of a run are done; return False if it ended before."""
        while not driver.done:
            with (
                suppress(psycopg.Error),
                psycopg.connect(self.url, connect_timeout=5) as connection,
            ):
                connection.execute("SET statement_timeout = '5s'")
                row = connection.execute(
                    "SELECT hops_done FROM mmdb.run_progress WHERE run = %s", (run,)
                ).fetchone()
                if row and row[0] >= hops:
                    return True
            time.sleep(LOOK_S)
        return False

    def _nodes(self) -> list[HostedServer]:
        """Return the nodes with shards."""
        return [s for s in self.cluster.nodes if isinstance(s, HostedServer) and s != self._spare]

    def _kill_node(self, source: random.Random) -> None:
        # The node that a standby follows would wait for it when it is back.
        node = source.choice([n for n in self._nodes() if not self._is_followed(n)])
        node.kill()
        time.sleep(source.uniform(*DOWN_S))
        node.start()

    def _restart_coordinator(self, source: random.Random) -> None:
        self.cluster.coordinator.halt(signal.SIGQUIT)  # pg_ctl stop -m immediate
        time.sleep(source.uniform(*DOWN_S))
        self.cluster.coordinator.start()

    def _cut(self, source: random.Random) -> None:
        link = source.choice(self._nodes()).host.link
        link.cut()
        try:
            time.sleep(SHAPED_S)
        finally:
            link.mend()

    def _delay(self, source: random.Random) -> None:
        self._shape(source, delay_s=DELAY_S)

    def _lose(self, source: random.Random) -> None:
        self._shape(source, loss=LOSS)

    def _shape(self, source: random.Random, *, delay_s: float = 0.0, loss: float = 0.0) -> None:
        link = source.choice(self._nodes()).host.link
        link.shape(delay_s=delay_s, loss=loss, seed=source.randrange(2**32))
        try:
            time.sleep(SHAPED_S)
        finally:
            link.straighten()

    def _fill(self, source: random.Random) -> None:
        assert isinstance(self._disk, SmallDisk)
        self._disk.fill()
        try:
            time.sleep(source.uniform(*FULL_S))
        finally:
            self._disk.free()

    def _add(self, source: random.Random) -> None:
        """Add a node, and move shards to it."""
        self.prepare("added")
        assert self._spare is not None
        spare, self._spare = self._spare, None
        self.cluster.add_node(DATABASE, spare)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(REBALANCE)
            connection.execute("SELECT citus_rebalance_wait()")

    def _promote(self, source: random.Random) -> None:
        self.prepare("standby")
        assert self._standby is not None
        standby, self._standby = self._standby, None
        node = self._nodes()[-1]
        assert standby.follows(node)
        node.kill()
        time.sleep(source.uniform(*DOWN_S))
        self.cluster.replace(DATABASE, node, standby)

    def _is_followed(self, node: HostedServer) -> bool:
        return self._standby is not None and self._standby.follows(node)


@contextmanager
def citus_subject() -> Iterator[Subject]:
    """Yield a cluster with mmdb."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        cluster = stack.enter_context(CitusCluster(NODES, network=network))
        disk: SmallDisk | str
        node = cluster.nodes[0]
        try:
            folder = node.directory / "small"
            disk = stack.enter_context(small_disk(folder, DISK_MIB))
            with psycopg.connect(node.url(), autocommit=True) as connection:
                connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
                # What is copied from it lies there too.
                connection.execute("ALTER DATABASE template1 SET TABLESPACE small")
            # The server lets go of the folder before it is unmounted.
            stack.callback(node.halt, signal.SIGQUIT)
        except NoMount as error:
            disk = str(error)
        url = cluster.create_database(DATABASE)
        install(url)
        yield Subject(cluster, url, disk)
