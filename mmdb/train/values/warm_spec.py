"""What a worker needs to make a child's tensors from a parent's: values that travel.

A `RowMap` says where what the child reads and predicts is in what its parent reads and predicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from mmdb.data.decoding import Decoding, Input, Label
from mmdb.data.matching import MISSING, Slot, class_places, input_places, slots_of
from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.spec.factory_call import Dtypes, Shape
from mmdb.messages import show
from mmdb.store.models.model_rows import ModelDefinition
from mmdb.train.values.spec import CandidateSpec, Payload, Stopped

_MOST_NAMED = 3  # columns, categories or classes in one note


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Places of a child's numbers among its parent's.

    Attributes:
        places: of each of the child's; MISSING where the parent has none.
        width: how many the parent has.
    """

    places: tuple[int, ...]
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMap:
    """What a child reads and predicts, among what its parent does.

    Attributes:
        inputs: the numbers of a row, by the input's name; those that are the same are left out.
        outputs: the numbers of an output, by the target's place; likewise.
        doubts: why the child cannot be said to read what the parent does.
        class_doubts: why it cannot be said to predict what the parent does.
        notes: what else differs.
        is_known: whether it is known what the parent reads and predicts.
    """

    inputs: Mapping[str, Moved] = field(default_factory=dict)
    outputs: Mapping[int, Moved] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    class_doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_known: bool = True

    @property
    def is_same(self) -> bool:
        """Whether every number is in its place."""
        return not self.inputs and not self.outputs


def row_map(child: Decoding | None, parent: Decoding | None) -> RowMap:
    """Return the map between two datasets' rows.

    Args:
        child, parent: None where what a model reads is not known.
    """
    if child is None:
        return RowMap()
    if parent is None:
        return _by_position(child)
    found = _Mapping(child, parent)
    return RowMap(
        inputs=found.inputs,
        outputs=found.outputs,
        doubts=tuple(found.doubts),
        class_doubts=tuple(found.class_doubts),
        notes=tuple(found.notes),
    )


def _by_position(child: Decoding) -> RowMap:
    """Return the map of a parent of which it is not known what it reads and predicts."""
    doubts = []
    if any(len(given.columns) > 1 for given in child.inputs):
        doubts.append("the parent's columns are not known, and are matched by position")
    if any(given.tokenizer is not None for given in child.inputs):
        doubts.append("the parent's tokenizer is not known")
    class_doubts = ["the parent's classes are not known, and are matched by position"]
    has_classes = any(label.classes is not None for label in child.labels)
    return RowMap(
        doubts=tuple(doubts),
        class_doubts=tuple(class_doubts) if has_classes else (),
        is_known=False,
    )


