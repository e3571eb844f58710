"""The doctor's look at a cluster: its nodes, and whether all lies where it should."""

from __future__ import annotations

from collections.abc import Iterator

from mmdb.db.check import Check
from mmdb.db.citus import find_cluster
from mmdb.db.install import installed_engine, is_installed
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load

_Q = load("citus")
_INSTALL = "Run `mmdb install` over the coordinator's URL: it puts every table where it belongs."
#: What a node must do before it can hop; the answer must be the coordinator's own.
_PROBES = {
    "version": "SELECT current_setting('server_version')",
    "Python": "SELECT mmdb.warm_up()",
}


def citus(connection: PostgresConnection) -> Iterator[Check]:
    """Yield whether a cluster's nodes can hop, and whether all lies where it should."""
    cluster = find_cluster(connection)
    if cluster is None:
        return
    if not is_installed(connection) or installed_engine(connection) != "citus":
        yield Check(
            name="citus",
            ok=True,
            detail=f"Citus {cluster.version} is here; mmdb's tables lie on this server alone",
        )
        return
    yield Check(name="citus", ok=True, detail=f"Citus {cluster.version}, {cluster.nodes} nodes")
    yield from _placement(connection)
    nodes = connection.rows(_Q.find_nodes)
    silent = [row["node"] for row in nodes if not (row["answers"] and row["is_active"])]
    yield Check(
        name="nodes",
        ok=not silent,
        detail=f"no answer from {', '.join(silent)}" if silent else "all answer",
        mend="Start them again, or let a standby take their place: docs/citus.md."
        if silent
        else "",
    )
    if silent:
        return  # what follows asks all of them
    empty = [row["node"] for row in nodes if row["has_shards"] and not row["shards"]]
    yield Check(
        name="spread",
        ok=not empty,
        detail=f"nothing lies on {', '.join(empty)}"
        if empty
        else ", ".join(f"{row['partitions']} partitions on {row['node']}" for row in nodes),
        mend="Between runs: SELECT citus_rebalance_start('by_partition', "
        "shard_transfer_mode => 'block_writes')."
        if empty
        else "",
    )
    for name, command in _PROBES.items():
        yield from _compare(connection, name, command)
    (doubled,) = connection.rows(_Q.count_doubled)
    yield Check(
        name="places of hops",
        ok=not doubled["items"],
        detail=f"{doubled['items']} are taken twice" if doubled["items"] else "each taken once",
        mend="A node was restored by itself: restore the cluster as a whole."
        if doubled["items"]
        else "",
    )


def _placement(connection: PostgresConnection) -> Iterator[Check]:
    misplaced = [row["name"] for row in connection.rows(_Q.find_misplaced)]
    misplaced += [row["name"] for row in connection.rows(_Q.find_undelegated)]
    yield Check(
        name="placement",
        ok=not misplaced,
        detail=f"not where it belongs: {', '.join(misplaced)}"
        if misplaced
        else "tables and functions are where they belong",
        mend=_INSTALL if misplaced else "",
    )


def _compare(connection: PostgresConnection, name: str, command: str) -> Iterator[Check]:
    """Yield whether a command has the same answer on every node as here."""
    (here,) = connection.select(command)
    (expected,) = here.values()
    wrong = [
        f"{row['node']}: {row['result']}"
        for row in connection.rows(_Q.probe_nodes, command=command)
        if not row["answered"] or row["result"] != expected
    ]
    yield Check(
        name=f"nodes' {name}",
        ok=not wrong,
        detail="; ".join(wrong) if wrong else f"{expected}, as here",
        mend="Install the same packages on every server: results have the same bits only then."
        if wrong
        else "",
    )
