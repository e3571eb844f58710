"""All models of a store as the rules see them: metric, group, neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.store.parents.admission import are_near, is_maximized
from mmdb.store.parents.index import index_of
from mmdb.store.parents.outlines import read_outlines

_Q = load("zoo")
#: Architectures that each one is compared with: those most similar to it.
_NEIGHBOURS = 4

Group = tuple[int, str]  # dataset_id and metric


@dataclass(frozen=True, kw_only=True)
class Member:
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

    def is_near(self, other: Member) -> bool:
        """Whether the metric of both is nearly the same."""
        return (
            self.value is not None and other.value is not None and are_near(self.value, other.value)
        )


class Members:
    """The models that are not dropped, by number."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        rows = connection.rows(_Q.list_models)
        metrics = _metrics(connection, [row["model_id"] for row in rows])
        self.all = [_member(row, metrics.get(row["model_id"], {})) for row in rows]
        self.by_id = {one.model_id: one for one in self.all}
        self._neighbours: dict[tuple[Group, int], dict[int, float]] = {}

    @cached_property
    def groups(self) -> Mapping[Group, Sequence[Member]]:
        """Models that can be compared with each other."""
        found: dict[Group, list[Member]] = {}
        for one in self.all:
            if one.group is not None:
                found.setdefault(one.group, []).append(one)
        return found

    def neighbours(self, one: Member) -> Mapping[int, float]:
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


def _member(row: Row, metrics: Mapping[str, float]) -> Member:
    metric = row["metric"] or "accuracy"
    if metric not in metrics:
        return Member(row=row, metric=None, value=None, maximize=True)
    maximize = is_maximized(metric) if row["maximize"] is None else bool(row["maximize"])
    return Member(row=row, metric=metric, value=metrics[metric], maximize=maximize)
