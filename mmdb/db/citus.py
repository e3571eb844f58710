"""Which PostgreSQL databases are spread over the nodes of a Citus cluster."""

from __future__ import annotations

from dataclasses import dataclass

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import ExtensionMissing, InvalidOption

_Q = load("citus")
_SET_UP = (
    "On the coordinator: SELECT citus_set_coordinator_host('HOST', PORT); then for each node "
    "SELECT citus_add_node('HOST', PORT)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What this server is to the cluster of its database."""

    version: str
    is_coordinator: bool
    is_known: bool  # whether the nodes know how to reach the coordinator
    nodes: int  # that may hold shards


def find_cluster(connection: Connection) -> Cluster | None:
    """Return the cluster of a database; None where it has no extension Citus."""
    if connection.engine != "postgres":
        return None
    extension = connection.rows(_Q.find_extension)
    if not extension:
        return None
    (row,) = connection.rows(_Q.find_cluster)
    return Cluster(version=extension[0]["version"], **row)


def is_ready(cluster: Cluster | None) -> bool:
    """Return whether tables can be spread from here."""
    return cluster is not None and cluster.is_coordinator and cluster.is_known and cluster.nodes > 0


def require_cluster(connection: Connection) -> None:
    """Check that tables can be spread from here.

    Raises:
        InvalidOption: the database is DuckDB's.
        ExtensionMissing: it has no extension Citus, the server is not the coordinator, or the
            coordinator has no nodes, or those cannot reach it.
    """
    if connection.engine != "postgres":
        raise InvalidOption("DuckDB has no engine citus.", hint="Leave --engine out.")
    cluster = find_cluster(connection)
    if cluster is None:
        raise ExtensionMissing(
            "This database has no extension citus.",
            hint="On every server: shared_preload_libraries = 'citus', and in the database "
            f"CREATE EXTENSION citus. {_SET_UP}",
        )
    if not cluster.is_coordinator:
        raise ExtensionMissing(
            "This server is a node of a cluster.", hint="Install over the coordinator's URL."
        )
    if not is_ready(cluster):
        lacking = "nodes" if cluster.is_known else "address for its nodes"
        raise ExtensionMissing(f"This coordinator has no {lacking}.", hint=_SET_UP)
