"""What a probe wrote down: its text form, and one list in the order in which causes come first."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch

from mmdb.errors import InvalidInput

#: Version of the text form; another one is refused.
FORMAT = 1

#: Name of a tensor within a value -> hash of the tensor in hex. The name of a tensor that is the
#: whole value is ""; inside tuples and mappings it is its place, such as "1" or "0.hidden".
Hashes = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDigest:
    """A tensor without its elements.

    The statistics are over the elements that are not NaN, in float64; over real and imaginary
    parts for complex numbers. They are None where there is nothing to take them over.
    """

    dtype: str
    shape: tuple[int, ...]
    min: float | None
    max: float | None
    mean: float | None
    l2: float | None
    nan_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRecord:
    """One call of one layer.

    `started` to `backward_finished` are ticks: one counter, in the order in which things happened
    in the pass. The backward ones are None where no gradient came by.
    """

    path: str  # "" is the module itself
    kind: str  # class
    call: int  # 0 for the layer's first call in the pass
    started: int
    finished: int
    backward_started: int | None
    backward_finished: int | None
    inputs: Hashes
    outputs: Hashes
    grad_outputs: Hashes  # gradient of the loss with respect to each output
    grad_inputs: Hashes  # what this call adds to the gradient of each input


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePass:
    """One forward pass, and in training what followed it."""

    records: tuple[ProbeRecord, ...]  # in the order in which the calls ended
    loss: str | None
    gradients: Hashes  # by the parameter's path
    parameters_after: Hashes  # empty where no optimizer stepped
    buffers_after: Hashes  # empty after an inference that changed none


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSummary:
    """What one probe saw. `digests` describes each hash that the other fields name."""

    mode: str
    seed: int
    environment: str
    layers: tuple[str, ...] | None
    modules: tuple[tuple[str, str], ...]  # path and class of every module
    inputs: Hashes
    targets: Hashes
    parameters: Hashes  # before the first pass
    buffers: Hashes
    passes: tuple[ProbePass, ...]
    digests: Mapping[str, TensorDigest]
    dropped: int = 0  # tensors that were to be kept but did not fit in max_bytes
    #: The tensors themselves by hash, on the CPU, where they were kept. Not part of the text.
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict, compare=False, repr=False)

    def to_json(self) -> str:
        """Return the summary as JSON without line breaks; equal summaries give equal text."""
        raw = {name: getattr(self, name) for name in self.__slots__ if name != "tensors"}
        raw["passes"] = [asdict(one) for one in self.passes]
        raw["digests"] = {name: _plain(digest) for name, digest in self.digests.items()}
        return json.dumps(
            {"format": FORMAT} | raw, sort_keys=True, separators=(",", ":"), allow_nan=False
        )

    @classmethod
    def from_json(cls, text: str | bytes | Mapping[str, Any]) -> ProbeSummary:
        """Read what `to_json` wrote, as text or as a database's decoded jsonb.

        Raises:
            InvalidInput: it is no summary, or one of another version.
        """
        try:
            raw = dict(json.loads(text)) if isinstance(text, str | bytes) else dict(text)
            version = raw.pop("format")
            if version != FORMAT:
                raise InvalidInput(
                    f"The probe summary has format {version}; this mmdb reads {FORMAT}.",
                    hint="Probe again with the same mmdb on both sides.",
                )
            return cls(**(raw | _rebuilt(raw)))._checked()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInput(
                f"This is not a probe summary: {type(error).__name__}: {error}",
                hint="Pass the text that ProbeSummary.to_json returned.",
            ) from error

    def _checked(self) -> ProbeSummary:
        """Return the summary if what it refers to is there."""
        named = [self.inputs, self.targets, self.parameters, self.buffers]
        for one in self.passes:
            named += [one.gradients, one.parameters_after, one.buffers_after]
            named += [{"": one.loss}] if one.loss else []
            for r in one.records:
                named += [r.inputs, r.outputs, r.grad_outputs, r.grad_inputs]
            if not any(record.path == "" for record in one.records):
                raise ValueError("a pass without a record of the module itself")
        for hashes in named:
            for name in hashes.values():
                if name not in self.digests:
                    raise KeyError(name)
        return self


def _rebuilt(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for which JSON has no type of its own."""
    return {
        "layers": None if raw["layers"] is None else tuple(raw["layers"]),
        "modules": tuple((path, kind) for path, kind in raw["modules"]),
        "passes": tuple(
            ProbePass(**one | {"records": tuple(ProbeRecord(**r) for r in one["records"])})
            for one in raw["passes"]
        ),
        "digests": {name: _digest(found) for name, found in raw["digests"].items()},
    }


