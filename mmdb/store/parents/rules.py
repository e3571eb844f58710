"""Which models are no parents, and which ones to drop where bytes are short: rules alone. Pure.

A model is worth DECAY to the power of the models that were saved since it, and as much for each
time that it was taken as a parent; times 1 - the similarity of the best other model that could
stand in for it. The models worth least per byte go first; the bytes of a tensor are shared by the
models that need it, and nobody's where one of them must stay. What a model frees are the tensors
that no other one needs any more.

The decay by later models is ModelKeeper's (SymbioticLab/ModelKeeper, modelkeeper/matcher.py).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

#: Robust deviations from the median from which on a value is an outlier, among so many or more.
#: Source: Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993), section 3.
OUTLIER, FEWEST_VALUES = 3.5, 5
#: An outlier is also off by this share of the median: where values are nearly equal, none is.
LEAST_GAP = 0.05
#: Standard errors by which a model has to be above chance.
ABOVE_CHANCE = 3.0
#: Values that differ by no more than this share are as good as equal.
NEARLY = 0.01
#: Two architectures that are this similar are as good as one.
DUPLICATE_SIMILARITY = 0.98

#: Metrics of which less is better, by the last part of their names; of all others more is.
_MINIMIZED = frozenset(
    {"loss", "log_loss", "rmse", "mse", "mae", "mape", "hamming", "error", "perplexity"}
)


def is_maximized(metric: str) -> bool:
    """Return whether more of a metric is better, by its name.

    >>> is_maximized("accuracy"), is_maximized("digit.log_loss")
    (True, False)
    """
    return metric.rpartition(".")[2] not in _MINIMIZED


def outlier_limit(values: Sequence[float], *, maximize: bool) -> float | None:
    """Return the value beyond which a model is too bad to be one of these; None for too few values.

    The modified z-score is 0.6745 (x - median) / MAD; where half of the values are equal, and MAD
    is 0, it is (x - median) / (1.2533 times the mean absolute deviation).
    """
    found = np.sort([value for value in values if math.isfinite(value)])  # sums depend on the order
    if len(found) < FEWEST_VALUES:
        return None
    median = float(np.median(found))
    apart = np.abs(found - median)
    scale = float(np.median(apart)) / 0.6745 or 1.2533 * float(apart.mean())
    gap = max(OUTLIER * scale, LEAST_GAP * abs(median))
    return median - gap if maximize else median + gap


def is_worse(value: float, limit: float, *, maximize: bool) -> bool:
    """Return whether a value is worse than a limit; NaN always is."""
    return not (value >= limit if maximize else value <= limit)


def chance_limit(
    metric: str, class_counts: Sequence[int] | None, validation_rows: int | None
) -> float | None:
    """Return the value that a model which has learned nothing does not exceed; None if not known.

    Accuracy: the share of the most frequent class, and three standard errors of a share measured on
    the validation rows. r2 of a constant is 0.

    Args:
        class_counts: train rows of each class.
    """
    name = metric.rpartition(".")[2]
    if name == "r2":
        return 0.0
    if name not in ("accuracy", "balanced_accuracy") or not class_counts or not sum(class_counts):
        return None
    share = max(class_counts) / sum(class_counts) if name == "accuracy" else 1 / len(class_counts)
    error = math.sqrt(share * (1 - share) / validation_rows) if validation_rows else 0.0
    return min(share + ABOVE_CHANCE * error, (1 + share) / 2)


def are_near(a: float, b: float) -> bool:
    """Return whether two values of one metric are as good as equal."""
    return abs(a - b) <= NEARLY * max(abs(a), abs(b))


def counts_of(
    metric: str, label: str, class_counts: Mapping[str, Sequence[int]] | None
) -> Sequence[int] | None:
    """Return the train rows of each class of the label that a metric is of.

    Args:
        label: the dataset's first one, for a metric without a label in its name.
    """
    owner, _, _ = metric.rpartition(".")
    return (class_counts or {}).get(owner or label)


#: What each later model leaves of a model's worth.
DECAY = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredParent:
    """A model.

    Attributes:
        ages: models saved since it, and since each time that it was taken as a parent.
        tensors: that it needs.
        substitutes: models that are as good, with their similarities.
        in_zoo: whether it is offered as a parent; else it is worth nothing.
        pinned: why it must stay, if it must.
    """

    model_id: int
    ages: Sequence[int]
    tensors: frozenset[int]
    substitutes: Mapping[int, float]
    in_zoo: bool = True
    pinned: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """A model that goes."""

    model_id: int
    freed_bytes: int
    worth: float
    substitute: int | None  # the model that is left in its place


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPlan:
    """What goes, in order, and the bytes that are left."""

    evicted: tuple[Evicted, ...]
    bytes: int


def plan_eviction(
    models: Sequence[StoredParent], sizes: Mapping[int, int], budget_bytes: int
) -> EvictionPlan:
    """Return which models go.

    Args:
        sizes: stored bytes of tensors.
    Returns:
        A plan whose bytes are above the budget only where no more models may go.
    """
    stock = _Stock(models, sizes)
    evicted: list[Evicted] = []
    while stock.bytes > budget_bytes and (model_id := stock.worst()) is not None:
        evicted.append(stock.evict(model_id))
    # One that shared its tensors with others went in vain if they are still there.
    needed = frozenset(tensor for one in stock.left for tensor in one.tensors)
    whole = {model.model_id: model.tensors for model in models}
    gone = [one for one in evicted if not whole[one.model_id] <= needed]
    return EvictionPlan(evicted=tuple(gone), bytes=stock.bytes)


class _Stock:
    def __init__(self, models: Sequence[StoredParent], sizes: Mapping[int, int]) -> None:
        self._models = {model.model_id: model for model in models}
        self._sizes = sizes
        self._holders: dict[int, set[int]] = {}
        self._kept = {t for model in models if model.pinned is not None for t in model.tensors}
        self._leaning: dict[int, list[int]] = {}  # by substitute
        for model in models:
            for tensor in model.tensors:
                self._holders.setdefault(tensor, set()).add(model.model_id)
            for other in model.substitutes:
                self._leaning.setdefault(other, []).append(model.model_id)
        self.bytes = sum(sizes[tensor] for tensor in self._holders)
        self._current: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        for model in models:
            self._push(model.model_id)

    @property
    def left(self) -> Sequence[StoredParent]:
        """The models that have not gone."""
        return list(self._models.values())

    def worst(self) -> int | None:
        """Return the model that is worth least per byte, if one may go and has any."""
        while self._heap:
            density, model_id = heapq.heappop(self._heap)
            if self._current.get(model_id) == density:
                return model_id
        return None

    def evict(self, model_id: int) -> Evicted:
        """Take a model away."""
        worth, substitute = self._worth(model_id)
        gone = Evicted(
            model_id=model_id,
            freed_bytes=self._freed(model_id),
            worth=worth,
            substitute=substitute,
        )
        model = self._models.pop(model_id)
        del self._current[model_id]
        self.bytes -= gone.freed_bytes
        touched = set(self._leaning.get(model_id, ()))
        for tensor in model.tensors:
            holders = self._holders[tensor]
            holders.discard(model_id)
            if len(holders) == 1:  # whoever is left has it alone
                touched |= holders
        for other in touched & self._models.keys():
            self._push(other)
        return gone

    def _push(self, model_id: int) -> None:
        share = self._share(model_id)
        if self._models[model_id].pinned is not None or not share:
            return
        density = self._worth(model_id)[0] / share
        self._current[model_id] = density
        heapq.heappush(self._heap, (density, model_id))

    def _share(self, model_id: int) -> float:
        return sum(
            self._sizes[tensor] / len(self._holders[tensor])
            for tensor in self._models[model_id].tensors
            if tensor not in self._kept
        )

    def _freed(self, model_id: int) -> int:
        return sum(
            self._sizes[tensor]
            for tensor in self._models[model_id].tensors
            if len(self._holders[tensor]) == 1
        )

    def _worth(self, model_id: int) -> tuple[float, int | None]:
        model = self._models[model_id]
        if not model.in_zoo:
            return 0.0, None
        left = {k: v for k, v in model.substitutes.items() if k in self._models}
        substitute = min(left, key=lambda other: (-left[other], other), default=None)
        alike = 0.0 if substitute is None else left[substitute]
        return sum(DECAY**age for age in model.ages) * (1.0 - alike), substitute
