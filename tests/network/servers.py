"""PostgreSQL servers with followers, on this machine and on the hosts of a network."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

import psycopg

from mmdb.db.install import install
from tests.cluster import Cluster, ClusterError
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


class Follower(Cluster):
    """A server that follows another one, and can take its place.

    While it runs, a commit of the other waits for it: nothing that was committed is missing here.
    """

    def __init__(self, primary: Cluster, *, address: str = "127.0.0.1", port: int = 0) -> None:
        self._primary = primary
        settings = primary.settings | {"wal_retrieve_retry_interval": "100ms"}
        # By name: a host's server would take a host.
        Cluster.__init__(self, settings, password=primary.password, address=address, port=port)
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
        self.keep_password()

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


class Pair:
    """A server with mmdb, and a follower that can take its place; use it in `with`."""

    def __init__(self, database: str = "shop") -> None:
        self._database = database
        self.primary: Cluster = Cluster()
        try:
            url = self.primary.create_database(database)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION plpython3u")
            install(url)
            self.follower = Follower(self.primary)
        except BaseException:
            self.primary.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.follower.stop()
        self.primary.stop()

    def url(self, attributes: str = "read-write") -> str:
        """Return a URL of both servers, which leads to the one that is as `attributes` say."""
        first = self.primary.url(self._database).rpartition("/")[0]
        second = f"{self.follower.address}:{self.follower.port}"
        return f"{first},{second}/{self._database}?target_session_attrs={attributes}"

    def fail_over(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the server, by SIGKILL with all its sessions, and let the follower take its place."""
        if how == signal.SIGKILL:
            self.primary.kill()
        else:
            self.primary.halt(how)
        self.follower.promote()

    def level(self) -> None:
        """Wait until the follower shows all that was committed."""
        with psycopg.connect(self.primary.url(), autocommit=True) as session:
            (position,) = session.execute("SELECT pg_current_wal_lsn()").fetchall()
        is_there = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        with psycopg.connect(self.follower.url(), autocommit=True) as session:
            while not session.execute(is_there, position).fetchall()[0][0]:
                time.sleep(0.01)

    def renew(self) -> None:
        """Let a new follower of the server that was promoted listen where the killed one did."""
        killed, self.primary = self.primary, self.follower
        killed.stop()
        self.follower = Follower(self.primary, port=killed.port)


class Standby(Follower, HostedServer):
    """A follower on a host."""

    def __init__(self, host: Host, primary: Cluster) -> None:
        self.host = host
        super().__init__(primary, address=host.address)


def set_on(server: Cluster, name: str, value: str) -> None:
    """Set a server's setting for good, as of now."""
    with psycopg.connect(server.url(), autocommit=True, connect_timeout=5) as connection:
        connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        connection.execute("SELECT pg_reload_conf()")