def _plain(digest: TensorDigest) -> dict[str, Any]:
    """Return a digest with infinite statistics as text: JSON has no such numbers."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(digest).items()
    }


def _digest(raw: Mapping[str, Any]) -> TensorDigest:
    statistics = {
        name: None if raw[name] is None else float(raw[name])
        for name in ("min", "max", "mean", "l2")
    }
    return TensorDigest(**(dict(raw) | statistics | {"shape": tuple(raw["shape"])}))


#: What can be observed -> its name for people; in the order of a layer's own events.
LABELS: dict[str, str] = {
    "parameter": "parameter",
    "buffer": "buffer",
    "input": "input",
    "output": "output",
    "loss": "loss",
    "grad_output": "gradient of output",
    "grad_parameter": "gradient of parameter",
    "grad_input": "gradient of input",
    "parameter_after": "stepped parameter",
    "buffer_after": "updated buffer",
}
_RANK = {what: rank for rank, what in enumerate(LABELS)}
_END = 1 << 62  # tick after all others of a pass


class Row(NamedTuple):
    """A call of a layer in a pass."""

    number: int
    path: str
    call: int


class Key(NamedTuple):
    """What an observation is of: the same in each probe of the same module."""

    number: int  # of the pass, from 1
    path: str
    call: int
    what: str
    name: str


class Observation(NamedTuple):
    """One tensor at one place."""

    tick: int
    key: Key
    row: Row  # call to which it belongs
    hash: str

    def order(self) -> tuple[object, ...]:
        """What observations are sorted by; a name that is a number by its size."""
        key = self.key
        return (key.number, self.tick, _RANK[key.what], len(key.name), key.name)


def observations(summary: ProbeSummary) -> dict[Key, Observation]:
    """Return all that was observed, in order."""
    found = [
        each
        for number, one in enumerate(summary.passes, start=1)
        for each in _of_pass(summary, number, one)
    ]
    return {each.key: each for each in sorted(found, key=Observation.order)}


def _of_pass(summary: ProbeSummary, number: int, one: ProbePass) -> Iterator[Observation]:
    calls: dict[str, list[ProbeRecord]] = {}
    for record in one.records:
        calls.setdefault(record.path, []).append(record)
        yield from _of_call(number, record)
    if one.loss is not None:
        end = calls[""][-1].finished
        yield Observation(end, Key(number, "", 0, "loss", ""), Row(number, "", 0), one.loss)
    if number == 1:  # a later pass begins with what the one before left
        yield from _of_state(number, calls, "parameter", summary.parameters, _first_tick)
        yield from _of_state(number, calls, "buffer", summary.buffers, _first_tick)
    yield from _of_state(number, calls, "grad_parameter", one.gradients, _gradient_tick)
    yield from _of_state(number, calls, "parameter_after", one.parameters_after, _last_tick)
    yield from _of_state(number, calls, "buffer_after", one.buffers_after, _last_tick)


def _of_call(number: int, record: ProbeRecord) -> Iterator[Observation]:
    row = Row(number, record.path, record.call)
    for what, tick, hashes in (
        ("input", record.started, record.inputs),
        ("output", record.finished, record.outputs),
        ("grad_output", record.backward_started, record.grad_outputs),
        ("grad_input", record.backward_finished, record.grad_inputs),
    ):
        for name, found in hashes.items():
            key = Key(number, record.path, record.call, what, name)
            yield Observation(_END if tick is None else tick, key, row, found)


def _of_state(
    number: int,
    calls: Mapping[str, list[ProbeRecord]],
    what: str,
    hashes: Mapping[str, str],
    tick: Callable[[list[ProbeRecord]], int],
) -> Iterator[Observation]:
    """Yield parameters or buffers, each at the time at which its layer uses it.

    A layer that was not written down, or not called, leaves its own to the layer around it.
    """
    for path, found in hashes.items():
        owner, _, name = path.rpartition(".")
        user = owner
        while user not in calls:
            user = user.rpartition(".")[0]
        used = calls[user]
        row = Row(number, user, used[0].call)
        yield Observation(tick(used), Key(number, owner, 0, what, name), row, found)


def _first_tick(calls: list[ProbeRecord]) -> int:
    return min(call.started for call in calls)


def _gradient_tick(calls: list[ProbeRecord]) -> int:
    """A gradient is whole after the last backward pass through its layer has begun.

    That of a layer with others inside is whole at the end, as far as one can tell.
    """
    if any(call.finished - call.started > 1 for call in calls):
        return _END
    ticks = [call.backward_started for call in calls if call.backward_started is not None]
    return max(ticks, default=_END)


def _last_tick(calls: list[ProbeRecord]) -> int:
    """What comes after a pass is in the order in which the layers began, after all else."""
    return _END + 1 + _first_tick(calls)
