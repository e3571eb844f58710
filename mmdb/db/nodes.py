"""The nodes of a cluster that a database is spread over, and where its partitions lie.

A node is named by its address in the cluster, `host:port`: several may share a machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import RanOnCoordinator

_Q = load("nodes")


def is_spread(connection: Connection) -> bool:
    """Return whether the tables of hops and states lie on the nodes of a cluster."""
    if connection.engine != "postgres":
        return False
    has_extension = connection.rows(load("states").has_citus)[0]["found"]
    return bool(has_extension) and bool(connection.rows(_Q.is_spread)[0]["spread"])


def own_node(connection: Connection) -> str:
    """Return the node that a session computes on."""
    rows = connection.rows(_Q.own_node)
    return str(rows[0]["node"]) if rows else "coordinator"


def check_here(connection: Connection, part_id: int) -> None:
    """Check that a session computes on the node of a partition.

    Raises:
        RanOnCoordinator: it does not: the call was not handed to that node.
    """
    rows = connection.rows(_Q.node_of_part, part_id=part_id)
    if not any(row["here"] for row in rows):
        nodes = " or ".join(str(row["node"]) for row in rows) or "no node"
        raise RanOnCoordinator(
            f"The hop was to run on {own_node(connection)}, but partition {part_id} is on {nodes}."
        )


def places(connection: Connection, part_ids: Iterable[int]) -> dict[int, frozenset[str]]:
    """Return the nodes that hold each partition."""
    found: dict[int, set[str]] = {}
    for row in connection.rows(_Q.place_parts, part_ids=list(part_ids)):
        found.setdefault(int(row["part_id"]), set()).add(str(row["node"]))
    return {part_id: frozenset(nodes) for part_id, nodes in found.items()}


def keys_of_nodes(connection: Connection) -> Mapping[str, int]:
    """Return the nodes that hold shards, each with a number that is distributed to it."""
    return {str(row["node"]): int(row["part_id"]) for row in connection.rows(_Q.find_nodes)}
