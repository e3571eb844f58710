"""Reads how far runs are, and which of their candidates train on the same features."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmdb.data.names import found_run
from mmdb.db import citus
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.db.totals import unseal
from mmdb.db.url import AnyConnection
from mmdb.errors import CandidateStopped, DatasetDropped, MmdbError
from mmdb.train.drive.cleanup import forget_states
from mmdb.train.hops.turn import ordinal_of, workload
from mmdb.train.ledger.run_options import RunOptions, parse_run_options
from mmdb.train.schedule import Placement, TrainingProgress, Workload
from mmdb.train.search import Search, make_search
from mmdb.train.values.seeds import MERGE, VALIDATION
from mmdb.train.values.spec import Past

if TYPE_CHECKING:  # it imports psycopg and duckdb
    from mmdb.train.drive.locked_connection import LockedConnection

_Q = load("runs")


@dataclass(slots=True, kw_only=True)
class CandidateState:
    """A candidate of a run, and how far it is."""

    candidate_id: int
    ordinal: int
    config: dict[str, Any]
    error: str | None = None  # what ended it
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    past: Past = field(default_factory=Past)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run with its candidates as their committed hops left them."""

    run_id: int
    name: str
    epochs: int
    metric: str | None
    maximize: bool | None
    search: dict[str, Any]
    raw_options: dict[str, Any]
    options: RunOptions
    warm_start: str
    workload: Workload
    members: tuple[CandidateState, ...]  # by ordinal
    workers: int | None  # that were decided on
    part_ids: dict[int, int]  # part ordinal (VALIDATION for the held-out slice) -> part_id
    placement: Placement = field(default_factory=dict)  # a part that is missing is on every node

    @property
    def is_spread(self) -> bool:
        """Whether its partitions lie on the nodes of a cluster."""
        return bool(self.placement)

    @property
    def visits(self) -> int:
        """Hops of an epoch of a candidate, the validation included."""
        return len(self.part_ids)


def load_run(connection: Connection, name: str) -> RunState:
    """Return a run as its committed hops left it.

    Raises:
        RunNotFound, DatasetDropped
    """
    run = found_run(connection.rows(_Q.find_run, name=name), name)
    if run["dropped"]:
        raise DatasetDropped(f"Dataset {run['dataset']!r} of run {name!r} has been dropped.")
    parts = connection.rows(load("hops").find_partitions, dataset_id=run["dataset_id"])
    rows = connection.rows(_Q.find_candidates, run_id=run["run_id"])
    by_candidate: dict[int, list[Row]] = defaultdict(list)
    for hop in connection.rows(_Q.find_run_hops, run_id=run["run_id"]):
        by_candidate[hop["candidate_id"]].append(hop)
    merged: dict[int, int] = defaultdict(int)
    if run["strategy"] == "model_average":
        for merge in connection.rows(_Q.find_run_merges, run_id=run["run_id"]):
            merged[merge["candidate_id"]] += 1
    options = json.loads(run["options"])
    return RunState(
        run_id=run["run_id"],
        name=name,
        epochs=run["epochs"],
        metric=run["metric"],
        maximize=run["maximize"],
        search=json.loads(run["search"]),
        raw_options=options,
        options=parse_run_options(options, run["asked_strategy"]),
        workers=run["workers"],
        warm_start=run["warm_start"],
        workload=workload(run, parts),
        members=tuple(
            CandidateState(
                candidate_id=row["candidate_id"],
                ordinal=row["ordinal"],
                config=json.loads(row["config"]),
                error=row["error"],
                progress=_resumed(
                    by_candidate[row["candidate_id"]],
                    parts,
                    merged[row["candidate_id"]] if run["strategy"] == "model_average" else None,
                ),
                past=_past(by_candidate[row["candidate_id"]]),
            )
            for row in rows
        ),
        part_ids={ordinal_of(p): p["part_id"] for p in parts},
        placement=placement_of(connection, {ordinal_of(p): p["part_id"] for p in parts}),
    )


def placement_of(connection: Connection, part_ids: Mapping[int, int]) -> dict[int, frozenset[str]]:
    """Return the nodes that hold a run's train parts; an empty mapping where there is one server.

    The held-out slice is missing, for every node looks at it: one node alone would be what all
    candidates wait for.

    Args:
        part_ids: part ordinal -> part_id.
    """
    return find_places(connection, part_ids) if citus.is_spread(connection) else {}


def find_places(connection: Connection, part_ids: Mapping[int, int]) -> dict[int, frozenset[str]]:
    """Return what `placement_of` does, of a cluster."""
    train = {ordinal: part_id for ordinal, part_id in part_ids.items() if ordinal != VALIDATION}
    places = citus.places(connection, train.values())
    return {ordinal: places.get(part_id, frozenset()) for ordinal, part_id in train.items()}


def _past(mine: Sequence[Row]) -> Past:
    """Return what is known of a candidate's hops, in order."""
    if not mine:
        return Past()
    epoch = mine[-1]["epoch"]
    return Past(epoch=epoch, part_ids=tuple(h["part_id"] for h in mine if h["epoch"] == epoch))


def _resumed(mine: Sequence[Row], parts: Sequence[Row], merged: int | None) -> TrainingProgress:
    """Return a candidate's progress.

    Args:
        mine: its hops, in order.
        merged: epochs whose states are averaged; None where they are not.
    """
    ordinals = {p["part_id"]: ordinal_of(p) for p in parts}
    if merged is None:
        epoch, left = divmod(len(mine), len(parts))
        visited = [ordinals[h["part_id"]] for h in mine[len(mine) - left :]]
    else:
        validated = sum(ordinals[h["part_id"]] == VALIDATION for h in mine)
        epoch = validated if VALIDATION in ordinals.values() else merged
        visited = [ordinals[h["part_id"]] for h in mine if h["epoch"] == epoch]
        visited += [MERGE] if merged > epoch else []
    mean_s = sum(h["total_s"] for h in mine) / len(mine) if mine else None
    return TrainingProgress(epoch=epoch, visited=tuple(visited), hop_s=mean_s)


