"""What the rules say of the whole zoo: who is in it, and who goes where it takes too many bytes."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmdb.arguments import check_flag, is_whole
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import owners_of_others
from mmdb.db.queries import load
from mmdb.errors import InvalidOption, ModelInUse, ModelNotFound
from mmdb.messages import show
from mmdb.store.parents.admission import DUPLICATE_SIMILARITY
from mmdb.store.parents.events import Event, add_event
from mmdb.store.parents.eviction import Evicted, Stored, plan_eviction
from mmdb.store.parents.judging import UNSOUND, metric_fault, unsound_of
from mmdb.store.parents.members import Member, Members
from mmdb.store.registry import drop_model

_Q = load("zoo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a model; of one that is evicted with the bytes that `gc` can then free."""

    model_id: int
    model: str
    event: Event
    reason: str
    bytes: int | None = None


def manage_zoo(
    connection: Connection, *, budget_bytes: int | None = None, dry_run: bool = True
) -> list[Decision]:
    """Decide which models are in the zoo, and drop those worth least until the rest fits.

    Refused are outliers of a dataset and metric, models that have learned nothing or whose
    parameters are not all finite numbers, and of two that are nearly the same, in architecture and
    metric, the less good one. What somebody said with
    `zoo_admit` or `zoo_refuse` is left alone, and what has not changed is not said again.

    Args:
        budget_bytes: for the stored tensors of all models; None evicts nobody. A model that an
            alias is at, or that a recipe begins with, stays, and so does another role's.
        dry_run: write nothing.
    Raises:
        InvalidOption: the budget is no whole number from 0, or `dry_run` neither true nor false.
    """
    _check(budget_bytes, dry_run)
    members = Members(connection)
    decided, inside = _admissions(connection, members)
    if budget_bytes is not None:
        decided += _evictions(connection, members, inside, budget_bytes)
    return decided if dry_run else [one for one in decided if _carry_out(connection, one)]


def _check(budget_bytes: Any, dry_run: object) -> None:
    if budget_bytes is not None and not is_whole(budget_bytes, 0):
        raise InvalidOption(
            f"budget_bytes is {show(budget_bytes)}.",
            hint="It is a whole number from 0, or NULL to drop nobody.",
        )
    check_flag(dry_run, "dry_run")  # NULL would drop models that nobody meant to drop


def _carry_out(connection: Connection, decision: Decision) -> bool:
    """Write down a decision; return False where the model is gone, or is in use by now."""
    try:
        with connection.transaction():
            if decision.event == "evicted":
                drop_model(connection, decision.model)
            add_event(connection, decision.model_id, decision.event, decision.reason, by_rule=True)
    except (ModelInUse, ModelNotFound):
        return False
    return True


# -- who is in --------------------------------------------------------------------


def _admissions(connection: Connection, members: Members) -> tuple[list[Decision], set[int]]:
    """Return what changes, the better models first, and who is in the zoo then."""
    ids = sorted({dataset_id for dataset_id, _ in members.groups})
    datasets = {row["dataset_id"]: row for row in connection.rows(_Q.find_goal, dataset_ids=ids)}
    unsound = unsound_of(connection, list(members.by_id))
    inside: set[int] = set()
    decided: list[Decision] = []
    for one in sorted(members.all, key=_order):
        if one.architecture_id is None:
            continue
        if one.is_settled:
            inside |= {one.model_id} if one.is_in and one.model_id not in unsound else set()
            continue
        fault = UNSOUND if one.model_id in unsound else _fault(members, one, datasets)
        fault = fault or _duplicate(members, one, inside)
        if fault is None:
            inside.add(one.model_id)
        event: Event = "admitted" if fault is None else "refused"
        if one.row["event"] != event:
            reason = fault or "no rule speaks against it"
            decided.append(
                Decision(model_id=one.model_id, model=one.reference, event=event, reason=reason)
            )
    return decided, inside


