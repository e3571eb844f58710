"""The roofline: seconds of a step that was never run, at the speeds that a profile measured.

Each kernel takes max(FLOPs / rate, bytes / bandwidth), and a fixed time to be started (Williams et
al. 2009, "Roofline"; Qi et al. 2017, "Paleo", section 3, with a fixed time that theirs lacks).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mmdb.plan.profile.cases import at_place
from mmdb.plan.profile.fits import Point
from mmdb.plan.profile.machine_profile import MachineProfile
from mmdb.plan.step import CandidateCost, LayerCost
from mmdb.plan.step.counts import KINDS
from mmdb.plan.step.operation_seconds import GROUPS, MeasuredOperations, operations_of
from mmdb.plan.step.step_work import HEAP, Work

_Array = NDArray[np.float64]
#: Of what a module of one operation costs to be called, what a kernel alone does not show.
_CALLED = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRate:
    """peak x f / (f + half) x the same of each side: FLOPs a second of an operation of f FLOPs.

    Attributes:
        half: FLOPs of an operation that reaches half of the peak.
        half_sides: m, n and k of products that alone would halve the rate; 0: they do not matter.
    """

    peak: float
    half: float = 0.0
    half_sides: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def seconds(self, flops: _Array, sides: _Array) -> _Array:
        """Return what operations take.

        Args:
            sides: (3, operations); 0 for what is no product.
        """
        found = (flops + self.half) / self.peak
        for side, half in zip(sides, self.half_sides, strict=True):
            found = found * np.where(side > 0, 1 + half / np.maximum(side, 1), 1.0)
        return np.where(flops > 0, found, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """What a machine does in a second, in plain numbers.

    Attributes:
        rates: by kind of `Part`; of the backward under "<kind>_backward" if it differs. A kind
            without a rate costs its bytes.
        bandwidth: bytes a second, read or written.
        cache_bytes, cache_bandwidth: of an operation that moves no more than this.
        call_s, call_backward_s: of starting a kernel.
        update_call_s, update_bandwidth: of the optimizer's kernels.
        updates: what the bandwidth's seconds are multiplied by, over logarithms of all parameters'
            bytes.
        step_s: of a step, whatever the model.
        operations: measured ones, by which parts that are like them are known better.
        factors: of groups of them, by what whole steps were measured to take.
    """

    rates: Mapping[str, KernelRate]
    bandwidth: float
    cache_bytes: float = 0.0
    cache_bandwidth: float = 0.0
    call_s: float = 0.0
    call_backward_s: float = 0.0
    update_call_s: float = 0.0
    update_bandwidth: float = 0.0
    updates: tuple[tuple[float, float], ...] = ()
    step_s: float = 0.0
    operations: MeasuredOperations | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    assumed: frozenset[str] = field(default=frozenset())  # names of what was not measured

    def moving_s(self, amount: _Array) -> _Array:
        """Return what it takes to move amounts of bytes."""
        if not self.cache_bandwidth:
            return amount / self.bandwidth
        near = np.minimum(amount, self.cache_bytes)
        return near / self.cache_bandwidth + (amount - near) / self.bandwidth


def part_seconds(work: Work, speeds: Speeds, batch: float) -> _Array:
    """Return the seconds of each part of a step at a batch size."""
    found = _by_rates(work, speeds, batch)
    if speeds.operations is None:
        return found
    known = speeds.operations.seconds(work, batch)
    calling = known.calling * speeds.factors.get("call", 1.0)
    start = speeds.factors.get("start", 1.0)
    calling += _CALLED * work.calls.at(batch) * speeds.call_s * start
    for group, here in known.groups.items():
        found[here] = known.working[here] * speeds.factors.get(group, 1.0) + calling[here]
    found[np.isnan(known.working)] *= start
    return found


def _by_rates(work: Work, speeds: Speeds, batch: float) -> _Array:
    flops, sides = work.flops.at(batch), work.sides.at(batch)
    moving = speeds.moving_s(work.read.at(batch) + work.written.at(batch))
    computing = np.zeros_like(flops)
    for number in np.unique(work.kinds):
        kind = KINDS[number]
        for is_back in (False, True):
            rate = speeds.rates.get(f"{kind}_backward") if is_back else None
            rate = rate or speeds.rates.get(kind)
            here = (work.kinds == number) & (work.backward == is_back)
            if rate is not None and here.any():
                computing[here] = rate.seconds(flops[here], sides[:, here])
    starting = np.where(work.backward, speeds.call_backward_s, speeds.call_s)
    found: _Array = np.maximum(computing, moving) + work.calls.at(batch) * starting
    return found


def group_seconds(work: Work, speeds: Speeds, batch: float) -> dict[str, float]:
    """Return the seconds of a step by group of operations, where no factor corrects them yet."""
    assert speeds.operations is not None
    parts = part_seconds(work, speeds, batch)
    known = speeds.operations.seconds(work, batch)
    found = {name: float(known.working[here].sum()) for name, here in known.groups.items()}
    found["call"] = float(known.calling.sum())
    found |= {"start": float(parts.sum()) - sum(found.values()), "step": speeds.step_s}
    return found | {"update": update_seconds(work, speeds)}


def update_seconds(work: Work, speeds: Speeds) -> float:
    """Return the seconds of the optimizer's part of a step."""
    update = work.update
    moved = (update.read + update.written) / (speeds.update_bandwidth or speeds.bandwidth)
    if speeds.updates:  # more bytes fit less into the caches
        sizes, seconds = zip(*speeds.updates, strict=True)
        moved *= float(np.interp(math.log(max(1, work.gradient_bytes)), sizes, seconds))
    found = moved + update.calls * (speeds.update_call_s or speeds.call_s)
    return found * speeds.factors.get("update", 1.0)


