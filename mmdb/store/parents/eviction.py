"""Which models to drop so that the rest fits into a number of bytes. Pure.

A model is worth DECAY to the power of the models that were saved since it, and as much for each
time that it was taken as a parent; times 1 - the similarity of the best other model that could
stand in for it. The models worth least per byte go first; the bytes of a tensor are shared by the
models that need it, and nobody's where one of them must stay. What a model frees are the tensors
that no other one needs any more.

The decay by later models is ModelKeeper's (SymbioticLab/ModelKeeper, modelkeeper/matcher.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: What each later model leaves of a model's worth.
DECAY = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
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
class Plan:
    """What goes, in order, and the bytes that are left."""

    evicted: tuple[Evicted, ...]
    bytes: int


def plan_eviction(models: Sequence[Stored], sizes: Mapping[int, int], budget_bytes: int) -> Plan:
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
    return Plan(evicted=tuple(gone), bytes=stock.bytes)


class _Stock:
    def __init__(self, models: Sequence[Stored], sizes: Mapping[int, int]) -> None:
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
    def left(self) -> Sequence[Stored]:
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
