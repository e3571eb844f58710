"""What operations take in a step, beside what they were measured to take alone: a few factors.

Networks that a calibration trains say what the sum of their operations misses: in a step caches
hold other things, memory is taken and given back, and Python stands between the operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

#: A factor lies between these.
LEAST, MOST = 0.5, 3.0
#: Steps below which nothing is learned.
FEW = 6
#: The larger, the closer the factors stay to the common one.
_RIDGE = 1.0
_ROUNDS = 200


def learn_factors(
    predicted: Sequence[Mapping[str, float]], measured: Sequence[float]
) -> dict[str, float]:
    """Return the factor of each group of operations; none where too few steps were measured.

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
            found[at] = min(MOST, max(LEAST, float(best)))
    return dict(zip(groups, found.tolist(), strict=True))
