"""Applies the rules to the whole zoo: who is in it, and who goes where it takes too many bytes."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mmdb.arguments import check_flag, is_whole, unfit
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import owners_of_others
from mmdb.db.queries import load
from mmdb.errors import ModelInUse, ModelNotFound
from mmdb.store.models.architectures import read_outlines
from mmdb.store.models.registry import drop_model
from mmdb.store.parents.choosing import index_of
from mmdb.store.parents.judging import UNSOUND, Event, add_event, metric_fault, unsound_of
from mmdb.store.parents.rules import (
    DUPLICATE_SIMILARITY,
    Evicted,
    StoredParent,
    are_near,
    is_maximized,
    plan_eviction,
)

_Q = load("zoo")
#: Architectures that each one is compared with: those most similar to it.
_NEIGHBOURS = 4

Group = tuple[int, str]  # dataset_id and metric


@dataclass(frozen=True, kw_only=True)
class ZooMember:
    """A model that is not dropped.

    Attributes:
        row: of `list_models`.
        metric, value: of its run, else its accuracy; None where it has neither.
    """

    row: Row
    metric: str | None
    value: float | None
    maximize: bool

    @property
    def model_id(self) -> int:
        return int(self.row["model_id"])

    @property
    def reference(self) -> str:
        """The model as `name@version`."""
        return f"{self.row['name']}@{self.row['version']}"

    @property
    def architecture_id(self) -> int | None:
        """None where it is not known: nobody finds such a model."""
        found: int | None = self.row["architecture_id"]
        return found

    @property
    def is_in(self) -> bool:
        """Whether it is in the zoo, as things are."""
        return self.architecture_id is not None and self.row["event"] in (None, "admitted")

    @property
    def is_settled(self) -> bool:
        """Whether somebody has said what becomes of it."""
        return self.row["event"] is not None and not self.row["by_rule"]

    @property
    def group(self) -> Group | None:
        """With which models it can be compared."""
        if self.row["dataset_id"] is None or self.metric is None or self.value is None:
            return None
        return self.row["dataset_id"], self.metric

    @property
    def quality(self) -> float:
        """More is better; what is not known is the worst."""
        if self.value is None:
            return -float("inf")
        return self.value if self.maximize else -self.value

    def is_near(self, other: ZooMember) -> bool:
        """Whether the metric of both is nearly the same."""
        return (
            self.value is not None and other.value is not None and are_near(self.value, other.value)
        )


class ZooMembers:
    """The models that are not dropped, by number."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        rows = connection.rows(_Q.list_models)
        metrics = _metrics(connection, [row["model_id"] for row in rows])
        self.all = [_member(row, metrics.get(row["model_id"], {})) for row in rows]
        self.by_id = {one.model_id: one for one in self.all}
        self._neighbours: dict[tuple[Group, int], dict[int, float]] = {}

    @cached_property
    def groups(self) -> Mapping[Group, Sequence[ZooMember]]:
        """Models that can be compared with each other."""
        found: dict[Group, list[ZooMember]] = {}
        for one in self.all:
            if one.group is not None:
                found.setdefault(one.group, []).append(one)
        return found

    def neighbours(self, one: ZooMember) -> Mapping[int, float]:
        """Return the most similar models of a model's group, itself left out, with similarities."""
        if one.group is None or one.architecture_id is None:
            return {}
        alike = self._alike(one.group, one.architecture_id)
        return {
            other.model_id: alike[other.architecture_id]
            for other in self.groups[one.group]
            if other is not one
            and other.architecture_id is not None
            and other.architecture_id in alike
        }

    def _alike(self, group: Group, architecture_id: int) -> Mapping[int, float]:
        """Return the most similar architectures of a group, the given one among them."""
        key = group, architecture_id
        if key not in self._neighbours:
            known = {one.architecture_id for one in self.groups[group]} - {None}
            among = sorted(one for one in known if one is not None)
            index = index_of(self._connection)
            index.read(self._connection, among)
            found = read_outlines(self._connection, [architecture_id]).values()
            self._neighbours[key] = {
                other: match.score
                for packed in found
                for other, match in index.search(
                    packed, among, 1 + _NEIGHBOURS, same=architecture_id
                )
            }
        return self._neighbours[key]


def _metrics(connection: Connection, model_ids: Iterable[int]) -> dict[int, dict[str, float]]:
    """Return what each model was measured to be on its own dataset."""
    found: dict[int, dict[str, float]] = {}
    for row in connection.rows(_Q.find_metrics, model_ids=list(model_ids)):
        if row["dataset"] == "":
            found.setdefault(row["model_id"], {})[row["metric"]] = row["value"]
    return found


