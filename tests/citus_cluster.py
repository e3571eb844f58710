"""A throw-away Citus: a coordinator and nodes, each a PostgreSQL server of its own.

    with CitusCluster(nodes=2) as citus:
        url = citus.create_database("trial")

Citus is an extension of the server that tests do not install: where it is missing, they do not run.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

import psycopg

from mmdb.db.server_programs import find_server
from mmdb.errors import ServerMissing
from tests.cluster import Cluster
from tests.network.network import Network
from tests.network.servers import HostedServer, Standby

SETTINGS = {
    "shared_preload_libraries": "citus",
    "citus.local_hostname": "127.0.0.1",
    # A connection whose other end has vanished ends after seconds, not hours.
    "citus.node_conninfo": (
        "sslmode=disable keepalives_idle=5 keepalives_interval=5 keepalives_count=3 "
        "tcp_user_timeout=20000"
    ),
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "shared_buffers": "128MB",
    "max_prepared_transactions": "60",
}


def has_citus() -> bool:
    """Return whether the installed PostgreSQL has the extension."""
    try:
        return (find_server().extensions / "citus.control").exists()
    except ServerMissing:
        return False


class CitusCluster:
    """A coordinator and `nodes` workers; `servers[0]` is the coordinator.

    Args:
        settings: of every server, added to or put over `SETTINGS`.
        network: where each server gets a host; otherwise all are on the loopback interface.
    """

    def __init__(
        self,
        nodes: int = 2,
        settings: dict[str, str] | None = None,
        network: Network | None = None,
    ) -> None:
        self._settings = SETTINGS | (settings or {})
        self._network = network
        self._stack = ExitStack()
        self.servers: list[Cluster] = []
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
        server: Cluster
        if self._network is None:
            server = Cluster(self._settings, password=password)
        else:
            server = HostedServer(self._network.add_host(), self._settings, password=password)
        self.servers.append(self._stack.enter_context(server))
        return server

    def start_standby(self, node: Cluster) -> Standby:
        """Start a server that follows a node, on a host of its own."""
        assert self._network is not None, "standbys are for clusters on a network"
        standby = self._stack.enter_context(Standby(self._network.add_host(), node))
        return standby

    def replace(self, database: str, node: Cluster, standby: Standby) -> None:
        """Promote a standby of a node that has ended, and let it be that node in a database."""
        standby.promote()
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(
                "SELECT citus_update_node(nodeid, %(host)s, %(port)s) FROM pg_dist_node "
                "WHERE (nodename, nodeport) = (%(old_host)s, %(old_port)s)",
                {
                    "host": standby.address,
                    "port": standby.port,
                    "old_host": node.address,
                    "old_port": node.port,
                },
            )
        self.servers[self.servers.index(node)] = standby

    def create_database(self, name: str) -> str:
        """Return the coordinator's URL of a new database that spans all nodes."""
        for server in self.servers:
            self.prepare(server, name)
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            host = self.coordinator
            connection.execute(
                "SELECT citus_set_coordinator_host(%s, %s)", (host.address, host.port)
            )
        for server in self.nodes:
            self.add_node(name, server)
        return self.url(name)

    def prepare(self, server: Cluster, name: str) -> None:
        """Create a database on a server, with what a node of it needs."""
        url = server.create_database(name)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION citus")
            connection.execute("CREATE EXTENSION plpython3u")

    def add_node(self, database: str, server: Cluster) -> None:
        """Let a server take part in a database, which it must have."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute("SELECT citus_add_node(%s, %s)", (server.address, server.port))
