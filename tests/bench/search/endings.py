"""The campaign `endings`: hops that are ended in their midst end no server.

A run is trained on one server, and on a cluster of a coordinator and two nodes where Citus is
installed. Its driver gets a Ctrl-C or is killed, its sessions are cancelled or terminated, or the
cable of a server is silent for some seconds, each in mid-hop. No process of a server may end by a
signal, and the run must come to the bits of an undisturbed one.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import psycopg

import mmdb
from mmdb.bench.figures import Figure
from mmdb.db.install import install
from tests.bench.citus.run import Work, create_run, make_dataset
from tests.bench.faults.checks import check
from tests.bench.faults.driver import Driver, Stuck
from tests.bench.search.campaigns import none_of
from tests.citus_cluster import CitusCluster, has_citus
from tests.network.network import Network
from tests.network.servers import HostedServer

#: Hops of some tenths of a second; each run has 96.
WORK = Work(
    rows=16_000, width=64, hidden=(256, 256), rates=(0.05, 0.02, 0.01), partitions=4, epochs=8
)
WORKERS, REFERENCE, DATABASE = 2, "undisturbed", "endings"
KINDS = ("interrupt", "kill", "cancel", "terminate", "silence")
#: Seconds: into the hop that is under way, for which a cable is silent, until a run is stuck.
LATE_S, SILENT_S, STUCK_S = 0.6, 6.0, 300.0
_SIGNALLED = re.compile(r"was terminated by signal (?!9:|15:)\d+|TRAP:|PANIC:")
_BUSY = (
    "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() "
    "AND query ~ 'mmdb.*(train_hop|run_order)'"
)


@dataclass(slots=True, kw_only=True)
class Subject:
    """What is trained on: servers on hosts of their own."""

    name: str
    network: Network
    servers: Sequence[HostedServer]

    @property
    def url(self) -> str:
        """That of the database."""
        return self.servers[0].url(DATABASE)

    def signals(self) -> list[str]:
        """Return the lines of the servers' logs that say that a process ended by a signal."""
        logs = [(server.directory / "log").read_text(errors="replace") for server in self.servers]
        return [line for log in logs for line in log.splitlines() if _SIGNALLED.search(line)]

    def strike(self, kind: str, driver: Driver, source: random.Random) -> None:
        """End what hops are under way, in one of the ways."""
        if kind == "interrupt":
            driver.interrupt()
        elif kind == "kill":
            driver.kill()
        elif kind == "silence":
            server = source.choice(self.servers)
            server.host.link.cut()
            try:
                time.sleep(SILENT_S)
            finally:
                server.host.link.mend()
        else:
            self._end_sessions(f"pg_{kind}_backend", source)

    def _end_sessions(self, function: str, source: random.Random) -> None:
        server = source.choice(self.servers)
        with psycopg.connect(server.url(DATABASE), autocommit=True) as connection:
            connection.execute(f"SELECT {function}(pid) FROM ({_BUSY}) AS busy")

    def hops(self, run: str) -> int:
        """Return how many hops of a run are done."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=5) as connection:
            row = connection.execute(
                "SELECT hops_done FROM mmdb.run_progress WHERE run = %s", (run,)
            ).fetchone()
        return row[0] if row else 0


@contextmanager
def subjects() -> Iterator[list[Subject]]:
    """Yield one server, and a cluster where there is Citus; both with an undisturbed run."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        alone = stack.enter_context(HostedServer(network.add_host()))
        found = [Subject(name="one server", network=network, servers=[alone])]
        alone.create_database(DATABASE)
        if has_citus():
            network = stack.enter_context(Network())
            cluster = stack.enter_context(CitusCluster(2, network=network))
            cluster.create_database(DATABASE)
            servers = [one for one in cluster.servers if isinstance(one, HostedServer)]
            found.append(Subject(name="a cluster", network=network, servers=servers))
        for subject in found:
            install(subject.url)
            with mmdb.connect(subject.url) as db:
                make_dataset(db, WORK)
                create_run(db, REFERENCE, WORK).train(workers=WORKERS)
        yield found


def search(*, seed: int, cases: int) -> list[Figure]:
    """End hops in so many ways on each subject; return what that did to the servers."""
    figures = []
    with subjects() as found:
        for subject in found:
            struck, wrong = disturb(subject, cases, random.Random(f"{seed}/{subject.name}"))
            name = f"{subject.name}: {struck} hops ended in their midst"
            figures.append(none_of(f"{name}, crashes", len(subject.signals()), "processes"))
            figures.append(none_of(f"{name}, runs that went wrong", len(wrong), "runs"))
    return figures


def disturb(subject: Subject, cases: int, source: random.Random) -> tuple[int, list[str]]:
    """Strike runs so often, each a few times; return how often, and what went wrong with them."""
    kinds = [KINDS[number % len(KINDS)] for number in range(cases)]
    source.shuffle(kinds)
    wrong: list[str] = []
    count = runs = 0
    while count < cases:
        runs += 1
        run = f"run-{runs}"
        try:
            with mmdb.connect(subject.url) as db:
                create_run(db, run, WORK)
            with Driver(subject.url, run, WORKERS) as driver:
                while count < cases and _goes_on(subject, run, driver):
                    time.sleep(source.uniform(0.0, LATE_S))
                    subject.strike(kinds[count], driver, source)
                    count += 1
                driver.wait(STUCK_S)
            with mmdb.connect(subject.url) as db:
                check(db, run, REFERENCE)
        except (AssertionError, Stuck, mmdb.MmdbError, psycopg.Error) as error:
            wrong.append(f"{run}: {type(error).__name__}: {error}")
    return count, wrong


def _goes_on(subject: Subject, run: str, driver: Driver) -> bool:
    """Wait until the run has done one hop more; return False where it ended before."""
    before: int | None = None
    while not driver.done:
        with suppress(psycopg.Error):  # a server that crashed comes back
            now = subject.hops(run)
            before = now if before is None else before
            if now > before:
                return True
        time.sleep(0.02)
    return False
