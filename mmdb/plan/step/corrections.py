"""Corrections of the roofline, learned from measured steps: factors, and a residual model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from mmdb.graph.trace.stand_ins import on_meta
from mmdb.plan.profile.machine_profile import profile_of
from mmdb.plan.profile.measurements import Measurement
from mmdb.plan.profile.reference_networks import KIND, REFERENCES, ReferenceNetwork
from mmdb.plan.step import CandidateCost
from mmdb.plan.step.counts import KINDS
from mmdb.plan.step.operation_seconds import GROUPS
from mmdb.plan.step.recording import batch_of
from mmdb.plan.step.roofline import Speeds, group_seconds, part_seconds, speeds_of, update_seconds
from mmdb.plan.step.step_work import Work, work_of

#: A factor lies between these.
LEAST_FACTOR, MOST_FACTOR = 0.5, 3.0
#: Steps below which nothing is learned.
FEW = 6
#: The larger, the closer the factors stay to the common one.
_RIDGE = 1.0
_ROUNDS = 200


def learn_factors(
    predicted: Sequence[Mapping[str, float]], measured: Sequence[float]
) -> dict[str, float]:
    """Return the factor of each group of operations; none where too few steps were measured.

    Networks that a calibration trains say what the sum of their operations misses: in a step caches
    hold other things, memory is taken and given back, and Python stands between the operations.

    The squared relative errors of sum(factor x seconds) are least, with a penalty on what the
    factors differ by.

    Args:
        predicted: of each step, the seconds of its operations by group.
    """
    if len(measured) < FEW:
        return {}
    groups = sorted({group for one in predicted for group in one})
    y = np.asarray(measured, dtype=float)
    shares = np.array([[one.get(group, 0.0) for group in groups] for one in predicted])
    common = float(np.median(y / shares.sum(axis=1)))
    shares /= y[:, None]
    found = np.full(len(groups), common)
    # Coordinate by coordinate: each has its optimum within the bounds in closed form.
    for _ in range(_ROUNDS):
        for at in range(len(groups)):
            one = shares[:, at]
            left = 1 - shares @ found + one * found[at]
            best = (one @ left + _RIDGE * common) / (one @ one + _RIDGE)
            found[at] = min(MOST_FACTOR, max(LEAST_FACTOR, float(best)))
    return dict(zip(groups, found.tolist(), strict=True))


#: Of the features below and of the roofline: what was learned with another version is not used.
VERSION = 1
#: How many there are: kinds of operations, the update, the step itself, and two sizes.
FEATURES = len(KINDS) + 4
#: The factor lies between 1 - BOUND and 1 + BOUND.
BOUND = 0.35
#: Measurements below which nothing is learned.
LEAST = 8
#: Logarithm of a size by which two steps are about as far apart as by all of their time.
_SPAN = 10.0
#: Distance of two steps from which on little of what one missed is believed of the other.
_REACH = 0.4
#: Variance of what all steps have in common, and of a measurement, in those of a step's own.
_COMMON, _NOISE = 0.05, 0.1
_Array = NDArray[np.float64]


def features(work: Work, speeds: Speeds, batch: int) -> _Array:
    """Return where a step spends its time, and how much: points that are near are alike."""
    parts = part_seconds(work, speeds, batch)
    spent = np.array(
        [
            *(parts[work.kinds == number].sum() for number in range(len(KINDS))),
            update_seconds(work, speeds),
            speeds.step_s * speeds.factors.get("step", 1.0),
        ]
    )
    total = max(1e-12, float(spent.sum()))
    sizes = [math.log(total) / _SPAN, math.log(batch) / _SPAN]
    return np.concatenate([np.sqrt(np.maximum(0.0, spent) / total), sizes])


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """A correction of predictions.

    A Gaussian process over log(measured / predicted): what all steps have in common is corrected
    for all, the rest only where a step spends its time as measured ones do. Bounds keep a learned
    term sane out of distribution (NeuSight, ASPLOS 2025).

    Attributes:
        known: features of what was learned from, (measurements, features).
        deviation: of log(measured / corrected), each measurement left out in its turn.
    """

    known: _Array
    weights: _Array
    inverse: _Array
    variance: float  # of what is a step's own
    deviation: float

    def factor(self, row: _Array) -> float:
        """Return what the roofline's seconds are multiplied by."""
        found = float(_alike(self.known, row[None])[:, 0] @ self.weights)
        return min(1 + BOUND, max(1 - BOUND, math.exp(found)))

    def deviation_at(self, row: _Array) -> float:
        """Return the relative standard deviation of corrected seconds."""
        alike = _alike(self.known, row[None])[:, 0]
        left = 1 + _COMMON + _NOISE - float(alike @ self.inverse @ alike)
        return math.sqrt(self.variance * max(0.0, left))

    def corrected(self, cost: CandidateCost, row: _Array) -> CandidateCost:
        """Return the costs by the roofline of a candidate whose steps have these features."""
        factor = self.factor(row)
        return replace(
            cost,
            step_s=cost.step_s * factor,
            row_s=cost.row_s * factor,
            validation_row_s=cost.validation_row_s * factor,
            layers=tuple(
                layer._replace(forward_row_s=layer.forward_row_s * factor) for layer in cost.layers
            ),
            uncertainty=min(cost.uncertainty, self.deviation_at(row)),
        )