def _member(row: Row, metrics: Mapping[str, float]) -> ZooMember:
    metric = row["metric"] or "accuracy"
    if metric not in metrics:
        return ZooMember(row=row, metric=None, value=None, maximize=True)
    maximize = is_maximized(metric) if row["maximize"] is None else bool(row["maximize"])
    return ZooMember(row=row, metric=metric, value=metrics[metric], maximize=maximize)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooDecision:
    """What becomes of a model; of one that is evicted with the bytes that `gc` can then free."""

    model_id: int
    model: str
    event: Event
    reason: str
    bytes: int | None = None


def manage_zoo(
    connection: Connection, *, budget_bytes: int | None = None, dry_run: bool = True
) -> list[ZooDecision]:
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
    members = ZooMembers(connection)
    decided, inside = _admissions(connection, members)
    if budget_bytes is not None:
        decided += _evictions(connection, members, inside, budget_bytes)
    return decided if dry_run else [one for one in decided if _carry_out(connection, one)]


def _check(budget_bytes: Any, dry_run: object) -> None:
    if budget_bytes is not None and not is_whole(budget_bytes, 0):
        raise unfit(
            "budget_bytes", budget_bytes, "It is a whole number from 0, or NULL to drop nobody."
        )
    check_flag(dry_run, "dry_run")  # NULL would drop models that nobody meant to drop


def _carry_out(connection: Connection, decision: ZooDecision) -> bool:
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


def _admissions(connection: Connection, members: ZooMembers) -> tuple[list[ZooDecision], set[int]]:
    """Return what changes, the better models first, and who is in the zoo then."""
    ids = sorted({dataset_id for dataset_id, _ in members.groups})
    datasets = {row["dataset_id"]: row for row in connection.rows(_Q.find_goal, dataset_ids=ids)}
    unsound = unsound_of(connection, list(members.by_id))
    inside: set[int] = set()
    decided: list[ZooDecision] = []
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
                ZooDecision(model_id=one.model_id, model=one.reference, event=event, reason=reason)
            )
    return decided, inside


def _order(one: ZooMember) -> tuple[float, int]:
    """Order the better ones first; NaN has no order of its own."""
    return (math.inf if math.isnan(one.quality) else -one.quality, one.model_id)


def _fault(members: ZooMembers, one: ZooMember, datasets: Mapping[int, Row]) -> str | None:
    if one.group is None or one.metric is None or one.value is None:
        return None
    others = [other.value for other in members.groups[one.group] if other.value is not None]
    dataset = datasets[one.row["dataset_id"]]
    return metric_fault(one.metric, one.value, others, dataset, maximize=one.maximize)


def _duplicate(members: ZooMembers, one: ZooMember, inside: set[int]) -> str | None:
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
    connection: Connection, members: ZooMembers, inside: set[int], budget_bytes: int
) -> list[ZooDecision]:
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
        StoredParent(
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


def _evicted(members: ZooMembers, gone: Evicted, hits: int) -> ZooDecision:
    reason = f"worth {gone.worth:.3g} with {hits} hits, for {gone.freed_bytes} bytes"
    if gone.substitute is not None:
        other = members.by_id[gone.substitute]
        reason += f"; {other.reference} stands in for it"
    return ZooDecision(
        model_id=gone.model_id,
        model=members.by_id[gone.model_id].reference,
        event="evicted",
        reason=reason,
        bytes=gone.freed_bytes,
    )


def _ages(connection: Connection, models: Sequence[ZooMember]) -> dict[int, list[int]]:
    """Return how many models were saved after each one, and after each of its hits."""
    saved = sorted(one.row["created"] for one in models)
    ages = {one.model_id: [len(saved) - bisect_right(saved, one.row["created"])] for one in models}
    for row in connection.rows(_Q.find_hits):
        if row["model_id"] in ages:
            ages[row["model_id"]].append(len(saved) - bisect_right(saved, row["happened"]))
    return ages


def _substitutes(members: ZooMembers, one: ZooMember, inside: set[int]) -> dict[int, float]:
    """Return the models of the zoo that are as good as one, or nearly, and alike."""
    return {
        model_id: similarity
        for model_id, similarity in members.neighbours(one).items()
        if model_id in inside
        and (members.by_id[model_id].quality >= one.quality or one.is_near(members.by_id[model_id]))
    }
