"""What is measured: each kind's size, how it is fitted, and what to believe where it was not.

Every value is in seconds, but that of a factor and of a process; what differs is what its size
counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: How a kind's points become a curve: see `mmdb.plan.profile.fits`.
#: Points of "none" have no curve of their own.
Fit = Literal["rate", "table", "line", "link", "slowdown", "constant", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of measurement."""

    meaning: str
    size_unit: str
    fit: Fit
    #: (size, seconds): slow, as a small shared machine is. A plan that rests on them overstates.
    assumed: tuple[tuple[float, float], ...]


def _rate(meaning: str, per_s: float, fixed_s: float = 2e-5) -> Kind:
    points = tuple((size, fixed_s + size / per_s) for size in (1e4, 1e6, 1e8, 1e9))
    return Kind(meaning=meaning, size_unit="flop", fit="rate", assumed=points)


def _bytes(meaning: str, per_s: float, fixed_s: float, fit: Fit = "line") -> Kind:
    points = tuple((size, fixed_s + size / per_s) for size in (1e3, 1e5, 1e7))
    return Kind(meaning=meaning, size_unit="byte", fit=fit, assumed=points)


def _busy(meaning: str) -> Kind:
    points = ((1.0, 1.0), (2.0, 1.3))
    return Kind(meaning=meaning, size_unit="worker", fit="slowdown", assumed=points)


KINDS: dict[str, Kind] = {
    "product": _rate("A matrix product forward, (n, n) by (n, n).", 1e10),
    "product_backward": _rate("Its gradients: two products.", 1e10, 6e-5),
    "product_thin": _rate("A product of a batch of 32 rows forward, (32, n) by (n, n).", 5e9),
    "product_thin_backward": _rate("Its gradients.", 5e9, 6e-5),
    "convolution": _rate("A convolution of 3 x 3 forward.", 8e9, 5e-5),
    "convolution_backward": _rate("Its gradients: two convolutions.", 6e9, 1e-4),
    "depthwise": _rate("A depthwise convolution of 3 x 3 forward.", 1e9, 5e-5),
    "depthwise_backward": _rate("Its gradients.", 5e8, 1e-4),
    "operation": Kind(
        meaning="A single operation: a case of mmdb/plan/profile/cases.py, one of its ways.",
        size_unit="case",
        fit="none",
        assumed=(),
    ),
    "reference": Kind(
        meaning="A step of one of the networks that a calibration trains, with Adam.",
        size_unit="network",
        fit="none",
        assumed=(),
    ),
    "factor": Kind(
        meaning="What a group of operations takes in such steps, beside what it takes alone.",
        size_unit="group",
        fit="none",
        assumed=(),
    ),
    "process": Kind(
        meaning="Bytes of a worker's process that is ready to compute.",
        size_unit="process",
        fit="none",
        assumed=((1.0, 3.4e8),),
    ),
    "elementwise": _bytes(
        "A sum of two tensors into a new one; bytes read and written.", 3e9, 5e-6, "table"
    ),
    "copy": _bytes("A copy into memory at hand; bytes read and written.", 4e9, 5e-6, "table"),
    "dispatch": Kind(
        meaning="Modules of one tiny operation forward, recorded for gradients.",
        size_unit="operation",
        fit="line",
        assumed=((1.0, 2e-5), (100.0, 2e-3)),
    ),
    "dispatch_backward": Kind(
        meaning="Their gradients.",
        size_unit="operation",
        fit="line",
        assumed=((1.0, 3e-5), (100.0, 2e-3)),
    ),
    "update_sgd": _bytes("A step of SGD with momentum; bytes of one parameter.", 5e8, 5e-5),
    "update_adam": _bytes("A step of Adam; bytes of one parameter.", 2e8, 1e-4),
    "update_tensors": Kind(
        meaning="A step of Adam over tiny parameters.",
        size_unit="tensor",
        fit="line",
        assumed=((1.0, 1e-4), (100.0, 2e-3)),
    ),
    "state_hash": _bytes("Laying out a state where it lies and hashing it.", 5e8, 3e-4),
    "state_encode": _bytes("Writing out a state as bytes.", 5e8, 3e-4),
    "state_decode": _bytes("Loading a state's bytes into a module and its optimizer.", 3e8, 1e-3),
    "query": Kind(
        meaning="A small query, there and back.",
        size_unit="query",
        fit="constant",
        assumed=((1.0, 1e-3),),
    ),
    "read": _bytes("Blocks of a partition out of the database.", 1e8, 2e-3),
    "decode": Kind(
        meaning="A row of numbers, from a block into the node's cache; bytes of the row.",
        size_unit="byte",
        fit="line",
        assumed=((4.0, 2e-6), (4e3, 4e-5)),
    ),
    "decode_pixels": Kind(
        meaning="A row of a byte string, which becomes float32; bytes of the row.",
        size_unit="byte",
        fit="line",
        assumed=((4.0, 2e-6), (4e3, 4e-5)),
    ),
    "publish": _bytes("Leaving a state where other workers find it.", 1e8, 5e-3),
    "load": _bytes("Finding a state that another worker left.", 2e8, 3e-3),
    "checkpoint": _bytes("Making a state durable.", 5e7, 1e-2),
    "merge": _bytes("Averaging a byte of one of several states.", 1e8, 1e-3),
    "all_reduce_2": _bytes("The sum of gradients over two workers of a node.", 2e8, 1e-3, "link"),
    "all_reduce_4": _bytes("The sum of gradients over four workers of a node.", 1e8, 3e-3, "link"),
    "meet": Kind(
        meaning="Until the workers of a new group are connected.",
        size_unit="worker",
        fit="line",
        assumed=((2.0, 5e-2), (4.0, 1e-1)),
    ),
    "busy_product": _busy("A matrix product at a count of busy workers."),
    "busy_copy": _busy("A copy of memory at a count of busy workers."),
    "busy_step": _busy("A small model's training step at a count of busy workers."),
}