def learn(
    rows: Sequence[_Array], predicted: Sequence[float], measured: Sequence[float]
) -> Residual | None:
    """Return the residual of measured steps; None where there are fewer than LEAST.

    Args:
        rows: `features` of each step.
        predicted: the roofline's seconds of each.
    """
    if len(rows) < LEAST:
        return None
    known = np.array(rows, dtype=float)
    missed = np.log(np.asarray(measured, dtype=float) / np.asarray(predicted, dtype=float))
    # One outlier rules nothing.
    missed = np.clip(missed, 2 * math.log(1 - BOUND), 2 * math.log(1 + BOUND))
    noisy = _alike(known, known) + _NOISE * np.eye(len(known))
    inverse = np.linalg.inv(noisy).astype(np.float64, copy=False)
    weights = inverse @ missed
    # Each left out in its turn: Rasmussen and Williams, Gaussian Processes, 5.12.
    left = np.diag(inverse)
    errors = weights / left
    return Residual(
        known=known,
        weights=weights,
        inverse=inverse,
        variance=float((errors**2 * left).mean()),
        deviation=float(np.sqrt((errors**2).mean())),
    )


def _alike(some: _Array, others: _Array) -> _Array:
    """Return the covariance of what the roofline misses of steps, (some, others)."""
    squares = (some**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * some @ others.T
    found: _Array = _COMMON + np.exp(-np.maximum(0.0, squares) / (2 * _REACH**2))
    return found


def learned_rows(rows: Sequence[Measurement]) -> list[Measurement]:
    """Return the factors of groups of operations; one of 1 where too little was measured."""
    measured = {int(row.size): row.value for row in rows if row.kind == KIND}
    speeds = speeds_of(profile_of(rows))
    if len(measured) < FEW or speeds.operations is None:
        return [_row("start", 1.0)]
    predicted = [
        group_seconds(work_of_reference(REFERENCES[number]), speeds, REFERENCES[number].batch)
        for number in measured
    ]
    found = learn_factors(predicted, list(measured.values()))
    return [_row(group, factor) for group, factor in found.items()]


def _row(group: str, factor: float) -> Measurement:
    return Measurement(kind="factor", size=float(GROUPS.index(group)), value=factor, unit="x")


def work_of_reference(reference: ReferenceNetwork) -> Work:
    """Return the work of a network that calibrations train."""
    with torch.random.fork_rng(devices=[]), on_meta():
        module = reference.build()
    dtype = "int64" if reference.tokens else "float32"
    adam = partial(torch.optim.Adam, lr=1e-4)
    return work_of(module, batch_of(reference.shape, dtype), optimizer=adam)
