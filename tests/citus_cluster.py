"""A throw-away Citus: a coordinator and nodes, each a PostgreSQL server of its own.

    with CitusCluster(nodes=2) as citus:
        url = citus.create_database("trial")

Citus is an extension of the server that tests do not install: where it is missing, they do not run.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Self

import psycopg

from tests.cluster import Cluster
from tests.server_files import NoServer, find_server

SETTINGS = {
    "shared_preload_libraries": "citus",
    "citus.local_hostname": "127.0.0.1",
    "citus.node_conninfo": "sslmode=disable",
    "shared_buffers": "128MB",
    "max_prepared_transactions": "60",
}


def has_citus() -> bool:
    """Return whether the installed PostgreSQL has the extension."""
    try:
        return (find_server().extensions / "citus.control").exists()
    except NoServer:
        return False


class CitusCluster:
    """A coordinator and `nodes` workers; `servers[0]` is the coordinator.

    Args:
        settings: of every server, added to or put over `SETTINGS`.
    """

    def __init__(self, nodes: int = 2, settings: dict[str, str] | None = None) -> None:
        self._settings = SETTINGS | (settings or {})
        self._stack = ExitStack()
        self.servers: list[Cluster] = []
        self._databases: list[str] = []
        try:
            for _ in range(nodes + 1):
                self.start_server()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def coordinator(self) -> Cluster:
        """Return the server that clients talk to."""
        return self.servers[0]

    @property
    def nodes(self) -> list[Cluster]:
        """Return the servers that hold the shards."""
        return self.servers[1:]

    def url(self, database: str) -> str:
        """Return the coordinator's URL of a database."""
        return self.coordinator.url(database)

    def start_server(self) -> Cluster:
        """Start one more server, which every other can log in to; it belongs to no cluster yet."""
        # A node gets the coordinator's roles with their passwords when it is added.
        password = self.servers[0].password if self.servers else None
        server = self._stack.enter_context(Cluster(self._settings, password=password))
        self.servers.append(server)
        self._write_passwords()
        return server

    def create_database(self, name: str) -> str:
        """Return the coordinator's URL of a new database that spans all nodes."""
        for server in self.servers:
            self._prepare(server, name)
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            connection.execute(
                "SELECT citus_set_coordinator_host('127.0.0.1', %s)", (self.coordinator.port,)
            )
        for server in self.nodes:
            self.add_node(name, server)
        return self.url(name)

    def add_node(self, database: str, server: Cluster) -> None:
        """Let a server take part in a database, which it must have."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute("SELECT citus_add_node('127.0.0.1', %s)", (server.port,))

    def _prepare(self, server: Cluster, name: str) -> None:
        url = server.create_database(name)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION citus")
            connection.execute("CREATE EXTENSION plpython3u")

    def _write_passwords(self) -> None:
        """Give every server the passwords of all, in its user's password file."""
        lines = [f"127.0.0.1:{s.port}:*:*:{s.password}\n" for s in self.servers]
        for server in self.servers:
            path = server.directory / ".pgpass"
            path.write_text("".join(lines))
            path.chmod(0o600)
            os.chown(path, server.directory.stat().st_uid, server.directory.stat().st_gid)
