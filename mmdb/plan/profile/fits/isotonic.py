"""The rising sequence closest to a given one (pool adjacent violators)."""

from __future__ import annotations

from collections.abc import Sequence


def rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the sequence that never falls with the least weighted squared error.

    >>> rising([1.0, 3.0, 2.0, 5.0], [1.0, 1.0, 1.0, 1.0])
    [1.0, 2.5, 2.5, 5.0]
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        mean, heft, length = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, other, more = pools.pop()
            mean = (before * other + mean * heft) / (other + heft)
            heft, length = heft + other, length + more
        pools.append((mean, heft, length))
    return [mean for mean, _, length in pools for _ in range(length)]
