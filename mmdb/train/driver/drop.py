"""Drops runs: their checkpoints go, and what says how they came to be stays."""

from __future__ import annotations

from mmdb.data.names import found_run
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import require_owner
from mmdb.db.queries import load
from mmdb.errors import RunBusy, RunNotFound

_Q, _GC, _LOCKS = load("runs"), load("gc"), load("locks")


def drop_run(connection: Connection, name: str) -> int:
    """Delete the checkpoints of a run, keep its hops as lineage, free its name; return the bytes.

    Models that were saved from it stay; what those that are kept as a recipe begin with stays, too.

    Raises:
        RunNotFound: there is none, or it is dropped already.
        RunBusy: it is being trained, or one of its candidates is.
        RightsMissing: it is another role's.
    """
    with connection.transaction():
        found = connection.rows(_Q.find_run, name=name)
        found_run(found, name)
        run_id = found[0]["run_id"]
        require_owner(connection, "run", name, run_id)
        _lock(connection, name, run_id)
        ids = [row["candidate_id"] for row in connection.rows(_Q.find_disposable, run_id=run_id)]
        checkpoints = connection.rows(_GC.find_checkpoints, ids=ids)
        for query in (_GC.delete_checkpoint_chunks, _GC.delete_checkpoints):
            connection.run(query, ids=ids)
        for candidate_id in ids if connection.engine == "postgres" else ():
            connection.run(load("states").drop_in_flight, candidate_id=candidate_id, kept=[])
        connection.run(_Q.mark_run_dropped, run_id=run_id)
    return sum(row["bytes"] for row in checkpoints)


def _lock(connection: Connection, name: str, run_id: int) -> None:
    """Keep drivers, and hops that somebody does by hand, from a run to the transaction's end."""
    if connection.engine == "postgres":
        free = connection.rows(_LOCKS.hold_run, key=run_id % 2**31)[0]["locked"]
    else:
        free = connection.try_lock("run", run_id)
        if free:
            connection.unlock("run", run_id)  # nobody else writes to a DuckDB file
    candidates = connection.rows(_Q.find_candidates, run_id=run_id) if free else []
    if not free or not all(connection.try_lock("hop", row["candidate_id"]) for row in candidates):
        raise RunBusy(f"Run {name!r} is being trained.", hint="cancel_run lets it stop first.")


def refuse_dropped(candidate: Row) -> None:
    """Check that the run of a candidate, a row of `find_candidate`, was not dropped.

    Raises:
        RunNotFound
    """
    if candidate["run_dropped"]:
        raise RunNotFound(f"The run of candidate {candidate['candidate_id']} has been dropped.")
