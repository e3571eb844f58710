"""One strategy, one file: what it takes by its formula, at least and about, and its memory."""

from __future__ import annotations

from mmdb.plan.strategies import (
    data_parallel,
    model_average,
    mop,
    parameter_server,
    pipeline,
    task,
)

__all__ = ["data_parallel", "model_average", "mop", "parameter_server", "pipeline", "task"]
