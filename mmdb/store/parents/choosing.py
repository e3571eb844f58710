"""The search of a parent: by place, bucket of similarity and metric; see `choose_parent`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from time import perf_counter

from mmdb.db.connection import Connection
from mmdb.db.owners import readable
from mmdb.db.queries import load
from mmdb.errors import DefinitionMissing
from mmdb.graph.match.pack import PackedSkeleton
from mmdb.graph.match.zoo_search import Match
from mmdb.graph.trace.structure import Architecture
from mmdb.store.models import find_model
from mmdb.store.parents.choice import Candidate, Choice, Goal, Limits
from mmdb.store.parents.index import index_of
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
from mmdb.store.parents.outlines import outlined
from mmdb.store.parents.rerank import Sample, rerank

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
    child: Architecture,
    goal: Goal,
    *,
    parent: str | None,
    k: int,
    limits: Limits,
    excluded: Collection[int],
    sample: Sample | None,
) -> Choice:
    """See `mmdb.store.parents.choose_parent`."""
    started = perf_counter()
    packed = outlined(child)
    aim = aim_of(connection, goal)
    if parent is not None:
        found = _named(connection, aim, packed, parent)
    else:
        known = connection.rows(
            load("architectures").find_architecture, canonical_hash=child.canonical_hash
        )
        same = known[0]["architecture_id"] if known else None
        found = _searched(connection, aim, packed, same, k, limits, excluded)
    found.sort(key=_rank)
    candidates = _explained(found, k, aim.goal.metric)
    fits = [one for one in candidates if one.is_fit]
    if sample is not None and len(fits) > 1:
        candidates = [*rerank(fits, sample), *candidates[len(fits) :]]
    best = candidates[0] if candidates and candidates[0].is_fit else None
    return Choice(
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


def _named(connection: Connection, aim: Aim, child: PackedSkeleton, reference: str) -> list[Judged]:
    model = find_model(connection, reference)
    if model.architecture_id is None:
        raise DefinitionMissing(
            f"The architecture of model {model.reference} is not known.",
            hint="Name a model that was saved with its module or architecture.",
        )
    index = index_of(connection)
    index.read(connection, [model.architecture_id])
    matches = index.search(child, [model.architecture_id], 1)
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


def _explained(found: Sequence[Judged], k: int, metric: str | None) -> list[Candidate]:
    return [
        Candidate(
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


def _why_none(candidates: Sequence[Candidate], *, is_named: bool) -> str:
    if not candidates:
        return "No model of the zoo has an architecture that is known."
    first = candidates[0]
    if is_named:
        return f"{first.model} does not fit: {first.reason}."
    return (
        f"No model fits; the most similar one is {first.model} with {first.similarity:.2f}: "
        f"{first.reason}."
    )