class _Mapping:
    """The map while it is made."""

    def __init__(self, child: Decoding, parent: Decoding) -> None:
        self.child, self.parent = child, parent
        self.inputs: dict[str, Moved] = {}
        self.outputs: dict[int, Moved] = {}
        self.doubts: list[str] = []
        self.class_doubts: list[str] = []
        self.notes: list[str] = []
        others = {given.name: given for given in parent.inputs}
        if [given.name for given in child.inputs] != list(others):
            self.doubts.append("the parent's inputs have other names")
        for given in child.inputs:
            if given.name in others:
                self._match_input(given, others[given.name])
        self._compare_transforms()
        if len(child.labels) != len(parent.labels):
            self.class_doubts.append(f"the parent predicts {len(parent.labels)} columns")
            return
        for place, pair in enumerate(zip(child.labels, parent.labels, strict=True)):
            self._match_label(place, *pair)

    # -- inputs --------------------------------------------------------------------

    def _match_input(self, one: Input, other: Input) -> None:
        if one.tokenizer != other.tokenizer:
            self.doubts.append(f"the tokenizer of {_joined(one.columns)} is another one")
            return
        if one.tokenizer is not None or self._is_alike(one, other):
            return
        own, its = slots_of(self.child, one), slots_of(self.parent, other)
        if own == its and one.shape == other.shape:
            return
        if len(one.shape) != 1 or len(other.shape) != 1:
            self.doubts.append(f"{_joined(one.columns)} is of another shape than the parent's")
            return
        places = input_places(self.child, one, self.parent, other)
        kinds = {column.name: column.kind for column, _ in self.parent.spans(other)}
        kept = {c.name for c, _ in self.child.spans(one) if kinds.get(c.name) == c.kind}
        places = np.where([name in kept for name, _ in own], places, MISSING)
        self.inputs[one.name] = Moved(places=tuple(places.tolist()), width=len(its))
        self._compare_slots(own, its, places, kept)

    def _is_alike(self, one: Input, other: Input) -> bool:
        """Whether both are one whole array, whatever its name: a picture, a vector."""
        columns = [
            next(c for c in decoding.columns if c.name == given.columns[0])
            for decoding, given in ((self.child, one), (self.parent, other))
            if len(given.columns) == 1
        ]
        if len(columns) < 2 or one.shape != other.shape or columns[0].kind != columns[1].kind:
            return False
        return columns[0].transform is None and columns[1].transform is None

    def _compare_slots(
        self, own: list[Slot], its: list[Slot], places: np.ndarray, kept: set[str]
    ) -> None:
        """Say what differs.

        Args:
            kept: columns that both have.
        """
        new = [slot for slot, place in zip(own, places, strict=True) if place == MISSING]
        gone = [its[place] for place in np.setdiff1d(np.arange(len(its)), places).tolist()]
        columns = [name for name in _names(new) if name not in kept]
        self._note("column", "new", columns)
        self._note("value", "new", [_value(slot) for slot in new if slot[0] in kept])
        others = [name for name in _names(gone) if name not in kept]
        if len(new) == len(own):
            self.doubts.append("nothing that it reads is the parent's")
        elif others:
            self.doubts.append(f"the parent also reads {_joined(others)}")
        lost = [slot for slot in gone if slot[0] in kept]
        if any(isinstance(value, int) for _, value in lost):
            self.doubts.append(f"{_joined(_names(lost))} has fewer elements")
        self._note("value", "no longer there", [_value(slot) for slot in lost])
        if not new and not gone:
            self.notes.append("columns or values are in another order")

    def _compare_transforms(self) -> None:
        """Doubt columns whose values become other numbers or codes than the parent's.

        A 0/1 number has its own slot. Layers for numbers of another scale may still be of use, even
        frozen; codes are looked up by their place, so that other categories make them others.
        """
        theirs = {column.name: column.transform for column in self.parent.features}
        for column in self.child.features:
            own, its = column.transform, theirs.get(column.name, column.transform)
            if own == its or (own and its and own.kind == its.kind == "one_hot"):
                continue
            if own is None or its is None or own.kind != its.kind:
                self.doubts.append(f"{column.name} is transformed otherwise than the parent's")
            elif own.codes is None:
                self.class_doubts.append(f"{column.name} has other statistics than the parent's")
            elif (own.categories, own.parameters) != (its.categories, its.parameters):
                self.doubts.append(f"the categories of {column.name} have other codes")

    # -- outputs -------------------------------------------------------------------

    def _match_label(self, place: int, one: Label, other: Label) -> None:
        if one.task != other.task:
            self.class_doubts.append(f"the parent's task is {other.task}")
            return
        if one.classes is None or other.classes is None:
            return
        places = class_places(one.classes, other.classes)
        if places.tolist() == list(range(len(other.classes))):
            return
        self.outputs[place] = Moved(places=tuple(places.tolist()), width=len(other.classes))
        pairs = zip(one.classes, places.tolist(), strict=True)
        new = [show(value) for value, found in pairs if found == MISSING]
        back = zip(other.classes, class_places(other.classes, one.classes).tolist(), strict=True)
        gone = [show(value) for value, found in back if found == MISSING]
        self._note("class", "new", new)
        self._note("class", "no longer there", gone)
        if new or gone:
            self.class_doubts.append("its classes are not the parent's")
        else:
            self.notes.append("classes are in another order")

    def _note(self, what: str, how: str, names: Sequence[str]) -> None:
        if names:
            plural = {"class": "classes"}.get(what, f"{what}s")
            verb = "is" if len(names) == 1 else "are"
            kind = what if len(names) == 1 else plural
            self.notes.append(f"{kind} {_joined(names)} {verb} {how}")


