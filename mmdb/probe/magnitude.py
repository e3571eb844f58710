"""How far two tensors are apart: exactly if both were kept, else at least so much."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from mmdb.probe.summary import ProbeSummary, TensorDigest

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
        nans = (
            "" if len(set(self.nan_counts)) == 1 else "; NaNs: {} and {}".format(*self.nan_counts)
        )
        if not self.exact:
            return (
                f"by at least {self.max_abs:.3g}" if self.max_abs else "by an unknown amount"
            ) + nans
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
