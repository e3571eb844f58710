"""Whether a run's candidates train faster in stacks, by a few steps of both on this machine."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from mmdb.data.decoding import Target
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.graph.spec.factory_call import Dtypes
from mmdb.train.candidate.setup import setup_of_candidate
from mmdb.train.compute.exact import environment, exact
from mmdb.train.compute.hop import train_pass
from mmdb.train.compute.live import build, encoding
from mmdb.train.stack.stacked_pass import stacked_pass, stacks
from mmdb.train.values.spec import CandidateSpec, stack_size

#: Candidates of a stack: more of them learn no faster, and leave other workers without any. Those
#: that wait for one partition are often fewer.
SIZE = 16
#: By how much stacks have to be faster, so that what is measured is no accident.
_GAIN = 1.2
#: Steps of a measurement, of which there are several; and seconds after which no more are begun.
_STEPS, _REPEATS, _LIMIT_S = 24, 4, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSteps:
    """What a step of a candidate took, by itself and in a stack; seconds of each member."""

    config: Mapping[str, Any]
    rows: int  # of a step
    steps: int  # that were timed
    alone_s: float
    stacked_s: float
    state_bytes: int
    environment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StackChoice:
    """How many candidates are to train in one pass, and why."""

    size: int  # 1: each by itself
    reason: str
    timed: tuple[TimedSteps, ...] = ()  # of one candidate of each shape


def choose_stack(candidates: Sequence[CandidateSpec], dtype: Dtypes = "float32") -> StackChoice:
    """Choose by the seconds that a step of each takes, by itself and in a stack.

    A stack that is not measured in time counts as one that is slower.

    Args:
        dtype: of the dataset's rows.
    """
    if not candidates:
        return StackChoice(size=1, reason="Candidates that freeze layers are not measured.")
    shapes: dict[str, list[CandidateSpec]] = {}
    for candidate in candidates:
        shapes.setdefault(_shape(candidate), []).append(candidate)
    alone, together, begun = 0.0, 0.0, perf_counter()
    timed: list[TimedSteps] = []
    for group in sorted(shapes.values(), key=len, reverse=True):
        if perf_counter() - begun > _LIMIT_S:
            return StackChoice(size=1, reason="There are too many shapes to measure.")
        found = measured(group[0], stack_size(len(group), SIZE), dtype)
        if found is not None:
            alone += len(group) * found.alone_s
            together += len(group) * found.stacked_s
            timed.append(found)
    size = stack_size(max(map(len, shapes.values())), SIZE)
    if not together or size < 2:
        return StackChoice(size=1, reason="The run's candidates make no stacks.")
    gain = alone / together
    said = f"In stacks of {size} the run's steps take {1 / gain:.2f} of the time one by one."
    return StackChoice(size=size if gain >= _GAIN else 1, reason=said, timed=tuple(timed))


def keep_steps(
    connection: Connection, run_id: int, choice: StackChoice, configs: Sequence[Mapping[str, Any]]
) -> None:
    """Keep what steps of a run's candidates took as they are to train: plans go by it.

    Args:
        configs: of the run's candidates, in their order.
    """
    connection.run_many(
        load("runs").add_first_step_time,
        [
            {
                "run_id": run_id,
                "ordinal": configs.index(one.config),
                "node": platform.node(),
                "environment": one.environment,
                "row_count": one.rows * one.steps,
                "steps": one.steps,
                "seconds": one.steps * (one.stacked_s if choice.size > 1 else one.alone_s),
                "state_bytes": one.state_bytes,
            }
            for one in choice.timed
            if one.config in configs
        ],
    )


def _shape(candidate: CandidateSpec) -> str:
    """Return what is equal for candidates that may have one shape."""
    config = {k: v for k, v in candidate.config.items() if k.startswith("architecture.")}
    for share in ("architecture.dropout", "architecture.embedding_dropout"):
        config.pop(share, None)
    optimizer = candidate.config.get("optimizer")
    name = optimizer.get("name") if isinstance(optimizer, dict) else optimizer
    return json.dumps([config, name, candidate.config.get("batch_size")], sort_keys=True)


def measured(
    candidate: CandidateSpec, members: int, dtype: Dtypes = "float32"
) -> TimedSteps | None:
    """Return what steps of a candidate take with as many members; None where it trains alone."""
    setup = setup_of_candidate(candidate, 0)
    if not isinstance(candidate.input_shape, tuple) or not isinstance(dtype, str):
        return None
    rows = _STEPS * setup.config.batch_size
    x = torch.zeros(rows, *candidate.input_shape, dtype=getattr(torch, dtype))
    y = _labels(setup.targets[0], x)
    lives = [build(candidate) for _ in range(members)]
    if not stacks(lives[0], setup, x):
        return None
    how: dict[str, Any] = {"setups": [setup] * members, "seeds": range(members)}

    def one_by_one(rows: int) -> float:
        return _seconds(
            lambda: train_pass(lives[0], x[:rows], y[:rows], setup=setup, seed=0, ends_epoch=False)
        )

    alone: list[float] = []
    together: list[float] = []
    begun, batch = perf_counter(), setup.config.batch_size
    # Steps of large networks take long: fewer of them tell as much.
    step = min(one_by_one(batch) for _ in range(2))
    steps = min(max(int(_LIMIT_S / 16 / (step * (1 + members))), 1), _STEPS)
    rows = steps * batch
    # In turns: what else the machine does meets both.
    while len(alone) < _REPEATS and perf_counter() - begun < _LIMIT_S / 4:
        alone.append(one_by_one(rows))
        together.append(
            _seconds(lambda: stacked_pass(lives, x[:rows], y[:rows], ends_epoch=False, **how))
        )
    with exact(0):
        here = environment()
    return TimedSteps(
        config=candidate.config,
        rows=batch,
        steps=steps,
        alone_s=min(alone) / steps,
        stacked_s=min(together) / steps / members,
        state_bytes=len(encoding(lives[0])),
        environment=here,
    )


def _seconds(work: Callable[[], object]) -> float:
    begun = perf_counter()
    work()
    return perf_counter() - begun


def _labels(target: Target, x: Tensor) -> Tensor:
    rows = len(x)
    if target.task == "next_token":
        return torch.zeros(x.shape, dtype=torch.int64)
    if target.task == "classification":
        return torch.arange(rows) % target.size
    return torch.zeros(rows, target.size) if target.task == "multilabel" else torch.zeros(rows)
