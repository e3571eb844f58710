"""A probe as one list of what was observed, in the order in which causes precede effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from mmdb.probe.summary import ProbePass, ProbeRecord, ProbeSummary

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
