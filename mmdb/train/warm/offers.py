"""Offers of parents to a candidate: from the run, from the zoo, and whether they can be used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mmdb.db.connection import Connection
from mmdb.db.owners import readable
from mmdb.errors import (
    ArchitectureError,
    BlockCorrupt,
    DefinitionMissing,
    InvalidOption,
    ModelNotFound,
    ReplayMismatch,
    StateCorrupt,
    StateNotFound,
    StoreError,
)
from mmdb.graph.trace.structure import NetworkGraph
from mmdb.messages import show
from mmdb.store.models.model_rows import find_model
from mmdb.store.parents import ParentChoice, ParentGoal, ParentMatch, choose_parent
from mmdb.store.parents.choice import bucket_of
from mmdb.train.warm.warm_options import AUTO, WarmOptions


def check_module(module: object) -> None:
    """Check that a module has the shapes by which others are compared with it.

    Raises:
        InvalidOption: it is no module.
        ArchitectureError: it is lazy.
    """
    if not isinstance(module, nn.Module):
        raise InvalidOption(f"The module is {show(module)}.", hint="Pass a torch.nn.Module.")
    for path, tensor in _tensors(module):
        if is_lazy(tensor):
            raise ArchitectureError(
                f"{path} has no shape yet.", hint="Call the module with a batch once before."
            )


def check_fillable(module: object) -> None:
    """Check that a module can be followed, and that tensors can be copied into all of it.

    Raises:
        InvalidOption, ArchitectureError
    """
    check_module(module)
    assert isinstance(module, nn.Module)
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            what = f"module {path!r}" if path else "the module"
            raise ArchitectureError(
                f"The forward of {what} is compiled to TorchScript, and cannot be followed.",
                hint="Pass the module that it was made from, and compile that afterwards.",
            )
    for path, tensor in _tensors(module):
        if tensor.is_meta:
            raise ArchitectureError(
                f"{path} is on the meta device and has no memory.",
                hint='Call module.to_empty(device="cpu"), and initialize it.',
            )
        if tensor.layout == torch.strided and _repeats(tensor):
            raise ArchitectureError(
                f"Elements of {path} share their memory, so that it cannot be written.",
                hint="Give it memory of its own, such as nn.Parameter(weight.clone()).",
            )


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def _repeats(tensor: Tensor) -> bool:
    return any(
        size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


#: Parents that are tried; where so many could not be used, the next ones could not either.
MOST_TRIES = 5
#: What keeps one parent from being used, and not the next one.
OF_THE_PARENT = (
    ArchitectureError,
    BlockCorrupt,
    ModelNotFound,
    ReplayMismatch,
    StateCorrupt,
    StateNotFound,
    StoreError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOffer:
    """A model of the zoo, or one that was asked for by name."""

    chosen: ParentMatch
    reason: str
    is_asked_for: bool = False

    @property
    def name(self) -> str:
        """The model as `name@version`."""
        return self.chosen.model

    @property
    def similarity(self) -> float:
        """Of the architectures; 0 where that of the model is not known."""
        return self.chosen.similarity


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateOffer:
    """A candidate of the same run that rests or has ended, in the state of its best epoch."""

    candidate_id: int
    part_id: int
    state: bytes  # hash
    value: float | None  # of the run's metric
    similarity: float
    reason: str
    is_asked_for: bool = False

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"candidate {self.candidate_id}"


Offer = ModelOffer | CandidateOffer


class Offers:
    """Finds parents for one child, each time the best of those that are left.

    Attributes:
        match_s: seconds that it has taken so far.
    """

    def __init__(
        self,
        connection: Connection,
        child: NetworkGraph,
        goal: ParentGoal,
        options: WarmOptions,
        *,
        parent: str = AUTO,
        dataset: str | None = None,
        within: Callable[[], list[CandidateOffer]] = list,
    ) -> None:
        """Offer parents to a child.

        Args:
            parent: "auto", or a model as `name@version`, which alone is offered.
            dataset: the goal's.
            within: finds the candidates that compete with the zoo; called once.
        """
        self._connection, self._child = connection, child
        self._goal, self._options = goal, options
        self._parent, self._dataset, self._find_within = parent, dataset, within
        self._within: list[CandidateOffer] | None = None
        self._excluded: set[int] = set()  # models
        self._passed_over: list[str] = []  # and why
        self._why_none = ""
        self._has_ended = False
        self.match_s = 0.0

    @property
    def reason(self) -> str:
        """Why parents were passed over, and why there is none, if there is none."""
        return "; ".join(filter(None, (*self._passed_over, self._why_none)))

    def best(self) -> Offer | None:
        """Return the best parent that is left, or None."""
        if self._has_ended:
            return None
        started = perf_counter()
        try:
            if self._parent != AUTO:
                return self._named(self._parent)
            return self._better(self._of_zoo(), self._of_run())
        finally:
            self.match_s += perf_counter() - started

    def pass_over(self, offer: Offer, reason: str, *, is_final: bool = False) -> None:
        """Leave a parent out from now on; one that was asked for has no substitute.

        Args:
            is_final: no other parent would do either.
        """
        self._passed_over.append(reason if offer.name in reason else f"{offer.name}: {reason}")
        self._has_ended = is_final or offer.is_asked_for
        if isinstance(offer, CandidateOffer):
            self._within = [one for one in self._within or () if one != offer]
        else:
            self._excluded.add(offer.chosen.model_id)

    def too_little(self, offer: Offer, coverage: float, reasons: Sequence[str]) -> str | None:
        """Return why what could be carried over does not suffice, or None if it does."""
        least = self._options.limits.coverage
        if offer.is_asked_for or coverage >= least:
            return None
        because = f": {reasons[0]}" if reasons else ""
        return (
            f"{coverage:.2f} of the parameters could be carried over, at least {least:g} are "
            f"wanted{because}"
        )

    # -- models --------------------------------------------------------------------

    def _named(self, reference: str) -> ModelOffer | None:
        try:
            choice = self._choose(parent=reference)
        except ModelNotFound:
            self._why_none = f"{reference} has been dropped since it was asked for"
            return None
        except DefinitionMissing:  # its tensors may still be the child's by path and shape
            return _unknown(self._connection, reference)
        return self._offer(choice, is_asked_for=True)

    def _of_zoo(self) -> ModelOffer | None:
        return self._offer(self._choose(), is_asked_for=False)

    def _choose(self, parent: str | None = None) -> ParentChoice:
        try:
            return choose_parent(
                self._connection,
                self._child,
                self._goal,
                parent=parent,
                k=1,
                limits=self._options.limits,
                excluded=tuple(self._excluded),
            )
        except ArchitectureError as error:  # of the child: it is too large
            return ParentChoice(parent=None, reason=error.message, candidates=(), match_s=0.0)

    def _offer(self, choice: ParentChoice, *, is_asked_for: bool) -> ModelOffer | None:
        if choice.parent is None:
            self._why_none = choice.reason
            return None
        return ModelOffer(chosen=choice.parent, reason=choice.reason, is_asked_for=is_asked_for)

    # -- candidates of the run -----------------------------------------------------

    def _of_run(self) -> CandidateOffer | None:
        if self._within is None:
            try:
                self._within = self._find_within()
            except ArchitectureError:  # the child is too large: the zoo's answer says so
                self._within = []
        return max(self._within, key=self._rank, default=None)

    def _better(self, of_zoo: ModelOffer | None, of_run: CandidateOffer | None) -> Offer | None:
        """Return the better one; a candidate has the goal's dataset and metric."""
        if of_run is None or of_zoo is None:
            return of_run or of_zoo
        chosen = of_zoo.chosen
        is_same = chosen.metric == self._goal.metric and chosen.dataset == self._dataset
        if not is_same:
            return of_run
        rank = self._rank_of(chosen.similarity, chosen.accuracy)
        return of_run if self._rank(of_run) > rank else of_zoo

    def _rank(self, offer: CandidateOffer) -> tuple[int, float]:
        return self._rank_of(offer.similarity, offer.value)

    def _rank_of(self, similarity: float, value: float | None) -> tuple[int, float]:
        return rank_of(similarity, value, maximize=bool(self._goal.maximize))


def rank_of(similarity: float, value: float | None, *, maximize: bool) -> tuple[int, float]:
    """Return the bucket of a similarity, and what decides within it: more is better.

    >>> rank_of(1.0, 0.9, maximize=False) > rank_of(1.0, float("nan"), maximize=False)
    True
    """
    if value is None or math.isnan(value):
        return bucket_of(similarity), -math.inf
    return bucket_of(similarity), value if maximize else -value


def _unknown(connection: Connection, reference: str) -> ModelOffer:
    """Return a model of which nothing but its tensors is known."""
    found = find_model(connection, reference)
    if not readable(connection, [found.model_id]):  # a worker sees more than the run's owner
        raise ModelNotFound(f"There is no model {show(reference)}.")
    reason = "asked for; its architecture is not known"
    chosen = ParentMatch(
        model_id=found.model_id,
        model=found.reference,
        similarity=0.0,
        coverage=0.0,
        accuracy=None,
        metric=None,
        dataset=None,
        is_fit=True,
        reason=reason,
    )
    return ModelOffer(chosen=chosen, reason=reason, is_asked_for=True)