def _order(one: Member) -> tuple[float, int]:
    """Order the better ones first; NaN has no order of its own."""
    return (math.inf if math.isnan(one.quality) else -one.quality, one.model_id)


def _fault(members: Members, one: Member, datasets: Mapping[int, Row]) -> str | None:
    if one.group is None or one.metric is None or one.value is None:
        return None
    others = [other.value for other in members.groups[one.group] if other.value is not None]
    dataset = datasets[one.row["dataset_id"]]
    return metric_fault(one.metric, one.value, others, dataset, maximize=one.maximize)


def _duplicate(members: Members, one: Member, inside: set[int]) -> str | None:
    """Return which better model, or older one that is as good, is nearly the same."""
    near = [
        (-similarity, model_id)
        for model_id, similarity in members.neighbours(one).items()
        if model_id in inside
        and similarity >= DUPLICATE_SIMILARITY
        and one.is_near(members.by_id[model_id])
    ]
    if not near:
        return None
    similarity, model_id = min(near)
    other = members.by_id[model_id]
    return (
        f"nearly the same as {other.reference}: similarity {-similarity:.2f}, "
        f"{one.metric} {one.value:.4g} and {other.value:.4g}"
    )


# -- who goes ---------------------------------------------------------------------


def _evictions(
    connection: Connection, members: Members, inside: set[int], budget_bytes: int
) -> list[Decision]:
    sizes: dict[int, int] = {}
    tensors: dict[int, set[int]] = {}
    for row in connection.rows(_Q.read_holdings):
        sizes[row["tensor_id"]] = row["stored_bytes"]
        tensors.setdefault(row["model_id"], set()).add(row["tensor_id"])
    if sum(sizes.values()) <= budget_bytes:
        return []
    pinned = {row["model_id"]: row["why"] for row in connection.rows(_Q.find_pinned)}
    others = owners_of_others(connection, "model", (one.model_id for one in members.all))
    pinned |= {model_id: f"it is {owner}'s" for model_id, owner in others.items()}
    ages = _ages(connection, members.all)
    stored = [
        Stored(
            model_id=one.model_id,
            ages=ages[one.model_id],
            tensors=frozenset(tensors.get(one.model_id, ())),
            substitutes=_substitutes(members, one, inside),
            in_zoo=one.model_id in inside,
            pinned=pinned.get(one.model_id),
        )
        for one in members.all
    ]
    plan = plan_eviction(stored, sizes, budget_bytes)
    hits = {model_id: len(found) - 1 for model_id, found in ages.items()}
    return [_evicted(members, gone, hits[gone.model_id]) for gone in plan.evicted]


def _evicted(members: Members, gone: Evicted, hits: int) -> Decision:
    reason = f"worth {gone.worth:.3g} with {hits} hits, for {gone.freed_bytes} bytes"
    if gone.substitute is not None:
        other = members.by_id[gone.substitute]
        reason += f"; {other.reference} stands in for it"
    return Decision(
        model_id=gone.model_id,
        model=members.by_id[gone.model_id].reference,
        event="evicted",
        reason=reason,
        bytes=gone.freed_bytes,
    )


def _ages(connection: Connection, models: Sequence[Member]) -> dict[int, list[int]]:
    """Return how many models were saved after each one, and after each of its hits."""
    saved = sorted(one.row["created"] for one in models)
    ages = {one.model_id: [len(saved) - bisect_right(saved, one.row["created"])] for one in models}
    for row in connection.rows(_Q.find_hits):
        if row["model_id"] in ages:
            ages[row["model_id"]].append(len(saved) - bisect_right(saved, row["happened"]))
    return ages


def _substitutes(members: Members, one: Member, inside: set[int]) -> dict[int, float]:
    """Return the models of the zoo that are as good as one, or nearly, and alike."""
    return {
        model_id: similarity
        for model_id, similarity in members.neighbours(one).items()
        if model_id in inside
        and (members.by_id[model_id].quality >= one.quality or one.is_near(members.by_id[model_id]))
    }
