"""The seconds of a step's operations, each learned from the measured ones that it is like.

Each is a fixed cost, and one of a FLOP, a byte, a place and a group, times what shapes alike were
measured to take more or less than that: a Gaussian process of the logarithms, which fades to
nothing away from them (Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning",
sections 2.2 and 5.4.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmdb.plan.profile.cases import ELEMENTWISE, PRODUCTS, KernelAmounts, cases, kind_of, ways_of
from mmdb.plan.profile.cases import amounts_of as amounts_of_case
from mmdb.plan.step.counts import KINDS, WAYS, OperationKind
from mmdb.plan.step.step_work import Work

_Array = NDArray[np.float64]
#: Rows of amounts: FLOPs, bytes, m, n, k, and the places of a convolution's kernel.
ROWS = 6
#: Channels that oneDNN computes at a time: others are computed as if there were more.
_BLOCK = 16
#: How far shapes are alike, in doublings of one amount; variances of what was measured.
_REACHES = (1.5, 3.0, 6.0)
_NOISES = (0.03, 0.2)
#: How much sooner, or later, shapes of one feature may be unlike; what makes it worth it.
_TIMES = (5.0, 2.0, 0.4, 0.1)
_BETTER = 0.98
#: The largest factor that a correction may be.
_MOST = 4.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """What an operation of any shape takes; made by `fit_kernel`."""

    costs: _Array  # seconds of each of `_columns`
    known: _Array  # places of what was measured, scaled, (measurements, features)
    weights: _Array
    scales: _Array  # of features: the larger, the sooner shapes are unlike
    deviation: float  # of log(measured / predicted), each measurement left out in its turn

    def seconds(self, amounts: _Array) -> _Array:
        """Return what operations take.

        Args:
            amounts: (ROWS, operations); sides are 0 for what is no product.
        """
        plain = self.costs @ _columns(amounts)
        alike = _alike(_places(amounts) * self.scales, self.known)
        limit = math.log(_MOST)
        found: _Array = plain * np.exp(np.clip(alike @ self.weights, -limit, limit))
        return found


def fit_kernel(amounts: _Array, seconds: Sequence[float]) -> Kernel:
    """Return what was learned from measured operations.

    Args:
        amounts: (ROWS, measurements).
    """
    y = np.asarray(seconds, dtype=float)
    columns = _columns(amounts)
    costs = least_relative(columns, y)
    misses = np.log(y / np.maximum(1e-12, costs @ columns))
    places = _places(amounts)
    one = np.ones(places.shape[1])
    tries = [(one / reach, noise) for reach in _REACHES for noise in _NOISES]
    best = min((_learned(places * scales, misses, noise)[0], n) for n, (scales, noise) in
               enumerate(tries))  # fmt: skip
    error, (scales, noise) = best[0], tries[best[1]]
    for at in np.flatnonzero(np.ptp(places, axis=0)):  # which features matter more, or less
        for times in _TIMES:
            tried = scales.copy()
            tried[at] *= times
            found = _learned(places * tried, misses, noise)[0]
            if found < _BETTER * error:
                error, scales = found, tried
    known = places * scales
    return Kernel(costs, known, _learned(known, misses, noise)[1], scales, error)


def _learned(known: _Array, misses: _Array, noise: float) -> tuple[float, _Array]:
    """Return what measurements are missed by where each is left out in its turn, and weights."""
    inverse = np.linalg.inv(_alike(known, known) + noise * np.eye(len(misses)))
    weights: _Array = inverse @ misses
    left_out = weights / np.diag(inverse)
    return float(np.sqrt((left_out**2).mean())), weights


def least_relative(columns: _Array, seconds: _Array) -> _Array:
    """Return weights >= 0 of columns whose sum has the least squared relative errors.

    >>> least_relative(np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]), np.array([3.0, 5.0, 7.0]))
    array([1., 2.])
    """
    scaled = (columns / seconds).T
    norms = np.maximum(np.linalg.norm(scaled, axis=0), 1e-300)
    best, found = math.inf, np.zeros(len(columns))
    for size in range(1, len(columns) + 1):
        for chosen in combinations(range(len(columns)), size):
            part = scaled[:, chosen] / norms[list(chosen)]
            weights, *_ = np.linalg.lstsq(part, np.ones(len(seconds)))
            error = float(((part @ weights - 1) ** 2).sum())
            if (weights >= 0).all() and error < best - 1e-12:
                best, found = error, np.zeros(len(columns))
                found[list(chosen)] = weights / norms[list(chosen)]
    return found


def _columns(amounts: _Array) -> _Array:
    flops, moved, m, *_ = amounts
    groups, padded = _groups(amounts), flops * _full(amounts)
    return np.stack([np.ones_like(flops), flops, padded, moved, m, groups])


def _places(amounts: _Array) -> _Array:
    _, moved, m, n, k, window = amounts
    inner = k / np.maximum(1, window)
    is_convolution = (window > 0) & (k > 0)
    found = np.stack([moved, m, n, inner, window, _groups(amounts) - 1])
    whole = [is_convolution & (channels % _BLOCK == 0) for channels in (n, inner)]
    return np.vstack([np.log2(1 + found), np.log2(_full(amounts)), *whole]).T


def _groups(amounts: _Array) -> _Array:
    flops, _, m, n, k, _ = amounts
    one = 2 * m * n * k
    return np.where(one > 0, flops / np.maximum(1, one), 1.0)


def _full(amounts: _Array) -> _Array:
    """Return the channels that a convolution computes, over those that it has; 1 of all else."""
    _, _, _, n, k, window = amounts
    found = np.ones_like(n)
    for channels in (n, k / np.maximum(1, window)):
        found *= np.ceil(channels / _BLOCK) * _BLOCK / np.maximum(1, channels)
    return np.where((window > 0) & (k > 0), found, 1.0)


def _alike(left: _Array, right: _Array) -> _Array:
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None] - 2 * left @ right.T
    found: _Array = np.exp(-np.maximum(0.0, squares) / 2)
    return found


#: Rows of a batch from which on torch leaves a pointwise convolution to oneDNN.
_MANY = 16
#: Measurements below which nothing is learned of an operation.
_LEAST = 4
#: What a kind costs as where the operation itself is not among those measured.
_AS: Mapping[OperationKind, str] = {
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


class OperationSeconds(NamedTuple):
    """Seconds of the parts of a step; NaN of those that are like nothing measured."""

    working: _Array
    calling: _Array  # what an operation takes whatever its size
    groups: dict[str, NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOperations:
    """What single operations take on a machine."""

    kernels: Mapping[str, Kernel]  # by `kind_of`
    begin_s: float  # of a backward, which is no part of one that is under way

    def seconds(self, work: Work, batch: float) -> OperationSeconds:
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
        return OperationSeconds(found - fixed, fixed, groups)


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


def _name(op: str, kind: OperationKind, way: str, is_batched: bool, batch: float) -> str:
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


def _kind_of_named(op: str) -> OperationKind:
    if op in ("silu", "gelu", "tanh", "sigmoid", "softmax"):
        return "transcendental"
    others: dict[str, OperationKind] = {
        "cat": "copy", "copy": "copy", "bernoulli": "random", "mean": "reduction"
    }  # fmt: skip
    return others.get(op, "elementwise")


def operations_of(seconds: Mapping[tuple[int, str], float]) -> MeasuredOperations | None:
    """Return what was learned from measured cases; None where they are too few.

    Args:
        seconds: by number of the case and way.
    """
    groups: dict[str, list[tuple[KernelAmounts, float]]] = {}
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
    return (
        MeasuredOperations(kernels=kernels, begin_s=begin_s) if needed <= kernels.keys() else None
    )
