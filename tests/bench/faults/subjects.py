"""The databases of the fault campaign, and what can be done to them while a run is trained."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg

import mmdb
from mmdb.api import Database
from tests.bench.faults.disk import NoMount, SmallDisk, small_disk
from tests.bench.faults.driver import Driver
from tests.cluster import Cluster
from tests.relay import Relay

LOOK_S = 0.02
FULL_S = (0.5, 2.0)  # for which a disk stays full
DOWN_S = (0.0, 1.0)  # for which a server stays down
#: Tables that lie on the small disk: what hops write.
ON_SMALL_DISK = ("hop", "checkpoint", "checkpoint_chunk", "decision", "candidate_event")
DISK_MIB = {"postgres": 48, "duckdb": 96}

#: Does harm, and returns whether there was something to be harmed.
Fault = Callable[[random.Random, Driver], bool]


@dataclass(frozen=True, slots=True)
class Whole:
    """What an undisturbed run takes."""

    hops: float
    seconds: float


class Subject(Protocol):
    """A database under attack.

    Attributes:
        engine: "postgres" or "duckdb".
        driver_url: where drivers connect to.
        faults: by name.
        disk: "" or why its disk cannot be filled.
    """

    engine: str
    driver_url: str
    faults: Mapping[str, Fault]
    disk: str

    def open(self) -> Database:
        """Return the database, while no driver has it."""

    def wait_for_share(self, run: str, share: float, whole: Whole, driver: Driver) -> bool:
        """Wait until about a share of a run is done; return False if it ended before."""


class ServerSubject:
    """A PostgreSQL server of its own; drivers reach it through a relay."""

    engine = "postgres"

    def __init__(self, cluster: Cluster, url: str, relay: Relay, disk: SmallDisk | str) -> None:
        self._cluster, self._url, self._relay = cluster, url, relay
        self.driver_url = relay.url
        self.disk = disk if isinstance(disk, str) else ""
        self.faults: Mapping[str, Fault] = {
            "worker": self._kill_worker,
            "driver": _kill_driver,
            "server": self._crash,
            "connections": self._cut,
        } | _faults_of(disk)

    def open(self) -> Database:
        """Connect past the relay; a server that has just crashed may need some seconds."""
        return _patiently(lambda: mmdb.connect(self._url))

    def wait_for_share(self, run: str, share: float, whole: Whole, driver: Driver) -> bool:
        """Count the hops; see `Subject`."""
        while not driver.done:
            with suppress(psycopg.OperationalError), psycopg.connect(self._url) as connection:
                row = connection.execute(
                    "SELECT hops_done FROM mmdb.run_progress WHERE run = %s", (run,)
                ).fetchone()
                if row and row[0] >= share * whole.hops:
                    return True
            time.sleep(LOOK_S)
        return False

    def _kill_worker(self, source: random.Random, driver: Driver) -> bool:
        """Kill a backend that is in the middle of a hop, if one is soon."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and not driver.done:
            with suppress(psycopg.OperationalError), psycopg.connect(self._url) as connection:
                rows = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE state = 'active' "
                    "AND application_name LIKE 'mmdb worker%' AND query LIKE '%mmdb.train_hop%'"
                ).fetchall()
                if rows:
                    with suppress(ProcessLookupError):  # it went with the one killed before
                        os.kill(source.choice(rows)[0], signal.SIGKILL)
                        return True
            time.sleep(LOOK_S)
        return False

    def _crash(self, source: random.Random, driver: Driver) -> bool:
        self._cluster.halt(signal.SIGQUIT)  # pg_ctl stop -m immediate
        time.sleep(source.uniform(*DOWN_S))
        self._cluster.start()
        return True

    def _cut(self, source: random.Random, driver: Driver) -> bool:
        self._relay.cut()
        return True


class FileSubject:
    """A DuckDB file on a small disk where one can be mounted."""

    engine = "duckdb"

    def __init__(self, file: Path, disk: SmallDisk | str) -> None:
        self.driver_url = f"duckdb:///{file}"
        self.disk = disk if isinstance(disk, str) else ""
        self.faults: Mapping[str, Fault] = {
            "worker": self._kill_worker,
            "driver": _kill_driver,
        } | _faults_of(disk)

    def open(self) -> Database:
        """Open the file."""
        return _patiently(lambda: mmdb.connect(self.driver_url))

    def wait_for_share(self, run: str, share: float, whole: Whole, driver: Driver) -> bool:
        """Wait for the workers and then for a share of the time: the file has one owner."""
        while not driver.children():
            if driver.done:
                return False
            time.sleep(LOOK_S)
        until = time.monotonic() + share * whole.seconds
        while time.monotonic() < until:
            if driver.done:
                return False
            time.sleep(LOOK_S)
        return not driver.done

    def _kill_worker(self, source: random.Random, driver: Driver) -> bool:
        children = driver.children()
        if not children:
            return False
        with suppress(ProcessLookupError):
            os.kill(source.choice(children), signal.SIGKILL)
        return True


def _kill_driver(source: random.Random, driver: Driver) -> bool:
    driver.kill()
    return True


def _faults_of(disk: SmallDisk | str) -> dict[str, Fault]:
    if isinstance(disk, str):
        return {}
    return {"disk": lambda source, driver: _fill(disk, source)}


def _fill(disk: SmallDisk, source: random.Random) -> bool:
    disk.fill()
    try:
        time.sleep(source.uniform(*FULL_S))
    finally:
        disk.free()
    return True


def _patiently(connect: Callable[[], Database]) -> Database:
    deadline = time.monotonic() + 30
    while True:
        try:
            return connect()
        except mmdb.MmdbError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextmanager
def server_subject() -> Iterator[ServerSubject]:
    """Yield a PostgreSQL with mmdb, its hops' tables on a disk that can be filled."""
    from mmdb.db.install import install

    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster())
        url = cluster.create_database("campaign")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
        install(url)
        disk: SmallDisk | str
        try:
            folder = cluster.directory / "small"
            disk = stack.enter_context(small_disk(folder, DISK_MIB["postgres"]))
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
                for table in ON_SMALL_DISK:
                    connection.execute(f"ALTER TABLE mmdb.{table} SET TABLESPACE small")
            # The server lets go of the folder before it is unmounted.
            stack.callback(cluster.halt, signal.SIGINT)
        except NoMount as error:
            disk = str(error)
        relay = stack.enter_context(Relay(url))
        yield ServerSubject(cluster, url, relay, disk)


@contextmanager
def file_subject(folder: Path) -> Iterator[FileSubject]:
    """Yield a DuckDB file in a folder, on a disk that can be filled."""
    with ExitStack() as stack:
        disk: SmallDisk | str
        place = folder
        try:
            disk = stack.enter_context(small_disk(folder / "small", DISK_MIB["duckdb"]))
            place = disk.folder
        except NoMount as error:
            disk = str(error)
        yield FileSubject(place / "campaign.duckdb", disk)
