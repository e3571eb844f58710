"""PostgreSQL servers on the hosts of a network, and standbys of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import psycopg

from tests.bench.train.memory import tree
from tests.cluster import STOP_TIMEOUT_S, Cluster, ClusterError
from tests.network.network import Host

STREAM_TIMEOUT_S = 120
SETTINGS = {"listen_addresses": "*"}


class HostedServer(Cluster):
    """A throw-away server that runs on a host and is reached by the host's address."""

    def __init__(
        self,
        host: Host,
        settings: dict[str, str] | None = None,
        *,
        password: str | None = None,
    ) -> None:
        self.host = host
        super().__init__(SETTINGS | (settings or {}), password=password, address=host.address)

    def kill(self) -> None:
        """End all its processes at once, as a power cut would."""
        os.kill(self.pid, signal.SIGSTOP)  # it would start others
        doomed = tree([self.pid])
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.halt(signal.SIGKILL)
        deadline = time.monotonic() + STOP_TIMEOUT_S  # they hold memory that the next one needs
        while any(Path(f"/proc/{pid}").exists() for pid in doomed):
            if time.monotonic() > deadline:
                raise ClusterError("Processes of a killed server do not end.")
            time.sleep(0.01)

    def _initdb(self) -> None:
        super()._initdb()
        with (self.data / "pg_hba.conf").open("a") as file:
            for database in ("all", "replication"):
                file.write(f"host {database} all samenet scram-sha-256\n")

    def _run_server(self, command: list[str | Path], log: IO[bytes]) -> subprocess.Popen[bytes]:
        there = self.host.enter(user=self._owner.pw_uid, group=self._owner.pw_gid)
        return subprocess.Popen(
            [*there, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.directory,
            env=self._environment,
            start_new_session=True,  # as in Cluster
        )


class Standby(HostedServer):
    """A server that follows another one, and can take its place.

    While it runs, a commit of the other waits for it: nothing that was committed is missing here.
    """

    def __init__(self, host: Host, primary: Cluster) -> None:
        self._primary = primary
        super().__init__(host, primary.settings, password=primary.password)
        self._follow()

    def follows(self, server: Cluster) -> bool:
        """Return whether it is this server that it follows."""
        return server is self._primary

    def promote(self) -> None:
        """Take the other's place, which must have ended.

        Raises:
            ClusterError: it does not.
        """
        with psycopg.connect(self.url(), autocommit=True) as connection:
            row = connection.execute("SELECT pg_promote()").fetchone()
        if row is None or not row[0]:
            raise ClusterError(f"The standby was not promoted.\n{self.log_tail()}")

    def _initdb(self) -> None:
        # What the copy keeps of the password, it keeps in its data directory.
        source = [f"--dbname={self._primary.url('replication')}", "--write-recovery-conf"]
        how = ["--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        program = self.server.bin / "pg_basebackup"
        done = self._run_as_owner([program, "-D", self.data, *source, *how])
        if done.returncode:
            raise ClusterError(f"pg_basebackup failed.\n{done.stderr}")

    def _follow(self) -> None:
        """Make the other's commits wait for this one, once it keeps up."""
        set_on(self._primary, "synchronous_standby_names", "*")
        deadline = time.monotonic() + STREAM_TIMEOUT_S
        with psycopg.connect(self._primary.url(), autocommit=True) as connection:
            while time.monotonic() < deadline:
                row = connection.execute(
                    "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                ).fetchone()
                if row and row[0]:
                    return
                time.sleep(0.05)
        raise ClusterError(f"The standby does not follow.\n{self.log_tail()}")

    def stop(self) -> None:
        """End the server, for which nobody waits then."""
        with suppress(psycopg.OperationalError, ClusterError):
            set_on(self._primary, "synchronous_standby_names", "")
        super().stop()


def set_on(server: Cluster, name: str, value: str) -> None:
    """Set a server's setting for good, as of now."""
    with psycopg.connect(server.url(), autocommit=True, connect_timeout=5) as connection:
        connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        connection.execute("SELECT pg_reload_conf()")
