"""What an operation costs whatever its size: seconds over the number of modules in a row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import nn

from mmdb.plan.profile.measures.timing import Allowance, Task, measure_sizes
from mmdb.plan.profile.row import Row

#: Modules in a row.
MODULES = (1, 4, 16, 64)


def measure_dispatch(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Row]:
    """Measure modules of one tiny operation, forward and backward."""
    return measure_sizes(allowance, [partial(_tasks, count, device) for count in MODULES])


def _tasks(count: int, device: torch.device) -> list[Task]:
    modules = nn.Sequential(*(nn.Sigmoid() for _ in range(count)))
    x = torch.zeros(1, 1, device=device, requires_grad=True)
    result = modules(x)
    gradient = torch.ones_like(result)

    def backward() -> object:
        return torch.autograd.grad(result, x, gradient, retain_graph=True)

    return [
        Task("dispatch", float(count), partial(modules, x)),
        Task("dispatch_backward", float(count), backward),
    ]
