"""Makes the database for mmdb: on one server, or on all servers of a Citus cluster.

Reads PGHOST, PGPORT, PGDATABASE and NODES; libpq reads PGUSER and the password file.
"""

from __future__ import annotations

import os

import psycopg
from psycopg import sql

Server = tuple[str, int]  # host, port


def main() -> None:
    """Make what is missing; what is there stays."""
    name = os.environ["PGDATABASE"]
    coordinator = (os.environ["PGHOST"], int(os.environ["PGPORT"]))
    nodes = [parse_server(text) for text in os.environ.get("NODES", "").split()]
    for server in (coordinator, *nodes):
        with connect(server, "postgres") as connection:
            create_database(connection, name)
    if nodes:
        for server in (coordinator, *nodes):  # a node takes part if it has the extensions
            with connect(server, name) as connection:
                create_extensions(connection)
        with connect(coordinator, name) as connection:
            add_nodes(connection, coordinator, nodes)


def parse_server(text: str) -> Server:
    """Return host and port of "HOST:PORT", or of "HOST"."""
    host, _, port = text.partition(":")
    return host, int(port or 5432)


def connect(server: Server, database: str) -> psycopg.Connection[tuple[object, ...]]:
    """Open a session of the superuser."""
    host, port = server
    return psycopg.connect(host=host, port=port, dbname=database, autocommit=True)


def create_database(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    """Make a database unless the server has it."""
    found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone()
    if found is None:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def create_extensions(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Make the extensions that are missing: a node that takes part refuses even IF NOT EXISTS."""
    there = {name for (name,) in connection.execute("SELECT extname FROM pg_extension")}
    for name in ("citus", "plpython3u"):
        if name not in there:
            connection.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(name)))


def add_nodes(
    connection: psycopg.Connection[tuple[object, ...]], coordinator: Server, nodes: list[Server]
) -> None:
    """Let the nodes that are new take part, under the names that all of them resolve."""
    connection.execute("SELECT citus_set_coordinator_host(%s, %s)", coordinator)
    known = set(connection.execute("SELECT nodename, nodeport FROM pg_dist_node").fetchall())
    for node in nodes:
        if node not in known:
            connection.execute("SELECT citus_add_node(%s, %s)", node)


if __name__ == "__main__":
    main()
