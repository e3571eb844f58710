"""Databases spread over the nodes of a Citus cluster: which are, and where partitions lie."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import ExtensionMissing, InvalidOption, NodeLost, RanOnCoordinator

_Q = load("citus")
_SET_UP = (
    "On the coordinator: SELECT citus_set_coordinator_host('HOST', PORT); then for each node "
    "SELECT citus_add_node('HOST', PORT)."
)
#: What Citus says of a node that is gone where it gives no SQLSTATE of its own.
_NODE_LOST = re.compile(r"crash of another server process|connection marked as essential")
#: States that tell of the end of a session, a caller's or one with a node.
LOST = frozenset({"57P01", "57P02", "57P03", "08000", "08003", "08006"})


def tells_of_lost_node(state: str, text: str) -> bool:
    """Return whether an error that left a session of a cluster alive tells of a lost node."""
    return state in LOST or _NODE_LOST.search(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CitusCluster:
    """A server's place in the cluster of its database."""

    version: str
    is_coordinator: bool
    is_known: bool  # whether the nodes know how to reach the coordinator
    nodes: int  # that may hold shards


def find_cluster(connection: Connection) -> CitusCluster | None:
    """Return the cluster of a database; None where it has no extension Citus."""
    if connection.engine != "postgres":
        return None
    extension = connection.rows(_Q.find_extension)
    if not extension:
        return None
    (row,) = connection.rows(_Q.find_cluster)
    return CitusCluster(version=extension[0]["version"], **row)


def is_ready(cluster: CitusCluster | None) -> bool:
    """Return whether tables can be spread from here."""
    return cluster is not None and cluster.is_coordinator and cluster.is_known and cluster.nodes > 0


def unspread_hint(connection: Connection) -> str:
    """Return what is to be said of a coordinator whose nodes hold none of mmdb's tables; or ""."""
    cluster = find_cluster(connection)
    if cluster is None or not is_ready(cluster) or is_spread(connection):
        return ""
    return (
        f"mmdb's tables lie on this coordinator alone, none on its {cluster.nodes} nodes: "
        "`mmdb install --engine citus URL` spreads them, with no other session open (docs/citus.md)"
    )


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


_NODE_QUERIES = load("nodes")


def is_spread(connection: Connection) -> bool:
    """Return whether the tables of hops and states lie on the nodes of a cluster."""
    if connection.engine != "postgres":
        return False
    has_extension = connection.rows(load("states").has_citus)[0]["found"]
    return bool(has_extension) and bool(connection.rows(_NODE_QUERIES.is_spread)[0]["spread"])


def own_node(connection: Connection) -> str:
    """Return the node that a session computes on."""
    rows = connection.rows(_NODE_QUERIES.own_node)
    return str(rows[0]["node"]) if rows else "coordinator"


def check_here(connection: Connection, part_id: int) -> None:
    """Check that a session computes on the node of a partition.

    Raises:
        RanOnCoordinator: it does not: the call was not handed to that node.
    """
    rows = connection.rows(_NODE_QUERIES.node_of_part, part_id=part_id)
    if not any(row["here"] for row in rows):
        nodes = " or ".join(str(row["node"]) for row in rows) or "no node"
        raise RanOnCoordinator(
            f"The hop was to run on {own_node(connection)}, but partition {part_id} is on {nodes}."
        )


def places(connection: Connection, part_ids: Iterable[int]) -> dict[int, frozenset[str]]:
    """Return the nodes that hold each partition."""
    found: dict[int, set[str]] = {}
    for row in connection.rows(_NODE_QUERIES.place_parts, part_ids=list(part_ids)):
        found.setdefault(int(row["part_id"]), set()).add(str(row["node"]))
    return {part_id: frozenset(nodes) for part_id, nodes in found.items()}


def clear_caches(connection: Connection) -> None:
    """Delete decoded rows from the caches of all nodes.

    Raises:
        NodeLost: of one it is not known whether it has.
    """
    for row in connection.rows(_NODE_QUERIES.clear_caches):
        if not row["is_done"]:
            raise NodeLost(f"Node {row['node']} did not clear its cache: {row['said']}.")


def keys_of_nodes(connection: Connection) -> Mapping[str, int]:
    """Return the nodes that hold shards, each with a number that is distributed to it."""
    return {
        str(row["node"]): int(row["part_id"]) for row in connection.rows(_NODE_QUERIES.find_nodes)
    }
