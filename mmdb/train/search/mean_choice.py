"""The candidates whose mean is best, chosen greedily; what a mean is worth, a function says."""

from __future__ import annotations

from collections.abc import Callable


def best_mean(
    count: int, worth: Callable[[tuple[int, ...]], float | None], *, most: int
) -> tuple[int, ...]:
    """Return the members of the best mean that is found, in the order in which they were taken.

    It begins with the best one alone, and takes at each step the one with which it is worth most,
    as long as it is worth more than before.

    Args:
        count: candidates, by whose numbers ties go.
        worth: of the mean of some of them, more is better; None where it cannot be told.
        most: members, at most.
    Returns:
        Nothing, where no candidate is worth anything.
    Source: Caruana et al., ICML 2004, without taking a candidate twice.
    """
    chosen: tuple[int, ...] = ()
    best: float | None = None
    while len(chosen) < min(most, count):
        found = [(worth((*chosen, k)), k) for k in range(count) if k not in chosen]
        told = [(value, -k) for value, k in found if value is not None]
        if not told or (best is not None and max(told)[0] <= best):
            break
        best, place = max(told)
        chosen = (*chosen, -place)
    return chosen
