"""Two probes, side by side: which layer is the first that differs, what else does, by how much."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from mmdb.probe.magnitude import Magnitude, magnitude
from mmdb.probe.observations import LABELS, Key, Observation, Row, observations
from mmdb.probe.summary import ProbeSummary, TensorDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One tensor that is not the same in both probes."""

    number: int  # of the pass, from 1
    path: str  # layer; "" is the module itself
    kind: str  # class of the layer
    call: int  # 0 for the layer's first call in the pass
    what: str  # a key of LABELS
    name: str  # parameter, buffer, or place in a nested value; "" if it is the value itself
    a: TensorDigest | None  # None: it is in the other probe alone
    b: TensorDigest | None
    magnitude: Magnitude | None  # None where the shapes differ or one side is missing

    @property
    def layer(self) -> str:
        """The layer's name for people: path, and which call if not the first."""
        return (self.path or "(model)") + (f" call {self.call + 1}" if self.call else "")

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
class LayerComparison:
    """One call of one layer in both probes."""

    number: int  # of the pass, from 1
    path: str
    kind: str
    call: int
    compared: tuple[str, ...]  # keys of LABELS
    differences: tuple[Difference, ...]

    @property
    def layer(self) -> str:
        """The layer's name for people."""
        return (self.path or "(model)") + (f" call {self.call + 1}" if self.call else "")


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
    hashes = {key: (_hash(found.get(key)), _hash(other.get(key))) for key in keys}
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


def _hash(found: Observation | None) -> str | None:
    return found.hash if found else None


def _difference(
    key: Key,
    probes: tuple[ProbeSummary, ProbeSummary],
    hashes: tuple[str | None, str | None],
    kind: str,
) -> Difference:
    (a, b), (left, right) = probes, hashes
    return Difference(
        number=key.number,
        path=key.path,
        kind=kind,
        call=key.call,
        what=key.what,
        name=key.name,
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
            number=row.number,
            path=row.path,
            kind=kinds.get(row.path, "?"),
            call=row.call,
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
            return f"{path or '(model)'} is {_or_nothing(kinds[0])} and {_or_nothing(kinds[1])}"
    for kind in ("parameters", "buffers"):
        left, right = _forms(a, getattr(a, kind)), _forms(b, getattr(b, kind))
        for path in dict.fromkeys((*left, *right)):
            if left.get(path) != right.get(path):
                return f"{path} is {_or_nothing(left.get(path))} and {_or_nothing(right.get(path))}"
    return ""


def _forms(summary: ProbeSummary, state: Mapping[str, str]) -> dict[str, str]:
    return {path: _form(summary.digests[name]) for path, name in state.items()}


def _or_nothing(found: str | None) -> str:
    return found or "nothing"
