"""By which metric candidates and epochs are compared."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mmdb.db.connection import Row

#: Metric and whether more of it is better, by task.
OBJECTIVE = {"classification": ("accuracy", True), "regression": ("rmse", False)}


def best_epoch(validations: Sequence[Row], task: str) -> Row | None:
    """Return the row (epoch, metrics, state_out) with the best metric, the earliest of equals."""
    metric, more = OBJECTIVE[task]

    def value(row: Row) -> float:
        found = float(json.loads(row["metrics"])[metric])
        return found if more else -found

    return max(validations, key=value, default=None)
