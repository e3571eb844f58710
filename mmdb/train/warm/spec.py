"""What it takes to make a child's tensors from a parent's, as plain values that travel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.spec.factory_call import Dtypes, Shape
from mmdb.store.models import Definition
from mmdb.train.spec import CandidateSpec, shape_of_json
from mmdb.train.warm.mapping import RowMap

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
    definition: Definition | None
    factories: Mapping[str, str]
    examples: tuple[Example, ...] = ()
    rows: RowMap = field(default_factory=RowMap)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmSpec:
    """A candidate that is to begin with a parent's tensors.

    Attributes:
        example: of the candidate's dataset.
        shrink: see `WarmOptions`.
    """

    candidate: CandidateSpec
    example: Example
    parent: ParentForm
    shrink: float | None = None

    def to_json(self) -> str:
        """Return the spec as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WarmSpec:
        """Return the spec that `to_json` wrote."""
        raw = json.loads(text)
        parent = raw["parent"]
        definition = parent["definition"]
        if definition is not None:
            shape = shape_of_json(definition["input_shape"])
            definition = Definition(**(definition | {"input_shape": shape}))
        made = {
            "definition": definition,
            "examples": tuple(_example(one) for one in parent["examples"]),
            "rows": RowMap.from_json(parent["rows"]),
        }
        return cls(
            candidate=CandidateSpec.from_json(raw["candidate"]),
            example=_example(raw["example"]),
            parent=ParentForm(**(parent | made)),
            shrink=raw["shrink"],
        )


def _example(raw: Mapping[str, Any]) -> Example:
    return Example(shape=shape_of_json(raw["shape"]), dtypes=raw["dtypes"])


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
    """

    refused: str | None = None
    is_final: bool = False
    similarity: float = 0.0
    coverage: float = 0.0
    exact: bool = False
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    origins: tuple[TensorOrigin, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the result as what JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> WarmResult:
        """Return the result that `to_json` wrote, read back from JSON."""
        origins = tuple(TensorOrigin(**one) for one in raw["origins"])
        texts = {name: tuple(raw[name]) for name in ("reasons", "notes")}
        return cls(**(dict(raw) | texts | {"origins": origins}))
