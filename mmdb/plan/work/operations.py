"""What the parts of a step take, each as the measured operation that it is like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmdb.plan.profile.cases import ELEMENTWISE, PRODUCTS, Amounts, cases, kind_of, ways_of
from mmdb.plan.profile.cases import amounts_of as amounts_of_case
from mmdb.plan.work.counts import KINDS, WAYS, Kind
from mmdb.plan.work.kernels import Kernel, fit_kernel
from mmdb.plan.work.work import Work

_Array = NDArray[np.float64]
#: Rows of a batch from which on torch leaves a pointwise convolution to oneDNN.
_MANY = 16
#: Measurements below which nothing is learned of an operation.
_LEAST = 4
#: What a kind costs as where the operation itself is not among those measured.
_AS: Mapping[Kind, str] = {
    "convolution": "convolution", "pointwise": "pointwise", "depthwise": "depthwise",
    "matmul": "matmul", "attention": "attention", "normalisation": "layer_norm",
    "pooling": "avg_pool2d", "elementwise": "mul", "transcendental": "silu", "reduction": "mean",
    "embedding": "embedding", "random": "bernoulli", "copy": "copy", "unknown": "copy",
}  # fmt: skip
_NAMED = {"log_softmax": "softmax", "loss": "softmax"}
#: What is corrected by one factor.
GROUPS = (
    "convolution", "depthwise", "pointwise", "matmul", "move", "call", "start", "update", "step",
)  # fmt: skip
_GROUP = {
    "convolution": "convolution", "depthwise": "depthwise", "pointwise": "pointwise",
    "unrolled": "pointwise", "grouped": "depthwise",
    **dict.fromkeys(("matmul", "batched", "attention"), "matmul"),
}  # fmt: skip


class Known(NamedTuple):
    """Seconds of the parts of a step; NaN of those that are like nothing measured."""

    working: _Array
    calling: _Array  # what an operation takes whatever its size
    groups: dict[str, NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What single operations take on a machine."""

    kernels: Mapping[str, Kernel]  # by `kind_of`
    begin_s: float  # of a backward, which is no part of one that is under way

    def seconds(self, work: Work, batch: float) -> Known:
        """Return the seconds of the parts that are like something measured."""
        calls = np.maximum(1.0, work.calls.at(batch))
        moved = work.read.at(batch) + work.written.at(batch)
        sides = _forward_sides(work, work.sides.at(batch))
        amounts = np.stack([work.flops.at(batch), moved, *sides, work.windows])
        amounts[:2] /= calls
        found, fixed = np.full(len(calls), np.nan), np.zeros(len(calls))
        groups = {name: np.zeros(len(calls), dtype=np.bool_) for name in GROUPS}
        names = np.array(_names(work, amounts, batch), dtype=object)
        for name in set(names.tolist()) - {""}:
            here = names == name
            kernel = self.kernels.get(name)
            if kernel is None:
                continue
            same, back = np.unique(amounts[:, here], axis=1, return_inverse=True)
            found[here] = kernel.seconds(same)[back.ravel()] * calls[here]
            fixed[here] = np.minimum(found[here], kernel.costs[0] * calls[here])
            op = name.removeprefix("op_").rsplit("_", 1)[0] if name not in _FORWARD else name[3:]
            groups[_GROUP.get(op, "move")] |= here
        return Known(found - fixed, fixed, groups)


_FORWARD = frozenset(kind_of(op, "forward") for op in {case.op for case in cases()})


def _forward_sides(work: Work, sides: _Array) -> _Array:
    """Return the sides of each part's product, of a gradient those of what it is a gradient of."""
    found = sides.copy()
    of_input, of_weight = (work.ways == WAYS.index(way) for way in ("input", "weight"))
    found[:, of_input] = sides[:, of_input][[0, 2, 1]]  # (m, k, n)
    found[:, of_weight] = sides[:, of_weight][[2, 1, 0]]  # (k, n, m)
    return found


def _names(work: Work, amounts: _Array, batch: float) -> list[str]:
    """Return the kind of measurement that each part is like; empty where it is like none."""
    found = []
    flops, _, m, n, k, _ = amounts
    groups = flops / np.maximum(1.0, 2 * m * n * k)
    for at, op in enumerate(work.ops):
        kind, way = KINDS[work.kinds[at]], WAYS[work.ways[at]]
        found.append(_name(op, kind, way, groups[at] > 1.5, batch))
    return found


def _name(op: str, kind: Kind, way: str, is_batched: bool, batch: float) -> str:
    as_what = _AS.get(kind, "")
    if not as_what:
        return ""
    if kind in ("convolution", "pointwise") and is_batched:
        as_what = "grouped"
    elif kind == "pointwise" and batch < _MANY:
        as_what = "unrolled"
    elif kind == "matmul" and is_batched:
        as_what = "batched"
    elif kind == "pooling" and "max" in op:
        as_what = "max_pool2d"
    elif kind in ("normalisation", "transcendental", "elementwise", "copy"):
        named = _NAMED.get(op, op)
        is_same = named in ELEMENTWISE and _kind_of_named(named) == kind
        as_what = named if is_same or named == "batch_norm" else as_what
    if way == "backward" and "backward" not in ways_of(as_what):
        way = "input" if as_what in PRODUCTS else "forward"
    if kind in ("copy", "reduction", "unknown") or as_what == "add":
        way = "forward"
    return kind_of(as_what, way)


def _kind_of_named(op: str) -> Kind:
    if op in ("silu", "gelu", "tanh", "sigmoid", "softmax"):
        return "transcendental"
    others: dict[str, Kind] = {
        "cat": "copy", "copy": "copy", "bernoulli": "random", "mean": "reduction"
    }  # fmt: skip
    return others.get(op, "elementwise")


def operations_of(seconds: Mapping[tuple[int, str], float]) -> Operations | None:
    """Return what was learned from measured cases; None where they are too few.

    Args:
        seconds: by number of the case and way.
    """
    groups: dict[str, list[tuple[Amounts, float]]] = {}
    idle = [
        taken for (number, way), taken in seconds.items()
        if way == "backward" and cases()[number].op == "add"
    ]  # fmt: skip
    begin_s = 0.9 * min(idle, default=0.0)
    for (number, way), taken in seconds.items():
        case = cases()[number]
        if way != "forward":
            taken = max(0.1 * taken, taken - begin_s)
        groups.setdefault(kind_of(case.op, way), []).append((amounts_of_case(case, way), taken))
    kernels = {
        name: fit_kernel(
            np.array([[one.flops, one.bytes, *one.sides, one.window] for one, _ in found]).T,
            [taken for _, taken in found],
        )
        for name, found in groups.items()
        if len(found) >= _LEAST
    }
    needed = {kind_of(op, way) for op in PRODUCTS for way in ways_of(op)}
    return Operations(kernels=kernels, begin_s=begin_s) if needed <= kernels.keys() else None