def new_candidates(
    connection: Connection, run_id: int, count: int
) -> list[tuple[Row, CandidateState]]:
    """Return the candidates of a run from ordinal `count` on: clones that someone has made."""
    rows = [
        {**row, "parent_epoch": _parent_epoch(connection, row)}
        for row in connection.rows(_Q.find_new_candidates, run_id=run_id, ordinal=count)
    ]
    return [
        (
            row,
            CandidateState(
                candidate_id=row["candidate_id"],
                ordinal=row["ordinal"],
                config=json.loads(row["config"]),
            ),
        )
        for row in rows
    ]


def _parent_epoch(connection: Connection, row: Row) -> int | None:
    """Return the epoch of the state that a clone begins with; None for one that begins afresh.

    The driver looks for clones all the time, and states may lie on other nodes: a query of its own.
    """
    if row["parent_id"] is None or row["parent_state"] is None:
        return None
    kept = connection.rows(
        _Q.find_parent_epoch, candidate_id=row["parent_id"], state_hash=row["parent_state"]
    )
    return kept[0]["parent_epoch"] if kept else None


def search_of(run: RunState) -> Search:
    """Return a run's search, as if nothing had happened yet."""
    return make_search(
        run.search,
        epochs=run.epochs,
        seed=run.workload.seed,
        maximize=bool(run.maximize),
        options=run.raw_options,
    )


class HopGroups:
    """Which candidates of a run do hops together: on the same features, or of one shape.

    Features of candidates that freeze layers are settled with the first hop of one of them, if
    nobody has done it before.
    """

    def __init__(self, control: LockedConnection, run: RunState) -> None:
        """Read what is settled of a run under its lock."""
        self._control, self._run_id = control, run.run_id
        self._fuses = run.options.features.fuse > 1
        self._stacks = run.options.stack > 1
        self._shapes: dict[str, int] = {}  # numbers of groups that are stacked, below 0
        self._open: dict[int, int] = {}  # candidates by ordinal whose features are not settled
        self._features = self._find() if self._fuses else {}

    def of(self, member: CandidateState) -> int | None:
        """Return the number of a candidate's group.

        Returns:
            Its features; below 0 that of a stack; None where it has none, or it is not settled.
        """
        if self._stacks and member.config.get("freeze_up_to") is None:
            return self._shapes.setdefault(_shape_of(member.config), -1 - len(self._shapes))
        found = self._features.get(member.candidate_id)
        freezes = member.config.get("freeze_up_to") is not None
        if self._fuses and found is None and freezes:
            self._open[member.ordinal] = member.candidate_id
        return found

    def settled_by(self, ordinals: Iterable[int]) -> list[tuple[int, int]]:
        """Return ordinal and features of candidates that the hops of some may have settled.

        The database is asked after the first hop of a candidate, as long as there is something to
        learn.
        """
        first = [ordinal for ordinal in ordinals if ordinal in self._open] if self._open else []
        if not first:
            return []
        self._features = self._find()
        found = [(o, self._features.get(c)) for o, c in self._open.items()]
        settled = [(ordinal, feature) for ordinal, feature in found if feature is not None]
        for ordinal in (*first, *(ordinal for ordinal, _ in settled)):
            self._open.pop(ordinal, None)
        return settled

    def _find(self) -> dict[int, int]:
        """Return the features of the run's candidates that are settled, by candidate_id."""
        query, run_id = load("features").find_candidates, self._run_id
        rows = self._control.do(lambda c: c.rows(query, run_id=run_id))
        return {row["candidate_id"]: row["feature_id"] for row in rows}


#: Hyper-parameters in which candidates of one stack may differ.
_APART = ("lr", "weight_decay", "schedule", "clip_norm", "clip_value", "architecture.dropout")


def _shape_of(config: Mapping[str, Any]) -> str:
    """Return a text that is equal for candidates that may be of one shape; hops look closer."""
    given = {k: v for k, v in config.items() if k not in _APART}
    for key in ("optimizer", "loss"):  # whose arguments are each candidate's own
        if isinstance(given.get(key), Mapping):
            given[key] = given[key].get("name")
    return json.dumps(given, sort_keys=True)


def note_event(
    control: LockedConnection, run_id: int, event: str, workers: int, message: str | None
) -> None:
    """Note in `run_event` what happens to a run; one that starts has no sealed totals any more."""
    row = {"run_id": run_id, "event": event, "workers": workers, "message": message}

    def note(connection: Connection) -> None:
        with connection.transaction():
            connection.run(_Q.add_run_event, **row)
            if event == "started":
                unseal(connection, run_id)

    control.do(note)


def note_failure(control: LockedConnection, candidate_id: int, error: MmdbError) -> None:
    """Record the error that ended a candidate, whose states nobody needs any more."""
    row = {"candidate_id": candidate_id, "event": "failed", "sqlstate": error.sqlstate}
    row |= {"message": error.message, "trace": getattr(error, "trace", None) or None}

    def note(connection: AnyConnection) -> None:
        with connection.transaction():
            connection.run(_Q.add_candidate_event, **row)
            forget_states(connection, [candidate_id])

    if not isinstance(error, CandidateStopped):  # its end is recorded already
        control.do(note)
