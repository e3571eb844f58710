"""The seconds that a calibration may take."""

from __future__ import annotations

from mmdb.arguments import is_number
from mmdb.errors import InvalidOption
from mmdb.messages import show

#: Below the one nothing could be measured; the other is the longest that one order may take.
MIN_BUDGET_S, MAX_BUDGET_S = 1.0, 3600.0


def check_budget(budget_s: object) -> float:
    """Return the seconds that may be measured.

    Raises:
        InvalidOption
    """
    if not is_number(budget_s, MIN_BUDGET_S, MAX_BUDGET_S):
        raise InvalidOption(
            f"budget_s is {show(budget_s)}.",
            hint=f"It is a number of seconds from {MIN_BUDGET_S:g} to {MAX_BUDGET_S:g}.",
        )
    return float(budget_s)
