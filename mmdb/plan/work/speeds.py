"""A machine's measured profile as the speeds of the roofline."""

from __future__ import annotations

import math
from functools import lru_cache

from mmdb.plan.profile.cases import at_place
from mmdb.plan.profile.fits.points import Point
from mmdb.plan.profile.profile import Profile
from mmdb.plan.work.operations import GROUPS, Operations, operations_of
from mmdb.plan.work.roofline import Rate, Speeds

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


def speeds_of(profile: Profile) -> Speeds:
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
        rates[kind] = Rate(peak=1 / unit, half=fixed / parts / unit)
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


def _updates(profile: Profile) -> tuple[tuple[float, float], ...]:
    """Return what parameters of all sizes take, over what their bytes do at the bandwidth."""
    byte_s, fixed_s = profile.unit_s("update_adam", _LARGE), profile.seconds("update_adam", 0.0)
    return tuple(
        (math.log(point.size), max(0.1, (point.seconds - fixed_s) / (point.size * byte_s)))
        for point in profile.points["update_adam"]
        if point.size >= _UPDATED and byte_s > 0
    )


@lru_cache(maxsize=4)
def _operations(points: tuple[Point, ...]) -> Operations | None:
    found = {at_place(int(point.size)): point.seconds for point in points}
    return operations_of({place: seconds for place, seconds in found.items() if place})
