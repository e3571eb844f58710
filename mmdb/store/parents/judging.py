"""Judges whether models could be parents, and records what becomes of them in the zoo."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mmdb.db.connection import Connection, Row
from mmdb.db.owners import require_owner
from mmdb.db.queries import load
from mmdb.errors import InvalidOption, ModelNotFound
from mmdb.messages import show
from mmdb.store.models.model_rows import find_model
from mmdb.store.parents.choice import Limits, ParentGoal, ParentMatch, bucket_of
from mmdb.store.parents.rules import (
    are_near,
    chance_limit,
    counts_of,
    is_maximized,
    is_worse,
    outlier_limit,
)

_Q = load("zoo")
Event = Literal["admitted", "refused", "evicted", "hit"]


def take(connection: Connection, chosen: ParentMatch) -> None:
    """See `mmdb.store.parents.take_parent`."""
    hold(connection, chosen.model_id, chosen.model)
    add_event(connection, chosen.model_id, "hit", chosen.reason, by_rule=True)


def hold(connection: Connection, model_id: int, reference: str) -> None:
    """Keep a model from being dropped until the end of the transaction; others may do so too.

    On DuckDB, nothing that others do is seen before the transaction ends.

    Raises:
        ModelNotFound: it is dropped already.
    """
    query = _Q.share_live if connection.engine == "postgres" else _Q.find_live
    if not connection.rows(query, model_id=model_id):
        raise ModelNotFound(
            f"Model {reference!r} has been dropped since it was found.", hint="Search again."
        )


def add_event(
    connection: Connection, model_id: int, event: Event, reason: str, *, by_rule: bool
) -> None:
    """Write down a decision."""
    connection.run(_Q.add_event, model_id=model_id, event=event, reason=reason, by_rule=by_rule)


def say(connection: Connection, model: str, event: Event, reason: str) -> str:
    """Admit a model to the zoo, or refuse it, whatever the rules say; return `name@version`.

    Raises:
        ModelNotFound
        InvalidOption: the reason is no text.
        RightsMissing: the model is another role's.
    """
    if not isinstance(reason, str) or not _is_storable(reason):
        raise InvalidOption(f"reason is {show(reason)}.", hint="Pass a text, or leave it out.")
    with connection.transaction():
        found = find_model(connection, model)
        require_owner(connection, "model", found.reference, found.model_id)
        hold(connection, found.model_id, found.reference)
        add_event(connection, found.model_id, event, reason, by_rule=False)
    return found.reference


def _is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return "\0" not in text


#: What is said of a model with parameters that are NaN or infinite.
UNSOUND = "its parameters are not all finite numbers"
#: Where a model stands in the order of search.
SAME_DATASET, SAME_TASK, OTHER, OUTSIDE = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A goal with what the database knows of its dataset."""

    goal: ParentGoal
    dataset: str | None = None
    content_hash: bytes | None = None

    def place_of(self, model: Row) -> int:
        """Return where a model stands; see the query `find_zoo`."""
        if model["event"] not in (None, "admitted"):
            return OUTSIDE
        content = model["content_hash"]
        is_same = content is not None and bytes(content) == self.content_hash
        if self.dataset is not None and (model["dataset"] == self.dataset or is_same):
            return SAME_DATASET
        return SAME_TASK if self.goal.task and model["task"] == self.goal.task else OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A model with how alike it is, before it is judged."""

    row: Row  # of find_models
    similarity: float
    coverage: float
    pairs: tuple[tuple[int, int], ...]

    @property
    def model_id(self) -> int:
        return int(self.row["model_id"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A model with what speaks for it, or against it."""

    looked: Looked
    place: int
    metric: str | None
    value: float | None
    maximize: bool
    fault: str | None  # None: it could be the parent
    weakness: str | None = None  # of one that was asked for: what its metric says against it

    @property
    def bucket(self) -> int:
        """Of similarity."""
        return bucket_of(self.looked.similarity)

    @property
    def quality(self) -> float:
        """The metric's value, more is better; what is not known is the worst, and NaN no better."""
        if self.value is None or math.isnan(self.value):
            return -float("inf")
        return self.value if self.maximize else -self.value


def aim_of(connection: Connection, goal: ParentGoal) -> Aim:
    """Return a goal with its dataset's name, content and, where none is given, task."""
    if goal.dataset_id is None:
        return Aim(goal=goal)
    rows = connection.rows(_Q.find_goal, dataset_ids=[goal.dataset_id])
    if not rows:
        return Aim(goal=goal)
    row = rows[0]
    whole = ParentGoal(
        task=goal.task or row["task"],
        dataset_id=goal.dataset_id,
        metric=goal.metric,
        maximize=goal.maximize,
    )
    return Aim(goal=whole, dataset=row["name"], content_hash=bytes(row["content_hash"]))


def judge(
    connection: Connection,
    aim: Aim,
    looked: Sequence[Looked],
    limits: Limits | None,
    excluded: Collection[int] = (),
) -> list[Judged]:
    """Return what speaks for or against each model.

    Args:
        limits: None for a model that was asked for by name: its metrics are no fault either.
    """
    ids = [one.model_id for one in looked]
    values = _values(connection, aim, ids)
    unsound = unsound_of(connection, ids)
    metrics = _Metrics(connection, looked, values)
    return [
        Judged(
            looked=one,
            place=aim.place_of(one.row),
            metric=values[one.model_id][0],
            value=values[one.model_id][1],
            maximize=_maximize(aim.goal, values[one.model_id][0]),
            fault=(
                UNSOUND
                if one.model_id in unsound
                else _named_fault(one)
                if limits is None
                else _fault(aim, one, limits, excluded) or metrics.fault(one, aim.goal)
            ),
            weakness=metrics.weakness(one, aim.goal) if limits is None else None,
        )
        for one in looked
    ]


