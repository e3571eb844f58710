"""Which node of a cluster holds each partition: as many of a dataset on one as on any other.

A partition's number decides where its rows lie, so numbers are drawn until they suit. The choice is
pure; `draw_numbers` asks the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mmdb.db.citus import find_cluster
from mmdb.db.connection import Connection
from mmdb.db.queries import load

_Q = load("datasets")
#: Numbers drawn for each partition at a time: enough for each to have a shard of its own.
DRAWN = 8


@dataclass(frozen=True, slots=True)
class Number:
    """A partition number that is free, and where its rows would lie."""

    part_id: int
    node: str
    shard: int


def draw_numbers(connection: Connection, partitions: int) -> list[int] | None:
    """Return a number for each partition of a new dataset; None where the tables lie on one server.

    They are those that `choose` takes, out of numbers that nobody else draws.
    """
    if find_cluster(connection) is None:
        return None
    nodes = {str(row["node"]) for row in connection.rows(load("nodes").find_block_nodes)}
    if not nodes:
        return None

    def draw() -> list[Number]:
        rows = connection.rows(load("nodes").draw_part_ids, numbers=DRAWN * partitions)
        return [Number(row["part_id"], row["node"], row["shard"]) for row in rows]

    return choose(partitions, nodes, draw)


def choose(partitions: int, nodes: set[str], draw: Callable[[], Sequence[Number]]) -> list[int]:
    """Return numbers that spread partitions evenly over nodes, and over the shards of each.

    Args:
        nodes: those that hold shards; every one of them comes up among numbers sooner or later.
        draw: returns numbers that were not drawn before, at least one.
    """
    free: list[Number] = []
    on_node: Counter[str] = Counter()
    on_shard: Counter[int] = Counter()
    chosen: list[int] = []
    while len(chosen) < partitions:
        fewest = min(on_node[node] for node in nodes)
        fitting = [number for number in free if on_node[number.node] == fewest]
        if not fitting:
            free += draw()
            continue
        # Of equals the first that was drawn: small datasets then do not all begin on one node.
        best = min(fitting, key=lambda number: on_shard[number.shard])
        free.remove(best)
        on_node[best.node] += 1
        on_shard[best.shard] += 1
        chosen.append(best.part_id)
    return chosen
