"""Two probes, side by side: which layer is the first that differs, what else does, by how much."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import torch

from mmdb.argument_types import names_wrong_types
from mmdb.probe.observations import LABELS, Key, ProbeSummary, Row, TensorDigest, observations

#: Relative error of a sum of squares in float64, generously.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Magnitude:
    """The difference of two tensors of one shape.

    `max_abs` is the largest absolute difference of two elements. Where not both tensors were kept
    it is a lower bound out of their statistics, and what follows it is None.
    """

    max_abs: float
    exact: bool
    elements: int
    changed: int | None = None  # elements whose bits differ
    first_index: tuple[int, ...] | None = None  # of the first such element, row-major
    nan_counts: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        one, other = self.nan_counts
        nans = "" if one == other else f"; NaNs: {one} and {other}"
        if not self.exact:
            amount = f"at least {self.max_abs:.3g}" if self.max_abs else "an unknown amount"
            return f"by {amount}{nans}"
        noun = "element" if self.elements == 1 else "elements"
        verb = "differs" if self.changed == 1 else "differ"
        count = f"{self.changed:,} of {self.elements:,} {noun} {verb}"
        where = f", first at {list(self.first_index)}" if self.first_index else ""
        return f"{count}, by at most {self.max_abs:.3g}{where}{nans}"


def magnitude(a: ProbeSummary, left: str, b: ProbeSummary, right: str) -> Magnitude | None:
    """Return how far tensor `left` of a probe is from tensor `right` of another.

    Returns:
        None if their shapes or dtypes differ.
    """
    one, other = a.digests[left], b.digests[right]
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return None
    kept = a.tensors.get(left), b.tensors.get(right)
    if kept[0] is not None and kept[1] is not None:
        return _measured(kept[0], kept[1], (one.nan_count, other.nan_count))
    return Magnitude(
        max_abs=_least(one, other),
        exact=False,
        elements=math.prod(one.shape),
        nan_counts=(one.nan_count, other.nan_count),
    )


def _least(a: TensorDigest, b: TensorDigest) -> float:
    """Return a lower bound of the largest absolute difference of two tensors' elements.

    No statistic used here moves by more than that: extremes and mean by at most max|a - b|, the
    l2 norm (reverse triangle inequality) by at most max|a - b| * sqrt(n).
    """
    if a.nan_count or b.nan_count:
        return 0.0  # the statistics leave out elements, maybe not the same
    root = math.sqrt(math.prod(a.shape)) or 1.0
    slack = _ROUNDING * max(a.l2 or 0.0, b.l2 or 0.0) / root
    bounds = (
        _apart(a.min, b.min),
        _apart(a.max, b.max),
        _apart(a.mean, b.mean) - slack,
        _apart(a.l2, b.l2) / root - slack,
    )
    return max((bound for bound in bounds if bound > 0), default=0.0)  # leaves out NaN: inf - inf


def _apart(x: float | None, y: float | None) -> float:
    return 0.0 if x is None or y is None else abs(x - y)


def _measured(a: torch.Tensor, b: torch.Tensor, nan_counts: tuple[int, int]) -> Magnitude:
    unlike = _words(a) != _words(b)
    changed = np.flatnonzero(unlike.any(axis=1))
    first = np.unravel_index(int(changed[0]), a.shape) if len(changed) else ()
    return Magnitude(
        max_abs=_max_abs(a, b),
        exact=True,
        elements=a.numel(),
        changed=len(changed),
        first_index=tuple(int(place) for place in first) or None,
        nan_counts=nan_counts,
    )


def _words(tensor: torch.Tensor) -> np.ndarray:
    """Return the bytes of each element, (elements, bytes): -0.0 is not 0.0, NaN may be NaN."""
    flat = tensor.contiguous().reshape(-1)
    words: np.ndarray = flat.view(torch.uint8).numpy().reshape(tensor.numel(), -1)
    return words


def _max_abs(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest absolute difference of elements that are numbers in both."""
    wide = torch.complex128 if a.is_complex() else torch.float64
    try:
        apart = (a.to(wide) - b.to(wide)).abs()
    except (NotImplementedError, RuntimeError):  # bits that torch cannot turn into numbers
        return 0.0
    apart = apart[~apart.isnan()]
    return float(apart.max()) if apart.numel() else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _LayerCall:
    """One call of one layer."""

    number: int  # of the pass, from 1
    path: str  # layer; "" is the module itself
    kind: str  # class of the layer
    call: int  # 0 for the layer's first call in the pass

    @property
    def layer(self) -> str:
        """The layer's name for people: path, and which call if not the first."""
        return (self.path or "(model)") + (f" call {self.call + 1}" if self.call else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(_LayerCall):
    """One tensor that is not the same in both probes."""

    what: str  # a key of LABELS
    name: str  # parameter, buffer, or place in a nested value; "" if it is the value itself
    a: TensorDigest | None  # None: it is in the other probe alone
    b: TensorDigest | None
    magnitude: Magnitude | None  # None where the shapes differ or one side is missing

    def __str__(self) -> str:
        what = " ".join(filter(None, (LABELS[self.what], self.name)))
        turn = f", pass {self.number}" if self.number > 1 else ""
        return f"{what} of {self.layer} ({self.kind}{turn}): {self._size()}"

    def _size(self) -> str:
        if self.magnitude:
            return str(self.magnitude)
        if self.a is None or self.b is None:
            return f"only in the {'second' if self.a is None else 'first'} probe"
        return f"{_form(self.a)} and {_form(self.b)}"


def _form(digest: TensorDigest) -> str:
    return f"{digest.dtype} {list(digest.shape)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerComparison(_LayerCall):
    """One call of one layer in both probes."""

    compared: tuple[str, ...]  # keys of LABELS
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two probes have in common, and what not.

    `verdict` is "equal" if every tensor of one probe is in the other, bit for bit; "different" if
    not; "not comparable" if not, and the probes did not do the same: `reasons` say why.
    """

    verdict: Literal["equal", "different", "not comparable"]
    reasons: tuple[str, ...]  # architecture, inputs, targets, seed, mode, passes or layers differ
    environments: tuple[str, str]
    compared: int  # tensors
    differences: tuple[Difference, ...]  # in the order in which they arose
    layers: tuple[LayerComparison, ...]  # in the order in which they began

    @property
    def equal(self) -> bool:
        """Whether every tensor is the same bit for bit."""
        return not self.differences

    @property
    def first(self) -> Difference | None:
        """The first difference: the cause of the others, if they have one."""
        return self.differences[0] if self.differences else None

    def __str__(self) -> str:
        head = f"{self.verdict}: {len(self.differences)} of {self.compared} tensors differ"
        first = [f"first: {self.first}"] if self.first else []
        return "\n".join([head, *self.reasons, *first])

    def to_json(self) -> str:
        """Return the comparison as JSON, without the layers that are equal."""
        raw = {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "environments": self.environments,
            "compared": self.compared,
            "layers": len(self.layers),
            "differences": [asdict(each) | {"text": str(each)} for each in self.differences],
        }
        return json.dumps(_finite(raw), separators=(",", ":"), allow_nan=False)


def _finite(value: object) -> object:
    """Return a value with infinite numbers and NaNs as text: JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    return value


@names_wrong_types
def compare(a: ProbeSummary, b: ProbeSummary) -> Comparison:
    """Return where two probes differ, in the order in which the differences arose.

    Tensors are matched by pass, layer, call and name. In the forward pass a layer's parameters
    come before its inputs, those before its outputs; in the backward pass its output's gradient
    comes before its parameters', and that before its inputs'. A probe that did something else
    (another seed, say) is matched as far as it goes.
    """
    found, other = observations(a), observations(b)
    keys = [*found, *(key for key in other if key not in found)]
    rows = {key: (found.get(key) or other[key]).row for key in keys}
    kinds = dict(b.modules) | dict(a.modules)
    one, two = ({key: each.hash for key, each in some.items()} for some in (found, other))
    hashes = {key: (one.get(key), two.get(key)) for key in keys}
    differences = tuple(
        _difference(key, (a, b), pair, kinds.get(key.path, "?"))
        for key, pair in hashes.items()
        if pair[0] != pair[1]
    )
    reasons = tuple(_reasons(a, b))
    different: Literal["different", "not comparable"] = "not comparable" if reasons else "different"
    return Comparison(
        verdict=different if differences else "equal",
        reasons=reasons,
        environments=(a.environment, b.environment),
        compared=len(keys),
        differences=differences,
        layers=_layers(rows, differences, kinds),
    )


def _difference(
    key: Key,
    probes: tuple[ProbeSummary, ProbeSummary],
    hashes: tuple[str | None, str | None],
    kind: str,
) -> Difference:
    (a, b), (left, right) = probes, hashes
    return Difference(
        **key._asdict(),
        kind=kind,
        a=a.digests[left] if left else None,
        b=b.digests[right] if right else None,
        magnitude=magnitude(a, left, b, right) if left and right else None,
    )


def _layers(
    rows: Mapping[Key, Row], differences: Sequence[Difference], kinds: Mapping[str, str]
) -> tuple[LayerComparison, ...]:
    compared: dict[Row, dict[str, None]] = {}
    for key, row in rows.items():
        compared.setdefault(row, {})[key.what] = None
    found: dict[Row, list[Difference]] = {}
    for each in differences:
        key = Key(each.number, each.path, each.call, each.what, each.name)
        found.setdefault(rows[key], []).append(each)
    return tuple(
        LayerComparison(
            **row._asdict(),
            kind=kinds.get(row.path, "?"),
            compared=tuple(whats),
            differences=tuple(found.get(row, ())),
        )
        for row, whats in compared.items()
    )


# -- whether the probes did the same ------------------------------------------


def _reasons(a: ProbeSummary, b: ProbeSummary) -> Iterator[str]:
    for name in ("mode", "seed", "layers"):
        left, right = getattr(a, name), getattr(b, name)
        if left != right:
            yield f"{name}: {left!r} and {right!r}"
    if len(a.passes) != len(b.passes):
        yield f"passes: {len(a.passes)} and {len(b.passes)}"
    if architecture := _architecture(a, b):
        yield f"architecture: {architecture}"
    for name in ("inputs", "targets"):
        left, right = getattr(a, name), getattr(b, name)
        if left != right:
            yield f"{name}: they are not the same tensors"


def _architecture(a: ProbeSummary, b: ProbeSummary) -> str:
    """Return the first thing in which two architectures differ, or nothing."""
    modules, others = dict(a.modules), dict(b.modules)
    for path in dict.fromkeys((*modules, *others)):
        kinds = modules.get(path), others.get(path)
        if kinds[0] != kinds[1]:
            first, second = (kind or "nothing" for kind in kinds)
            return f"{path or '(model)'} is {first} and {second}"
    for kind in ("parameters", "buffers"):
        left, right = _forms(a, getattr(a, kind)), _forms(b, getattr(b, kind))
        for path in dict.fromkeys((*left, *right)):
            if left.get(path) != right.get(path):
                return f"{path} is {left.get(path, 'nothing')} and {right.get(path, 'nothing')}"
    return ""


def _forms(summary: ProbeSummary, state: Mapping[str, str]) -> dict[str, str]:
    return {path: _form(summary.digests[name]) for path, name in state.items()}
