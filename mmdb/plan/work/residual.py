"""What the roofline misses, learned from steps that were measured: a bounded factor.

A ridge regression of log(measured / predicted) on log features, which fades to none where a model
is unlike those it learned from. Bounds keep a learned term sane out of distribution (NeuSight,
ASPLOS 2025).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmdb.plan.work.counts import KINDS
from mmdb.plan.work.work import Work

#: Of the features below: a residual of another version is not used.
VERSION = 1
#: The factor lies between 1 - BOUND and 1 + BOUND.
BOUND = 0.35
#: Measurements below which nothing is learned.
LEAST = 8
_Array = NDArray[np.float64]
_PRODUCTS = ("matmul", "convolution", "pointwise", "depthwise", "attention", "recurrent")
_BYTES = ("elementwise", "transcendental", "normalisation", "pooling", "reduction", "embedding",
          "random", "copy", "unknown")  # fmt: skip
FEATURES = (
    *(f"{kind}_flops" for kind in _PRODUCTS),
    *(f"{kind}_bytes" for kind in _BYTES),
    "calls",
    "update_bytes",
    "batch",
)


def features(work: Work, batch: int) -> _Array:
    """Return the logarithms of what a step does, in the order of FEATURES."""
    flops = work.flops.at(batch)
    moved = work.read.at(batch) + work.written.at(batch)
    sums: dict[str, NDArray[np.bool_]] = {
        kind: work.kinds == number for number, kind in enumerate(KINDS)
    }
    update = work.update.read + work.update.written
    found = [
        *(float(flops[sums[kind]].sum()) for kind in _PRODUCTS),
        *(float(moved[sums[kind]].sum()) for kind in _BYTES),
        float(work.calls.at(batch).sum()),
        float(update),
        float(batch),
    ]
    return np.array([math.log1p(one) for one in found])


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """A factor for a prediction.

    Attributes:
        versions: of this module's features and of torch.
        known: standardised features of what was learned from, (measurements, features).
        reach: distance to the nearest of them at which half of the correction is left.
        deviation: of log(measured / corrected), each measurement left out in its turn.
    """

    versions: tuple[int, str]
    mean: _Array
    scale: _Array
    weights: _Array
    offset: float
    known: _Array
    reach: float
    deviation: float

    def factor(self, row: _Array) -> float:
        """Return what the roofline's seconds are multiplied by."""
        at = (row - self.mean) / self.scale
        found = self.offset + float(at @ self.weights)
        away = math.sqrt(float(((self.known - at) ** 2).mean(axis=1).min()))
        fading = 1 / (1 + (away / self.reach) ** 2)
        return min(1 + BOUND, max(1 - BOUND, math.exp(fading * found)))

    def is_of(self, torch_version: str) -> bool:
        """Whether it was learned with these features and this torch."""
        return self.versions == (VERSION, torch_version)

    def to_json(self) -> dict[str, Any]:
        """Return what `residual_of` reads."""
        return {
            "versions": list(self.versions),
            "features": list(FEATURES),
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "weights": self.weights.tolist(),
            "offset": self.offset,
            "known": self.known.tolist(),
            "reach": self.reach,
            "deviation": self.deviation,
        }


def residual_of(raw: Mapping[str, Any], torch_version: str) -> Residual | None:
    """Return the residual that JSON says; None if it is of other features or another torch."""
    versions = tuple(raw.get("versions", ()))
    if versions != (VERSION, torch_version) or tuple(raw.get("features", ())) != FEATURES:
        return None
    arrays = {name: np.array(raw[name], dtype=float) for name in ("mean", "scale", "weights")}
    return Residual(
        versions=(VERSION, torch_version),
        known=np.array(raw["known"], dtype=float),
        offset=float(raw["offset"]),
        reach=float(raw["reach"]),
        deviation=float(raw["deviation"]),
        **arrays,
    )


def learn(
    rows: Iterable[_Array],
    predicted: Sequence[float],
    measured: Sequence[float],
    torch_version: str,
    *,
    ridge: float = 1.0,
) -> Residual | None:
    """Return the residual of measured steps; None where there are fewer than LEAST.

    Args:
        rows: `features` of each measured step.
        predicted: the roofline's seconds of each.
        ridge: the larger, the closer the factor stays to the mean one.
    """
    x = np.array(list(rows), dtype=float)
    if len(x) < LEAST:
        return None
    y = np.log(np.asarray(measured, dtype=float) / np.asarray(predicted, dtype=float))
    y = np.clip(y, math.log(1 - BOUND) * 2, math.log(1 + BOUND) * 2)  # one outlier rules nothing
    mean, scale = x.mean(axis=0), x.std(axis=0)
    # A feature that never changed says nothing; one that does later leads far away.
    scale = np.where(scale > 1e-9, scale, 1.0)
    known = (x - mean) / scale
    weights, offset, errors = _ridge(known, y, ridge)
    gaps = ((known[:, None] - known[None]) ** 2).mean(axis=2)
    np.fill_diagonal(gaps, np.inf)
    nearest = np.sqrt(gaps.min(axis=1))
    return Residual(
        versions=(VERSION, torch_version),
        mean=mean,
        scale=scale,
        weights=weights,
        offset=offset,
        known=known,
        reach=max(0.25, 2 * float(np.median(nearest))),
        deviation=float(np.sqrt((errors**2).mean())),
    )


def _ridge(x: _Array, y: _Array, ridge: float) -> tuple[_Array, float, _Array]:
    """Return weights, offset, and the errors where each row is left out (by the hat matrix)."""
    n = len(y)
    columns = np.hstack([np.ones((n, 1)), x])
    penalty = np.diag([1e-9, *np.full(x.shape[1], ridge)])
    inverse = np.linalg.inv(columns.T @ columns + penalty)
    found = inverse @ columns.T @ y
    leverage = np.einsum("ij,jk,ik->i", columns, inverse, columns)
    errors = (y - columns @ found) / np.maximum(1e-6, 1 - leverage)
    return found[1:], float(found[0]), errors
