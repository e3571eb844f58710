"""The search of a parent among the outlines that a session has read; see `choose_parent`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from time import perf_counter
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mmdb.db.connection import Connection
from mmdb.db.owners import readable
from mmdb.db.queries import load
from mmdb.errors import DefinitionMissing
from mmdb.graph.match.pack import PackedSkeleton
from mmdb.graph.match.packed_zoo import PackedZoo, Stack
from mmdb.graph.match.zoo_search import Match, search
from mmdb.graph.trace.structure import NetworkGraph
from mmdb.store.models.architectures import outlined, stacked_outlines
from mmdb.store.models.model_rows import find_model
from mmdb.store.parents.choice import Limits, ParentChoice, ParentGoal, ParentMatch, Sample, rerank
from mmdb.store.parents.judging import (
    OTHER,
    OUTSIDE,
    SAME_DATASET,
    SAME_TASK,
    Aim,
    Judged,
    Looked,
    aim_of,
    judge,
)

#: Beyond them everything is read again, into one.
_MOST_PIECES = 8


class Index:
    """Outlines by architecture.

    What is kept never changes and is never removed; each search says which architectures the zoo
    has now. Equal scores are told apart by the numbers of architectures. So sessions agree,
    whatever each has read before, and in whatever order.
    """

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._there: set[int] = set()
        self._without: set[int] = set()  # architectures that are too large to be found

    def read(self, connection: Connection, architecture_ids: Sequence[int]) -> None:
        """Read the outlines that are not there yet."""
        new = set(architecture_ids) - self._there - self._without
        if not new:
            return
        self._read(connection, new)
        self._without |= new - self._there
        if len(self._pieces) > _MOST_PIECES:
            again = self._there & set(architecture_ids)
            self._pieces, self._there = [], set()
            self._read(connection, again)

    def _read(self, connection: Connection, architecture_ids: Collection[int]) -> None:
        for ids, found in stacked_outlines(connection, sorted(architecture_ids)):
            if ids:
                fitting = (one for one in self._pieces if one.architectures[-1] < ids[0])
                piece = next(fitting, None)
                if piece is None:
                    self._pieces.append(piece := _Piece())
                piece.extend(ids, found)
                self._there.update(ids)

    def search(
        self, child: PackedSkeleton, among: Collection[int], k: int, *, same: int | None = None
    ) -> list[tuple[int, Match]]:
        """Return the k most similar of some architectures, each with its match, best first.

        Args:
            same: the architecture that is the child's own, if it is stored; it comes first.
        """
        wanted = np.fromiter(among, np.int64, len(among))
        found = [one for piece in self._pieces for one in piece.search(child, wanted, k, same)]
        found.sort(key=lambda one: (one[0] != same, -one[1].score, one[0]))
        return found[:k]


class _Piece:
    """Outlines in the order of their architectures' numbers."""

    def __init__(self) -> None:
        self.architectures = np.empty(0, np.int64)
        self._packed = PackedZoo()

    def extend(self, architecture_ids: Sequence[int], found: Stack) -> None:
        self._packed.extend([_key(one) for one in architecture_ids], found)
        self.architectures = np.append(self.architectures, architecture_ids)

    def search(
        self, child: PackedSkeleton, among: NDArray[np.int64], k: int, same: int | None
    ) -> list[tuple[int, Match]]:
        key = None if same is None else _key(same)
        mask = np.isin(self.architectures, among)
        found = search(child, self._packed, k, key=key, among=mask)
        return [(int(self.architectures[match.number]), match) for match in found]


_indexes: WeakKeyDictionary[Connection, Index] = WeakKeyDictionary()


def index_of(connection: Connection) -> Index:
    """Return the index that a session keeps."""
    if connection not in _indexes:
        _indexes[connection] = Index()
    return _indexes[connection]


def _key(architecture_id: int) -> bytes:
    return architecture_id.to_bytes(8, "big")


_Q = load("zoo")
#: Architectures that are looked at in each place, or more: the better ones of a bucket are sought
#: among the most similar.
_WIDTH = 32
#: What is said of a weak parent that was named; docs/warm.md has the measurement.
_MEASURED = (
    "; measured, wider children of weak parents ended 1.6 points of accuracy below cold starts"
    " after three epochs, those of spoilt ones more"
)


def choose(
    connection: Connection,
    child: NetworkGraph,
    goal: ParentGoal,
    *,
    parent: str | None,
    k: int,
    limits: Limits,
    excluded: Collection[int],
    sample: Sample | None,
) -> ParentChoice:
    """See `mmdb.store.parents.choose_parent`."""
    started = perf_counter()
    packed = outlined(child)
    aim = aim_of(connection, goal)
    known = connection.rows(
        load("architectures").find_architecture, canonical_hash=child.canonical_hash
    )
    same = known[0]["architecture_id"] if known else None
    if parent is not None:
        found = _named(connection, aim, packed, same, parent)
    else:
        found = _searched(connection, aim, packed, same, k, limits, excluded)
    found.sort(key=_rank)
    candidates = _explained(found, k, aim.goal.metric)
    fits = [one for one in candidates if one.is_fit]
    if sample is not None and len(fits) > 1:
        candidates = [*rerank(fits, sample), *candidates[len(fits) :]]
    best = candidates[0] if candidates and candidates[0].is_fit else None
    return ParentChoice(
        parent=best,
        reason=best.reason if best else _why_none(candidates, is_named=parent is not None),
        candidates=tuple(candidates),
        match_s=perf_counter() - started,
    )


