"""What people ask of runs and candidates: to train, to stop, to go on, to be dropped."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any, Literal

from mmdb.arguments import check_whole, is_number
from mmdb.data.names import found_run
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import check_start, require_owner
from mmdb.db.queries import load
from mmdb.errors import (
    Cancelled,
    CandidateNotFound,
    CandidateStopped,
    InvalidOption,
    MmdbError,
    NoWorkers,
    RunBusy,
    RunEnded,
    RunFailed,
    RunNotFound,
    from_sqlstate,
)
from mmdb.messages import show
from mmdb.train.ledger.shards import shard_runs, shards_of

_RUNS, _GC, _LOCKS = load("runs"), load("gc"), load("locks")


def drop_run(connection: Connection, name: str) -> int:
    """Delete the checkpoints of a run, keep its hops as lineage, free its name; return the bytes.

    With it go those of its shards, where it is made of such. Models that were saved from it stay;
    what those that are kept as a recipe begin with stays, too.

    Raises:
        RunNotFound: there is none, or it is dropped already.
        RunBusy: it is being trained, or one of its candidates is.
        RightsMissing: it is another role's.
    """
    freed = 0
    with connection.transaction():
        found = connection.rows(_RUNS.find_run, name=name)
        found_run(found, name)
        for shard in shard_runs(found[0]):
            if connection.rows(_RUNS.find_run, name=shard):
                freed += drop_run(connection, shard)
        run_id = found[0]["run_id"]
        require_owner(connection, "run", name, run_id)
        _lock(connection, name, run_id)
        ids = [row["candidate_id"] for row in connection.rows(_RUNS.find_disposable, run_id=run_id)]
        checkpoints = connection.rows(_GC.find_checkpoints, ids=ids)
        for query in (_GC.delete_checkpoint_chunks, _GC.delete_checkpoints):
            connection.run(query, ids=ids)
        for candidate_id in ids if connection.engine == "postgres" else ():
            connection.run(load("states").drop_in_flight, candidate_id=candidate_id, kept=[])
        connection.run(_RUNS.mark_run_dropped, run_id=run_id)
    return freed + sum(int(row["bytes"]) for row in checkpoints)


def _lock(connection: Connection, name: str, run_id: int) -> None:
    """Keep drivers, and hops that somebody does by hand, from a run to the transaction's end."""
    if connection.engine == "postgres":
        free = connection.rows(_LOCKS.hold_run, key=run_id % 2**31)[0]["locked"]
    else:
        free = connection.try_lock("run", run_id)
        if free:
            connection.unlock("run", run_id)  # nobody else writes to a DuckDB file
    candidates = connection.rows(_RUNS.find_candidates, run_id=run_id) if free else []
    if not free or not all(connection.try_lock("hop", row["candidate_id"]) for row in candidates):
        raise RunBusy(f"Run {name!r} is being trained.", hint="cancel_run lets it stop first.")


def refuse_dropped(candidate: Row) -> None:
    """Check that the run of a candidate, a row of `find_candidate`, was not dropped.

    Raises:
        RunNotFound
    """
    if candidate["run_dropped"]:
        raise RunNotFound(f"The run of candidate {candidate['candidate_id']} has been dropped.")


def ask(connection: Connection, candidate_id: int, request: Literal["stop", "resume"]) -> int:
    """Ask a candidate's driver to stop it or let it go on; return the request's id.

    The driver heeds it within a second; where none trains the run, the next one does.

    Raises:
        CandidateNotFound, RunNotFound: the run was dropped.
        CandidateStopped: it has failed, which neither mends.
    """
    rows = connection.rows(load("hops").find_candidate, candidate_id=candidate_id)
    if not rows:
        raise CandidateNotFound(f"Candidate {show(candidate_id)} does not exist.")
    refuse_dropped(rows[0])
    key = {"candidate_id": candidate_id, "dataset_id": rows[0]["dataset_id"]}
    error = connection.rows(load("hops").find_end, **key)[0]["error"]
    if error is not None:
        raise CandidateStopped(f"Candidate {candidate_id} has failed: {error}")
    query = load("runs").add_candidate_request
    return int(connection.rows(query, candidate_id=candidate_id, request=request)[0]["request_id"])


Request = Literal["submit", "cancel", "resume"]

#: How far a run may stand before or behind the others: its share is 2 ** priority.
LOWEST, HIGHEST = -5, 5
#: Seconds between two looks at a run that is waited for.
WAIT_S = 0.2

_Q = load("service")
_RETURNED = ("request_id", "run", "request", "priority", "status", "hops_done", "hops_total")


def submit(connection: Connection, run: str, priority: int | None = None) -> dict[str, Any]:
    """Hand a run to the worker processes; again, to change its priority.

    Args:
        priority: from LOWEST to HIGHEST; None for that of the run's options, else 0.
    Returns:
        The request with the run's status, hops_done and hops_total.
    Raises:
        RunNotFound, RunEnded, InvalidOption, NoWorkers: on DuckDB, which has none.
        LimitReached: its owner has no workers, seconds or bytes left.
    """
    found = _find(connection, run)
    _refuse_duckdb(connection)
    _refuse_finished(found)
    check_start(connection, found["run_id"], 1)
    return _ask(connection, found, "submit", _priority(found, priority))


