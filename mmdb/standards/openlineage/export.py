"""From an open database to events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmdb.db.url import AnyConnection
from mmdb.standards.openlineage.events import events
from mmdb.standards.openlineage.facts import read_facts, read_hops
from mmdb.standards.place import place_of


def lineage_events(
    connection: AnyConnection, run: str | None = None, *, jobs: str = "mmdb", hops: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the events of a run, or of all that the database holds.

    Until the last one is taken, the session can do nothing else.

    Args:
        jobs: namespace of the jobs; give each database its own where they share a collector.
        hops: whether each hop is a run of its own, two events each.
    Raises:
        RunNotFound, RightsMissing: the role may not read mmdb's tables: mmdb_trainer may.
    """
    place = place_of(connection, jobs)
    facts = read_facts(connection, run)
    below = (lambda run_id: read_hops(connection, run_id)) if hops else None
    return events(facts, place, below)
