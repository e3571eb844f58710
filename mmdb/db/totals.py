"""Totals of runs: written some time after a run has finished, deleted when it goes on.

Views read them in place of the run's hops, see sql/schema/13_totals.sql, and say the same of a run
before and after. The rows of a run come and go in one transaction, under a lock of its totals: who
writes them holds it alone, who adds to the run shares it. So no hop is missed that is recorded
while totals are written. DuckDB needs no lock: one process writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmdb.db.citus import is_spread
from mmdb.db.connection import Connection
from mmdb.db.queries import load

_Q, _L = load("totals"), load("locks")

#: Finished runs, or hops of them, that are worth the 0.2 s that totals take, of one run or of many.
RUNS, HOPS = 16, 2_000
#: Runs whose totals are written in one transaction.
LOCKED = 2_048


def seal_some(connection: Connection) -> None:
    """Write the totals of finished runs that lack them, if there are many or large ones.

    On a cluster of each: hops lie on nodes, which may be down when somebody asks.
    """
    found = [int(row["run_id"]) for row in connection.rows(_Q.find_finished)]
    at_once = len(found) >= RUNS or (found and is_spread(connection))
    if at_once or (found and _count_hops(connection, found) >= HOPS):
        seal_finished(connection)


def _count_hops(connection: Connection, run_ids: Sequence[int]) -> int:
    return int(connection.rows(_Q.count_hops, run_ids=list(run_ids))[0]["hops"])


def seal_finished(connection: Connection) -> int:
    """Write the totals of all finished runs that lack them; return how many there were.

    A run that another session adds to, or writes the totals of, is left alone.
    """
    found = [int(row["run_id"]) for row in connection.rows(_Q.find_finished)]
    parts = (found[start : start + LOCKED] for start in range(0, len(found), LOCKED))
    return sum(_seal(connection, part) for part in parts)


def unseal(connection: Connection, run_id: int) -> None:
    """Delete the totals of a run, in the transaction that adds to it; nobody writes them before.

    Waits while another session writes them: clients do, over the coordinator of a cluster, so that
    is where the lock is.
    """
    if getattr(connection, "is_spread", False):  # inside a server, which may be a node
        connection.rows(load("nodes").share_totals, key=run_id % 2**31)
    elif connection.engine == "postgres":
        connection.run(_L.share_totals, key=run_id % 2**31)
    if connection.rows(_Q.find_total, run_id=run_id):
        for query in (_Q.unseal_run, _Q.unseal_candidates, _Q.unseal_epochs, _Q.unseal_hours):
            connection.run(query, run_id=run_id)


def _seal(connection: Connection, run_ids: Sequence[int]) -> int:
    """Write the totals of those runs that have still finished once their locks are held."""
    with connection.transaction():
        locked = _lock(connection, run_ids)
        found = connection.rows(_Q.find_finished)
        names = [row["name"] for row in found if row["run_id"] in locked]
        if names:
            for query in (_Q.seal_epochs, _Q.seal_candidates, _Q.seal_hours, _Q.seal_runs):
                connection.run(query, names=names)
        return len(names)


def _lock(connection: Connection, run_ids: Sequence[int]) -> set[int]:
    """Return the runs whose totals this transaction alone may write."""
    if connection.engine == "duckdb":
        return set(run_ids)
    rows = connection.rows(_L.lock_totals, run_ids=list(run_ids))
    return {int(row["run_id"]) for row in rows}