def unsound_of(connection: Connection, model_ids: Sequence[int]) -> set[int]:
    """Return those of some models whose stored parameters are not all finite numbers."""
    rows = connection.rows(_Q.find_unsound, model_ids=list(model_ids))
    return {row["model_id"] for row in rows}


def _fault(aim: Aim, one: Looked, limits: Limits, excluded: Collection[int]) -> str | None:
    if one.model_id in excluded:
        return "it was left out by the caller"
    if aim.place_of(one.row) == OUTSIDE:
        return f"it is not in the zoo: {one.row['reason']}"
    if one.similarity < limits.similarity:
        return f"its similarity is below {limits.similarity:g}"
    if one.coverage < limits.coverage:
        return (
            f"it has values for {one.coverage:.2f} of the parameters, less than {limits.coverage:g}"
        )
    return None


def _named_fault(one: Looked) -> str | None:
    return None if one.coverage > 0 else "it has nothing in common with the architecture"


def _maximize(goal: ParentGoal, metric: str | None) -> bool:
    if goal.maximize is not None and metric == goal.metric:
        return goal.maximize
    return metric is None or is_maximized(metric)


def _values(
    connection: Connection, aim: Aim, model_ids: Sequence[int]
) -> dict[int, tuple[str | None, float | None]]:
    """Return metric and value of each model: the goal's metric, or the one that most of them have.

    A value that was measured on the goal's dataset comes before one of the model's own.
    """
    found: dict[int, dict[str, float]] = {model_id: {} for model_id in model_ids}
    for row in connection.rows(_Q.find_metrics, model_ids=list(model_ids)):
        known = found[row["model_id"]]
        if row["dataset"] == aim.dataset or (row["dataset"] == "" and row["metric"] not in known):
            known[row["metric"]] = row["value"]
    metric = aim.goal.metric or _common(found.values())
    return {
        model_id: (metric, known[metric]) if metric in known else (None, None)
        for model_id, known in found.items()
    }


def _common(found: Collection[Mapping[str, float]]) -> str | None:
    """Return the metric that most models have; of several accuracy, then the first by name."""
    counts = Counter(metric for known in found for metric in known)
    if not counts:
        return None
    return min(counts, key=lambda name: (-counts[name], name == "loss", name != "accuracy", name))


class _Metrics:
    """What other models of the same datasets say of a model's metric."""

    def __init__(
        self,
        connection: Connection,
        looked: Sequence[Looked],
        values: Mapping[int, tuple[str | None, float | None]],
    ) -> None:
        self._own = values
        ids = sorted({one.row["dataset_id"] for one in looked} - {None})
        metrics = {metric for metric, _ in values.values() if metric is not None}
        self._others: dict[int, list[float]] = {}
        self._datasets: dict[int, Row] = {}
        if ids and metrics:
            (metric,) = metrics
            for row in connection.rows(_Q.find_values, dataset_ids=ids, metric=metric):
                self._others.setdefault(row["dataset_id"], []).append(row["value"])
            rows = connection.rows(_Q.find_goal, dataset_ids=ids)
            self._datasets = {row["dataset_id"]: row for row in rows}

    def fault(self, one: Looked, goal: ParentGoal) -> str | None:
        """Return why the metric of a model speaks against it; not where somebody admitted it."""
        metric, value = self._own[one.model_id]
        dataset = self._datasets.get(one.row["dataset_id"])
        is_trusted = one.row["event"] == "admitted" and not one.row["by_rule"]
        if metric is None or value is None or dataset is None or is_trusted:
            return None
        maximize = _maximize(goal, metric)
        others = self._others.get(one.row["dataset_id"], [])
        return metric_fault(metric, value, others, dataset, maximize=maximize)

    def weakness(self, one: Looked, goal: ParentGoal) -> str | None:
        """Return what the metric of a model says against it: a fault, or a better model."""
        metric, value = self._own[one.model_id]
        others = self._others.get(one.row["dataset_id"])
        if metric is None or value is None or not others:
            return None
        maximize = _maximize(goal, metric)
        best = max(others) if maximize else min(others)
        if is_worse(value, best, maximize=maximize) and not are_near(value, best):
            return f"another model of its dataset has {metric} {best:.4g}"
        return self.fault(one, goal)


def metric_fault(
    metric: str, value: float, others: Sequence[float], dataset: Row, *, maximize: bool
) -> str | None:
    """Return why a model's metric makes it no parent.

    Args:
        others: the values of all models of its dataset.
        dataset: a row of `find_goal`.
    """
    if not math.isfinite(value):
        return f"its {metric} is {value:g}, which is no finite number"
    counts = None if dataset["class_counts"] is None else json.loads(dataset["class_counts"])
    own = counts_of(metric, dataset["label"], counts)
    chance = chance_limit(metric, own, dataset["validation_rows"])
    if maximize and chance is not None and not value > chance:
        return f"its {metric} of {value:.4g} is not above chance, {chance:.4g}"
    limit = outlier_limit(others, maximize=maximize)
    if limit is not None and is_worse(value, limit, maximize=maximize):
        return (
            f"its {metric} of {value:.4g} is an outlier among {len(others)} models of "
            f"{dataset['name']}: the limit is {limit:.4g}"
        )
    return None
