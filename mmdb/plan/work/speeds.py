"""A machine's measured profile as the speeds of the roofline."""

from __future__ import annotations

from mmdb.plan.profile.profile import Profile
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
    "depthwise": ("depthwise", 1),
    "depthwise_backward": ("depthwise_backward", 2),
}
_SMALL, _LARGE, _CACHE = 1e5, 1e7, 1e6
_ADAM_BYTES = 19  # moved for each byte of a parameter
_ADAM_CALLS = 9


def speeds_of(profile: Profile) -> Speeds:
    """Return what a profile says in the roofline's terms.

    Exponentials, norms, pools and random numbers have no kind of their own there: they cost their
    bytes, and a residual must learn the rest.
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
        assumed=profile.assumed,
    )
