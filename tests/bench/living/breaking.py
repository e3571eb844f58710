"""Databases that a bench may break: a DuckDB file, or a PostgreSQL server of its own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

import psycopg

from mmdb.api import Database, connect
from mmdb.db.install import install
from mmdb.errors import MmdbError
from tests.cluster import Cluster

#: How a process that works on a database is interrupted; a file has no server.
WAYS = {"duckdb": ("process",), "postgres": ("process", "backend", "server")}
_SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    " AND datname = current_database() AND backend_type = 'client backend'"
)


class Breakable:
    """A database, and what breaks it.

    Attributes:
        db: a connection, another one after each interruption.
    """

    def __init__(self, url: str, cluster: Cluster | None, cache: Path) -> None:
        self.url, self._cluster, self._cache = url, cluster, cache
        self.db: Database = connect(url)

    @property
    def engine(self) -> str:
        """duckdb or postgres."""
        return self.db.connection.engine

    def files(self) -> list[Path]:
        """Return the files of the caches of this process, its children and the server."""
        folders = [self._cache]
        if self._cluster is not None:
            folders += self._cluster.directory.glob("mmdb-cache-*")
        return [path for folder in folders for path in folder.rglob("*") if path.is_file()]

    def start(self, code: str, *arguments: str, count: int = 1) -> list[subprocess.Popen[bytes]]:
        """Start Python processes with the URL and arguments; return once each has printed a line.

        A file belongs to one alone until `reopen`.
        """
        if self._cluster is None:
            self.db.close()
        command = [sys.executable, "-W", "ignore", "-c", code, self.url, *arguments]
        children = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in range(count)
        ]
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        return children

    def interrupt(self, child: subprocess.Popen[bytes], way: str, seed: random.Random) -> bool:
        """Break off a child's work, one of `WAYS`; return whether it had not ended."""
        is_alive = child.poll() is None
        if way == "backend":
            found = [row["pid"] for row in self.db.sql(_SESSIONS)]
            if found:
                os.kill(seed.choice(found), signal.SIGKILL)  # the server ends all other sessions
        elif way == "server":
            self.restart()
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
        return is_alive

    def restart(self) -> None:
        """End the server at once, and start it again; nothing of a file."""
        if self._cluster is not None:
            self._cluster.halt(signal.SIGQUIT)
            self._cluster.start()

    def reopen(self) -> None:
        """Connect anew, once the server takes connections."""
        with suppress(MmdbError, psycopg.Error):
            self.db.close()
        for _ in range(600):
            with suppress(MmdbError):
                self.db = connect(self.url)
                return
            sleep(0.1)
        raise TimeoutError(f"{self.url} takes no connections.")


@contextmanager
def breakable(engine: str) -> Iterator[Breakable]:
    """Yield an empty database with mmdb, which is gone afterwards."""
    before = os.environ.get("MMDB_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="mmdb-living-") as folder:
        cache = Path(folder) / "cache"
        os.environ["MMDB_CACHE_DIR"] = str(cache)
        try:
            if engine == "duckdb":
                yield from _opened(f"duckdb:///{folder}/broken.duckdb", None, cache)
                return
            with Cluster() as cluster:
                url = cluster.create_database("broken")
                with psycopg.connect(url, autocommit=True) as session:
                    session.execute("CREATE EXTENSION plpython3u")
                install(url)
                yield from _opened(url, cluster, cache)
        finally:
            os.environ.pop("MMDB_CACHE_DIR")
            if before is not None:
                os.environ["MMDB_CACHE_DIR"] = before


def _opened(url: str, cluster: Cluster | None, cache: Path) -> Iterator[Breakable]:
    place = Breakable(url, cluster, cache)
    try:
        yield place
    finally:
        with suppress(MmdbError, psycopg.Error):
            place.db.close()
