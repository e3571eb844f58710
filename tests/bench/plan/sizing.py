"""How many rows and epochs make a workload take a wanted time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import median
from time import perf_counter

import torch
from torch import nn

from mmdb.bench.figures import one_thread
from mmdb.graph.spec.build import build
from mmdb.plan.step.recording import batch_of
from mmdb.plan.step.step_work import work_of
from tests.bench.plan.workloads import CLASSES, COLUMNS, FAMILIES, Workload

#: Rows of a dataset at most: beyond that, more epochs. Epochs at least, as one was a warm-up.
MOST_ROWS, LEAST_EPOCHS = 120_000, 2
_STEPS, _ROUNDS = 4, 3


@dataclass(frozen=True, slots=True)
class Size:
    """Train rows in all partitions, and epochs."""

    rows: int
    epochs: int


def size_for(workload: Workload, worker_seconds: float) -> Size:
    """Return what takes about so many seconds on one worker."""
    each = [row_seconds(workload.family, k, workload.batch_size) for k in workload.sizes]
    candidate_s = workload.candidates * sum(each) / len(each)
    passes = worker_seconds / candidate_s
    epochs = max(LEAST_EPOCHS, math.ceil(passes / MOST_ROWS))
    least = 2 * workload.batch_size * workload.partitions
    return Size(max(least, round(passes / epochs)), epochs)


@cache
def row_seconds(family: str, size: int, batch_size: int) -> float:
    """Return the seconds of a row in a step, on one thread of this process."""
    with one_thread():
        with torch.random.fork_rng(devices=[]):
            module = module_of(family, size)
            x = torch.rand(batch_size, *(FAMILIES[family].shape or (COLUMNS,)))
            y = torch.zeros(batch_size, dtype=torch.long)
            return median(_round(module, x, y) for _ in range(_ROUNDS)) / batch_size


def module_of(family: str, size: int) -> nn.Module:
    """Return a module of a family, with weights from torch's current generator."""
    one = FAMILIES[family]
    arguments = {one.argument: one.sizes[size]}
    factory = {family: f"mmdb.graph.factories:{family}"}
    return build(one.architecture, arguments, one.shape or (COLUMNS,), CLASSES, factory)


def _round(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the seconds of a step, the mean of some."""
    optimizer = torch.optim.Adam(module.parameters())
    begun = 0.0
    for step in range(_STEPS + 1):
        if step == 1:  # the first one makes the optimizer's state
            begun = perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    return (perf_counter() - begun) / _STEPS


@cache
def flops_of_row(family: str, size: int, batch_size: int) -> float:
    """Return the floating-point operations of a row of a step, forward and backward."""
    with torch.random.fork_rng(devices=[]):
        module = module_of(family, size)
    work = work_of(module, batch_of(FAMILIES[family].shape or (COLUMNS,)))
    return float(work.flops.at(batch_size).sum()) / batch_size
