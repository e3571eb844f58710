"""A plain walk over the edges of lineage, to compare what mmdb finds with."""

from __future__ import annotations

from collections import defaultdict

from mmdb.api import Database


def models_below(db: Database, start: str) -> set[str]:
    """Return the models below a node that are not dropped, by every edge that there is."""
    children = defaultdict(set)
    for edge in db.sql("SELECT parent, child FROM mmdb.lineage_edge"):
        children[edge["parent"]].add(edge["child"])
    left, seen = [start], {start}
    while left:
        fresh = children[left.pop()] - seen
        seen |= fresh
        left += fresh
    there = db.sql(
        "SELECT 'model:' || name || '@' || CAST(version AS text) AS node FROM mmdb.model"
        " WHERE dropped_at IS NULL"
    )
    return seen & {row["node"] for row in there}
