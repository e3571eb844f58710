"""Steps of optimizers: seconds over the bytes of a parameter, and over the number of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest

import torch
from torch import nn

from mmdb.plan.profile.measures.timing import Allowance, Task, measure_sizes
from mmdb.plan.profile.row import Row
from mmdb.train.compute.optimizer import step_of

#: Bytes of a parameter, and numbers of tiny parameters.
PARAMETER_BYTES = (2**12, 2**15, 2**18, 2**20, 2**22, 2**24)
TENSORS = (1, 4, 16, 64)
_TINY = 16
_Make = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]


def measure_updates(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Row]:
    """Measure SGD with momentum and Adam as hops step them."""
    makes: dict[str, _Make] = {
        "update_sgd": partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
        "update_adam": partial(torch.optim.Adam, lr=1e-3),
    }
    pairs = zip_longest(PARAMETER_BYTES, TENSORS)
    return measure_sizes(allowance, [partial(_tasks, makes, *pair, device) for pair in pairs])


def _tasks(
    makes: dict[str, _Make], size: int, count: int | None, device: torch.device
) -> list[Task]:
    tasks = [
        Task(kind, float(size), _step(make, [size // 4], device)) for kind, make in makes.items()
    ]
    return tasks if count is None else [*tasks, _many(makes["update_adam"], count, device)]


def _many(make: _Make, count: int, device: torch.device) -> Task:
    return Task("update_tensors", float(count), _step(make, [_TINY] * count, device))


def _step(make: _Make, sizes: Sequence[int], device: torch.device) -> Callable[[], object]:
    parameters = [nn.Parameter(torch.ones(size, device=device)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    return step_of(make(parameters))