def _names(slots: Sequence[Slot]) -> list[str]:
    return list(dict.fromkeys(name for name, _ in slots))


def _value(slot: Slot) -> str:
    name, value = slot
    return f"{'NULL' if value is None else show(value)} of {name}"


def _joined(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


#: Of what decides the bits of a transfer beside its arguments: changed when operators change.
OPERATORS_VERSION = 2

_BATCH = 2  # above 1, so that a batch is told from a size that broadcasts


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What a forward may be recorded with: the shape of one row, and the dtype."""

    shape: Shape
    dtypes: Dtypes = "float32"

    def inputs(self) -> Inputs:
        """Return a batch of zeros; several inputs are passed by their names."""
        if not isinstance(self.shape, dict):
            assert isinstance(self.dtypes, str)
            return Inputs((self._zeros(self.shape, self.dtypes),))
        kinds = self.dtypes
        every = dict.fromkeys(self.shape, kinds) if isinstance(kinds, str) else kinds
        return Inputs(kwargs={n: self._zeros(one, every[n]) for n, one in self.shape.items()})

    @staticmethod
    def _zeros(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        return torch.zeros(_BATCH, *shape, dtype=getattr(torch, dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentForm:
    """How a parent's forward can be had.

    Attributes:
        reference: for messages.
        definition: None where it is not known.
        factories: registered ones: name -> target.
        examples: to be tried in this order; after them what the module itself tells.
        rows: what the child reads and predicts, among what the parent does.
    """

    reference: str
    definition: ModelDefinition | None
    factories: Mapping[str, str]
    examples: tuple[Example, ...] = ()
    rows: RowMap = field(default_factory=RowMap)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorOrigin:
    """Where a tensor of a child comes from; see `mmdb.graph.transfer.Origin`.

    Attributes:
        reason: what else is worth knowing of it.
    """

    path: str
    parent: str | None
    operator: str
    fraction: float
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmResult:
    """What became of a `WarmSpec`.

    Attributes:
        refused: why nothing could be carried over; None if something was.
        is_final: whether that is the child's doing, so that no other parent would do.
        similarity: of the two forwards, 0 to 1.
        coverage: share of the child's parameters that come from the parent.
        exact: whether the child computes what the parent does.
        reasons: why not, and what else is worth knowing.
        notes: how the rows of the two differ.
        resumes: whether the parent's optimizer goes on.
    """

    refused: str | None = None
    is_final: bool = False
    similarity: float = 0.0
    coverage: float = 0.0
    exact: bool = False
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    origins: tuple[TensorOrigin, ...] = field(default=())
    resumes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmSpec:
    """A candidate that is to begin with a parent's tensors: a job.

    Attributes:
        example: of the candidate's dataset.
        shrink: see `WarmOptions`.
        base: hash of the parent's weights in hex, where states may leave out what stays as it has
            it; None: they are whole.
    """

    result: ClassVar[Any] = WarmResult

    candidate: CandidateSpec
    example: Example
    parent: ParentForm
    shrink: float | None = None
    base: str | None = None

    def run(self, worker: Any, payload: Payload, stopped: Stopped) -> tuple[WarmResult, bytes]:
        """Make the state that the candidate begins with.

        Args:
            payload: the parent's tensors, and a state whose optimizer is to go on, if any.
        """
        result, state = worker.warm_start(self, *payload)
        return result, state


class Unfit(Exception):
    """Nothing can be carried over; where it is final, from no other parent either."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A child's tensors; see `WarmResult`."""

    tensors: Mapping[str, Tensor]
    origins: tuple[TensorOrigin, ...]
    similarity: float
    coverage: float
    exact: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