def step_seconds(work: Work, speeds: Speeds, batch: float) -> float:
    """Return the seconds of a step at a batch size."""
    parts = float(part_seconds(work, speeds, batch).sum())
    fixed = speeds.step_s * speeds.factors.get("step", 1.0)
    return fixed + parts + update_seconds(work, speeds)


def line_through(batches: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Return a0 and a1 >= 0 of a0 + a1 x batch, with the least relative errors.

    >>> [round(one, 9) for one in line_through([1, 2, 4], [3.0, 5.0, 9.0])]
    [1.0, 2.0]
    """
    x, y = np.asarray(batches, dtype=float), np.asarray(seconds, dtype=float)
    weight = 1 / np.maximum(y, 1e-12)
    columns = np.stack([weight, weight * x], axis=1)
    (fixed, row), *_ = np.linalg.lstsq(columns, np.ones_like(y))
    if fixed < 0:
        fixed, row = 0.0, float((weight * x).sum() / ((weight * x) ** 2).sum())
    if row < 0:
        fixed, row = float(weight.sum() / (weight**2).sum()), 0.0
    return float(fixed), float(row)


def candidate_cost(
    work: Work,
    speeds: Speeds,
    batch_size: int,
    *,
    factor: float = 1.0,
    uncertainty: float = 0.0,
) -> CandidateCost:
    """Return the costs of a candidate that was never run.

    Args:
        factor: that a residual corrects the seconds by.
        uncertainty: relative standard deviation of the seconds.
    """
    batches = sorted({max(1, batch_size // 2), batch_size, 2 * batch_size})
    seconds = [factor * step_seconds(work, speeds, batch) for batch in batches]
    fixed, row = line_through(batches, seconds)
    forward = part_seconds(work, speeds, batch_size)[~work.backward].sum() / batch_size
    alive = work.alive.at(batch_size)
    peak = work.resident_bytes(batch_size)
    slope = HEAP * float(work.alive.row[int(alive.argmax())]) if len(alive) else 0.0
    return CandidateCost(
        step_s=fixed,
        row_s=row,
        batch_size=batch_size,
        validation_row_s=factor * float(forward),
        state_bytes=work.state_bytes,
        gradient_bytes=work.gradient_bytes,
        memory_bytes=max(0.0, peak - slope * batch_size),
        memory_row_bytes=slope,
        layers=layers(work, speeds, batch_size, factor=factor),
        uncertainty=uncertainty,
    )


def layers(
    work: Work, speeds: Speeds, batch_size: int, *, factor: float = 1.0
) -> tuple[LayerCost, ...]:
    """Return the layers with weights, each with the operations that follow it, in their order."""
    if not work.cuts:
        return ()
    seconds = np.where(work.backward, 0.0, part_seconds(work, speeds, batch_size))
    bounds = [*work.cuts[1:], len(work.crossing.row)]
    crossing = [*(float(work.crossing.row[at]) for at in work.cuts[1:]), 0.0]
    found = []
    begin = -1
    for end, bytes_out, weights in zip(bounds, crossing, work.cut_parameter_bytes, strict=True):
        here = (work.ordinals >= begin) & (work.ordinals < end)
        row_s = factor * float(seconds[here].sum()) / batch_size
        found.append(LayerCost(row_s, bytes_out, float(weights)))
        begin = end
    return tuple(found)


#: The profile's kind that each kind of operation is computed at, and kernels that it starts.
_RATES = {
    "matmul": ("product", 1),
    "matmul_backward": ("product_backward", 3),
    "attention": ("product", 1),
    "attention_backward": ("product_backward", 3),
    "recurrent": ("product_thin", 1),
    "recurrent_backward": ("product_thin_backward", 3),
    "convolution": ("convolution", 1),
    "convolution_backward": ("convolution_backward", 2),
    "pointwise": ("convolution", 1),
    "pointwise_backward": ("convolution_backward", 2),
    "depthwise": ("depthwise", 1),
    "depthwise_backward": ("depthwise_backward", 2),
}
_SMALL, _LARGE, _CACHE = 1e5, 1e7, 1e6
_ADAM_BYTES = 19  # moved for each byte of a parameter
_ADAM_CALLS = 9
#: Of a step, whatever the model: a calibration says how much more or less.
_STEP_S = 1e-4
#: Bytes of a parameter from which on its update takes longer than being called.
_UPDATED = 2**18


def speeds_of(profile: MachineProfile) -> Speeds:
    """Return what a profile says in the roofline's terms.

    Where single operations were not measured, exponentials, norms, pools and random numbers cost
    their bytes.
    """
    call, call_back = profile.unit_s("dispatch", 64), profile.unit_s("dispatch_backward", 64)
    rates = {}
    for kind, (name, calls) in _RATES.items():
        unit = profile.unit_s(name, 1e9)
        if unit <= 0:
            continue
        starting = calls * (call_back if kind.endswith("_backward") else call)
        fixed = max(0.0, profile.seconds(name, 1e6) - 1e6 * unit - starting)
        # A backward of several products was measured as one, and is counted in its parts.
        parts = 2 if kind.endswith("_backward") else 1
        rates[kind] = KernelRate(peak=1 / unit, half=fixed / parts / unit)
    return Speeds(
        rates=rates,
        bandwidth=1 / max(1e-15, profile.unit_s("elementwise", _LARGE)),
        cache_bytes=_CACHE,
        cache_bandwidth=1 / max(1e-15, profile.unit_s("elementwise", _SMALL)),
        call_s=call,
        call_backward_s=call_back,
        update_call_s=profile.unit_s("update_tensors", 64) / _ADAM_CALLS,
        update_bandwidth=_ADAM_BYTES / max(1e-15, profile.unit_s("update_adam", _LARGE)),
        step_s=_STEP_S if profile.points["operation"] else 0.0,
        updates=_updates(profile) if profile.points["operation"] else (),
        operations=_operations(profile.points["operation"]),
        factors={
            GROUPS[int(point.size)]: point.seconds
            for point in profile.points["factor"]
            if 0 <= point.size < len(GROUPS)
        },
        assumed=profile.assumed,
    )


def _updates(profile: MachineProfile) -> tuple[tuple[float, float], ...]:
    """Return what parameters of all sizes take, over what their bytes do at the bandwidth."""
    byte_s, fixed_s = profile.unit_s("update_adam", _LARGE), profile.seconds("update_adam", 0.0)
    return tuple(
        (math.log(point.size), max(0.1, (point.seconds - fixed_s) / (point.size * byte_s)))
        for point in profile.points["update_adam"]
        if point.size >= _UPDATED and byte_s > 0
    )


@lru_cache(maxsize=4)
def _operations(points: tuple[Point, ...]) -> MeasuredOperations | None:
    found = {at_place(int(point.size)): point.seconds for point in points}
    return operations_of({place: seconds for place, seconds in found.items() if place})
