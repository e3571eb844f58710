"""The learning rate of each epoch, as torch's own schedule gives it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from mmdb.train.candidate.config import parse_config
from mmdb.train.compute.optimizer import advance, make_optimizer, make_schedule

_KEYS = ("lr", "weight_decay", "optimizer", "schedule")


def learning_rates(
    config: Mapping[str, Any], steps: Sequence[int], before: Sequence[int] = ()
) -> list[float]:
    """Return the learning rate at the beginning of each epoch.

    Args:
        config: a candidate's configuration.
        steps: optimizer steps of each of its epochs, in order.
        before: those of the epochs that its parent had behind it.
    """
    parsed = parse_config({key: config[key] for key in _KEYS if key in config}, "regression")
    optimizer = make_optimizer(nn.Linear(1, 1, bias=False), parsed)
    schedule = make_schedule(optimizer, parsed)
    found = [float(optimizer.param_groups[0]["lr"])]
    for count in (*before, *steps[:-1]):
        if schedule is not None:
            with warnings.catch_warnings(action="ignore"):
                advance(schedule, optimizer, count if parsed.schedule_per == "step" else 1)
        found.append(float(optimizer.param_groups[0]["lr"]))
    return found[len(before) :][: len(steps)]