def _searched(
    connection: Connection,
    aim: Aim,
    child: PackedSkeleton,
    same: int | None,
    k: int,
    limits: Limits,
    excluded: Collection[int],
) -> list[Judged]:
    rows = connection.rows(_Q.find_zoo, dataset_id=aim.goal.dataset_id, task=aim.goal.task)
    index = index_of(connection)
    index.read(connection, [row["architecture_id"] for row in rows])
    found: dict[int, Judged] = {}
    for place in (SAME_DATASET, SAME_TASK, OTHER, OUTSIDE):
        among = [row["architecture_id"] for row in rows if row["place"] == place]
        wanted = max(k, _WIDTH)
        while among:
            matches = index.search(child, among, wanted, same=same)
            judged = judge(connection, aim, _models(connection, matches), limits, excluded)
            found |= {one.looked.model_id: one for one in judged}
            has_fit = any(one.fault is None for one in judged)
            is_last = len(matches) < wanted or matches[-1][1].score < limits.similarity
            if has_fit or is_last or place == OUTSIDE:
                break
            wanted *= 4
        if sum(one.fault is None for one in found.values()) >= k:
            break
    return list(found.values())


def _named(
    connection: Connection, aim: Aim, child: PackedSkeleton, same: int | None, reference: str
) -> list[Judged]:
    model = find_model(connection, reference)
    if model.architecture_id is None:
        raise DefinitionMissing(
            f"The architecture of model {model.reference} is not known.",
            hint="Name a model that was saved with its module or architecture.",
        )
    index = index_of(connection)
    index.read(connection, [model.architecture_id])
    matches = index.search(child, [model.architecture_id], 1, same=same)
    looked = [one for one in _models(connection, matches) if one.model_id == model.model_id]
    return judge(connection, aim, looked, None)


def _models(connection: Connection, matches: Sequence[tuple[int, Match]]) -> list[Looked]:
    by_architecture = dict(matches)
    rows = connection.rows(_Q.find_models, architecture_ids=list(by_architecture))
    open_ones = readable(connection, [row["model_id"] for row in rows])
    return [
        Looked(
            row=row,
            similarity=by_architecture[row["architecture_id"]].score,
            coverage=by_architecture[row["architecture_id"]].alignment.coverage,
            pairs=by_architecture[row["architecture_id"]].alignment.pairs,
        )
        for row in rows
        if row["model_id"] in open_ones
    ]


def _rank(one: Judged) -> tuple[object, ...]:
    similarity, newest = one.looked.similarity, -one.looked.model_id
    if one.fault is not None:
        return (True, -similarity, newest)
    return (False, one.place, -one.bucket, -one.quality, -similarity, newest)


def _explained(found: Sequence[Judged], k: int, metric: str | None) -> list[ParentMatch]:
    return [
        ParentMatch(
            model_id=one.looked.model_id,
            model=f"{one.looked.row['name']}@{one.looked.row['version']}",
            similarity=one.looked.similarity,
            coverage=one.looked.coverage,
            accuracy=one.value,
            metric=one.metric,
            dataset=one.looked.row["dataset"],
            is_fit=one.fault is None,
            reason=_reason(one, found[0], metric),
            pairs=one.looked.pairs,
        )
        for one in found[:k]
    ]


def _reason(one: Judged, best: Judged, metric: str | None) -> str:
    if one.fault is not None:
        return one.fault
    on = {
        SAME_DATASET: "of the same dataset",
        SAME_TASK: "of the same task",
        OUTSIDE: "asked for, and not in the zoo",
    }.get(one.place, "of another task, or of none that is known")
    known = "" if metric is None else f", no {metric} is known"
    if one.value is not None:
        known = f", {one.metric} {one.value:.4g}"
    said = f"{on}, similarity {one.looked.similarity:.2f}{known}"
    if one.weakness is not None:
        said += f", weak: {one.weakness}{_MEASURED}"
    if one is best:
        return said
    return (
        f"{said}; {_behind(one, best)} than {best.looked.row['name']}@{best.looked.row['version']}"
    )


def _behind(one: Judged, best: Judged) -> str:
    if one.place != best.place:
        return "further from the goal"
    if one.bucket != best.bucket:
        return "less similar"
    if one.quality != best.quality:
        return "less good" if one.value is not None else "less is known of it"
    return "less similar" if one.looked.similarity != best.looked.similarity else "older"


def _why_none(candidates: Sequence[ParentMatch], *, is_named: bool) -> str:
    if not candidates:
        return "No model of the zoo has an architecture that is known."
    first = candidates[0]
    if is_named:
        return f"{first.model} does not fit: {first.reason}."
    return (
        f"No model fits; the most similar one is {first.model} with {first.similarity:.2f}: "
        f"{first.reason}."
    )
