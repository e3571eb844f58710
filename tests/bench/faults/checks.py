"""What must hold of a run that was disturbed: every hop once, and the bits of the undisturbed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import blake3

from mmdb.api import Database
from mmdb.db.connection import Row
from mmdb.db.queries import load
from mmdb.store import states
from mmdb.train.drive.run_state import load_run, search_of
from mmdb.train.search import Decision, Goal, Report, Start, Stop, Want, from_row

Key = tuple[int, int, int]  # candidate, epoch, part_id


def hops_of(db: Database, run: str) -> dict[Key, tuple[Any, ...]]:
    """Return a run's hops: place in the candidate's order, loss and states, by what they did.

    Raises:
        AssertionError: one was done twice.
    """
    mark = "%(run)s" if db.connection.engine == "postgres" else "$run"
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, h.part_id, h.ordinal, h.loss, h.state_in, "
        "h.state_out FROM mmdb.hop h JOIN mmdb.candidate c USING (candidate_id) "
        f"JOIN mmdb.run r USING (run_id) WHERE r.name = {mark}",
        {"run": run},
    )
    keys = Counter((row["candidate"], row["epoch"], row["part_id"]) for row in rows)
    twice = [key for key, count in keys.items() if count > 1]
    assert not twice, f"hops done twice: {twice}"
    places = Counter((row["candidate"], row["ordinal"]) for row in rows)
    assert max(places.values(), default=1) == 1, "two hops have the same place"
    return {
        (row["candidate"], row["epoch"], row["part_id"]): (
            row["ordinal"],
            row["loss"],
            bytes(row["state_in"]),
            bytes(row["state_out"]),
        )
        for row in rows
    }


def check(db: Database, run: str, reference: str) -> None:
    """Check a run against the undisturbed one that trained the same candidates for all epochs.

    Raises:
        AssertionError: says what is wrong.
    """
    found, expected = hops_of(db, run), hops_of(db, reference)
    wrong = [key for key, hop in found.items() if hop != expected.get(key)]
    assert not wrong, f"{len(wrong)} hops differ, the first is {min(wrong)}"
    due = {key for key in expected if key[1] < _goals(db, run).get(key[0], 0)}
    missing = due - found.keys()
    assert not missing, f"{len(missing)} hops are missing, the first is {min(missing)}"
    extra = found.keys() - due
    assert not extra, f"{len(extra)} hops are too many, the first is {min(extra)}"
    (status,) = (r["status"] for r in _progress(db, run))
    assert status == "finished", f"its status is {status}"
    failed = [row for row in _progress(db, run) if row["failed"]]
    assert not failed, "candidates have failed"
    check_states(db, run, found)
    check_decisions(db, run)


def check_states(db: Database, run: str, hops: dict[Key, tuple[Any, ...]]) -> None:
    """Check that the last weights are there, and are those that the last hops left."""
    last: dict[int, bytes] = {}
    for (candidate, _, _), (_, _, _, state_out) in sorted(
        hops.items(), key=lambda item: (item[0][0], item[1][0])
    ):
        last[candidate] = state_out
    run_id = load_run(db.connection, run).run_id
    for row in db.connection.rows(load("runs").find_candidates, run_id=run_id):
        if row["ordinal"] not in last:
            continue
        kept = states.checkpoints(db.connection, row["candidate_id"])
        name = last[row["ordinal"]]
        places = [c["part_id"] for c in kept if bytes(c["state_hash"]) == name]
        assert places, f"candidate {row['ordinal']} has no checkpoint of its last state"
        state = states.read_checkpoint(db.connection, places[0], row["candidate_id"], name.hex())
        assert state is not None and blake3.blake3(state).digest() == name, "a checkpoint is bad"


def check_decisions(db: Database, run: str) -> None:
    """Check that a fresh search, told what the log says, decides what the log says."""
    log = _log(db, run)
    search = search_of(load_run(db.connection, run))
    place = 0

    def expect(decisions: Sequence[Decision]) -> None:
        nonlocal place
        logged = log[place : place + len(decisions)]
        assert logged == list(decisions), f"entry {place}: {logged} in the log, not {decisions}"
        place += len(decisions)

    expect(search.begin())
    while place < len(log):
        entry = log[place]
        place += 1
        assert isinstance(entry, Report | Want), f"entry {place - 1} follows from nothing: {entry}"
        expect(search.report(entry) if isinstance(entry, Report) else search.want(entry.idle))
    assert search.done, "the search is not done"


def _log(db: Database, run: str) -> list[Report | Want | Decision]:
    run_id = load_run(db.connection, run).run_id
    rows = db.connection.rows(load("runs").find_decisions, run_id=run_id, after=-1)
    return list(_entries(rows))


def _entries(rows: Sequence[Row]) -> Iterator[Report | Want | Decision]:
    for row in rows:
        detail = json.loads(row["detail"]) if row["detail"] else None
        yield from_row(dict(row) | {"detail": detail})


def _goals(db: Database, run: str) -> dict[int, int]:
    """Return how many epochs each candidate was to train, by ordinal."""
    goals: dict[int, int] = {}
    for entry in _log(db, run):
        if isinstance(entry, Start):
            goals[len(goals)] = entry.goal
        elif isinstance(entry, Goal):
            goals[entry.candidate] = entry.epochs
        assert not isinstance(entry, Stop), "nobody stops candidates here"
    return goals


def _progress(db: Database, run: str) -> list[Row]:
    mark = "%(run)s" if db.connection.engine == "postgres" else "$run"
    return db.sql(f"SELECT status, failed FROM mmdb.run_progress WHERE run = {mark}", {"run": run})