def resume_run(connection: Connection, run: str) -> dict[str, Any]:
    """Hand a run to the worker processes again, with the priority that it had.

    Raises:
        RunNotFound, RunEnded, NoWorkers: on DuckDB, which has none.
    """
    found = _find(connection, run)
    _refuse_duckdb(connection)
    _refuse_finished(found)
    check_start(connection, found["run_id"], 1)
    return _ask(connection, found, "resume", _last_priority(connection, found))


def cancel_run(connection: Connection, run: str) -> dict[str, Any]:
    """Let whoever trains a run stop within a second; `resume_run` goes on with it.

    Raises:
        RunNotFound, RunEnded
    """
    found = _find(connection, run)
    _refuse_finished(found)
    return _ask(connection, found, "cancel", _last_priority(connection, found))


def requests_since(connection: Connection, request_id: int) -> list[Row]:
    """Return request_id, request, priority, run_id and run of later requests, in order."""
    return connection.rows(_Q.requests_since, request_id=request_id)


def last_request(connection: Connection) -> int:
    """Return the id of the last request of all, 0 if there was none."""
    return int(connection.rows(_Q.last_request)[0]["request_id"])


def priority_of(connection: Connection, run: str) -> int:
    """Return the priority that a run has: as last asked for, else that of its options.

    Raises:
        RunNotFound
    """
    return _last_priority(connection, _find(connection, run))


def wait_for(
    connection: Connection,
    run: str,
    on_wait: Callable[[], None] = lambda: None,
    timeout_s: float | None = None,
) -> bool:
    """Wait until the worker processes have ended a run.

    Args:
        on_wait: called every WAIT_S seconds; may raise to end the call.
    Returns:
        True if the run has finished, False if the time was up.
    Raises:
        RunNotFound, Cancelled: by `cancel_run`; and the error that ended the run.
        InvalidOption: `timeout_s` is no number.
    """
    _check_timeout(timeout_s)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    for shard in shards_of(connection, run):
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not wait_for(connection, shard, on_wait, left):
            return False
    while True:
        found = _find(connection, run)
        if found["request"] == "cancel":
            raise Cancelled(f"Run {run!r} was cancelled.", hint="resume_run goes on with it.")
        if found["sqlstate"] is not None:
            raise _error(found)
        if found["status"] == "finished":
            return True
        if deadline is not None and time.monotonic() > deadline:
            return False
        on_wait()
        time.sleep(WAIT_S)


def open_requests(connection: Connection) -> list[Row]:
    """Return request_id, request, priority, run_id and run of what is to be trained, in order."""
    return connection.rows(_Q.find_open_requests)


def add_outcome(
    connection: Connection, request_id: int, run_id: int, error: MmdbError | None
) -> None:
    """Say how a request ended: with an error, or with a finished run."""
    connection.run(
        _Q.add_outcome,
        request_id=request_id,
        run_id=run_id,
        sqlstate=error.sqlstate if error else None,
        message=error.message if error else None,
    )


def _find(connection: Connection, run: str) -> Row:
    rows = connection.rows(_Q.find_requested_run, run=run)
    return found_run(rows, run)


def _refuse_duckdb(connection: Connection) -> None:
    if connection.engine == "duckdb":
        raise NoWorkers("A DuckDB file belongs to one process: it has no worker processes.")


def _refuse_finished(found: Row) -> None:
    if found["status"] == "finished":
        raise RunEnded(f"Run {found['run']!r} is finished.")


def _priority(found: Row, given: int | None) -> int:
    priority = json.loads(found["options"]).get("priority", 0) if given is None else given
    return check_whole(priority, "priority", LOWEST, HIGHEST)


def _check_timeout(timeout_s: object) -> None:
    if timeout_s is None:
        return
    if not is_number(timeout_s, 0, math.inf):
        raise InvalidOption(
            f"timeout_s is {show(timeout_s)}.",
            hint="It is a number of seconds from 0; leave it out to wait to the end.",
        )


def _last_priority(connection: Connection, found: Row) -> int:
    for shard in shards_of(connection, found["run"])[:1]:
        return _last_priority(connection, _find(connection, shard))
    rows = connection.rows(_Q.find_priority, run_id=found["run_id"])
    return int(rows[0]["priority"]) if rows else _priority(found, None)


def _ask(connection: Connection, found: Row, request: Request, priority: int) -> dict[str, Any]:
    """Ask for something of a run; where it is made of shards, of those that are not finished."""
    shards = [_find(connection, shard) for shard in shards_of(connection, found["run"])]
    if shards:
        left = [shard for shard in shards if shard["status"] != "finished"] or shards[-1:]
        asked = [_ask(connection, shard, request, priority) for shard in left][-1]
        hops = {name: sum(shard[name] for shard in shards) for name in ("hops_done", "hops_total")}
        return asked | hops | {"run": found["run"], "status": found["status"]}
    (row,) = connection.rows(
        _Q.add_request, run_id=found["run_id"], request=request, priority=priority
    )
    asked = dict(found) | dict(row) | {"request": request, "priority": priority}
    return {name: asked[name] for name in _RETURNED}


def _error(found: Row) -> MmdbError:
    known = from_sqlstate(found["sqlstate"], found["message"] or "")
    return known or RunFailed(found["message"] or "")
