"""A configuration's optimizer and schedule, and the rows that each step learns from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, SequentialLR

from mmdb.errors import InvalidHyperparameter, stops_the_caller
from mmdb.memory import require
from mmdb.train.candidate.config import Config
from mmdb.train.candidate.named_choices import (
    OPTIMIZERS,
    SCHEDULES,
    SEQUENCE,
    NamedChoice,
    has_weight_decay,
)
from mmdb.train.compute.exact import stays_out


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows that go through the module at once.

    A step's gradient is the sum over its portions of `share` times the gradient of the portion's
    mean loss: with shares of n_i / (n_1 + n_2 + ...) that of the mean over all their rows.
    """

    index: Tensor  # int64 (n,); empty: the portion adds nothing
    share: float = 1.0


#: The portions of each optimizer step of a pass.
Plan = Sequence[Sequence[Portion]]
#: From the pass's row order, int64 (n,), to its plan.
Planner = Callable[[Tensor], Plan]


def batches(order: Tensor, size: int) -> list[Tensor]:
    """Return row indices by batch; a last batch of one row joins the batch before it.

    BatchNorm cannot learn from a single row.
    """
    parts = list(order.split(size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def steps(order: Tensor, size: int, accumulate: int = 1) -> list[list[Portion]]:
    """Return a pass's plan: `accumulate` batches of `size` rows for each step, fewer for the last.

    A row weighs the same in each portion of a step, whatever the portions' sizes.
    """
    parts = batches(order, size)
    if accumulate == 1:
        return [[Portion(part)] for part in parts]
    groups = [parts[k : k + accumulate] for k in range(0, len(parts), accumulate)]
    return [[Portion(p, len(p) / sum(map(len, group))) for p in group] for group in groups]


def make_optimizer(
    module: nn.Module, config: Config, *, is_partial: bool = False
) -> torch.optim.Optimizer:
    """Return a fresh optimizer of the module's parameters.

    Args:
        is_partial: whether it has only those that require gradients.
    Raises:
        InvalidHyperparameter: torch refuses an argument.
    """
    name = config.optimizer.name
    make: Callable[..., torch.optim.Optimizer] = OPTIMIZERS[name]
    decay = {"weight_decay": config.weight_decay} if has_weight_decay(name) else {}
    stays_out()
    parameters = [p for p in module.parameters() if p.requires_grad or not is_partial]
    with refusing("optimizer", name):
        return make(parameters, lr=config.lr, **decay, **config.optimizer.arguments)


def make_schedule(optimizer: torch.optim.Optimizer, config: Config) -> LRScheduler | None:
    """Return a fresh schedule of an optimizer, if the configuration has one.

    Raises:
        InvalidHyperparameter: torch refuses an argument.
    """
    choice = config.schedule
    if choice is None:
        return None
    with refusing("schedule", choice.name):
        if choice.name != SEQUENCE:
            return _single(optimizer, choice)
        parts = [_single(optimizer, part) for part in choice.arguments["parts"]]
        return SequentialLR(optimizer, parts, list(choice.arguments["until"]))


def _single(optimizer: torch.optim.Optimizer, choice: NamedChoice) -> LRScheduler:
    return SCHEDULES[choice.name](optimizer, **choice.arguments)


def check_steps(config: Config) -> int:
    """Step a stand-in of one weight twice: some arguments torch refuses only then.

    Returns:
        How many tensors as large as a weight the optimizer keeps beside it.

    Raises:
        InvalidHyperparameter: torch refuses the optimizer's or the schedule's arguments.
    """
    stand_in = nn.Linear(3, 2, bias=False)
    optimizer = make_optimizer(stand_in, config)
    schedule = make_schedule(optimizer, config)
    stand_in.weight.grad = torch.zeros_like(stand_in.weight)
    for _ in range(2):
        with refusing("optimizer", config.optimizer.name):
            optimizer.step()
        if schedule is not None and config.schedule is not None:
            with refusing("schedule", config.schedule.name):
                schedule.step()
    kept = optimizer.state[stand_in.weight].values()
    return sum(isinstance(one, torch.Tensor) and one.shape == (2, 3) for one in kept)


def check_memory(module: nn.Module, config: Config) -> None:
    """Check that a call may take what training a module takes on the CPU, before it takes it.

    At a hop's end its state is written out beside itself, when gradients are gone.

    Raises:
        OutOfMemory, InvalidHyperparameter
    """
    choice = config.optimizer
    name = choice.name, json.dumps(choice.arguments, sort_keys=True, default=str)
    if name not in _copies:
        _copies[name] = check_steps(config)
    weights = sum(p.nbytes for p in module.parameters())
    trained = sum(p.nbytes for p in module.parameters() if p.requires_grad)
    state = weights + _copies[name] * trained
    require(state + max(state, trained), "Training the model")


#: By an optimizer's name and arguments, what `check_steps` returns.
_copies: dict[tuple[str, str], int] = {}


def advance(schedule: LRScheduler, optimizer: torch.optim.Optimizer, count: int) -> None:
    """Bring a fresh schedule to where it is after `count` steps of its own."""
    took_step(optimizer)
    for _ in range(count):
        schedule.step()


def step_of(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Return the optimizer's step without torch's profiler around it: the same arithmetic.

    The profiler's entry takes 25 microseconds, a tenth of a small model's step, and hooks of steps,
    which it calls, are for optimizers that are in a user's hands.
    """
    wrapped = getattr(type(optimizer).step, "__wrapped__", None)
    if wrapped is None or not getattr(type(optimizer).step, "hooked", False):
        return optimizer.step
    return partial(wrapped, optimizer)


@contextmanager
def scaled(optimizer: torch.optim.Optimizer, lr_scale: float) -> Iterator[None]:
    """Inside the block the learning rates are multiplied; afterwards they are what they were."""
    before = [group["lr"] for group in optimizer.param_groups]
    for group, lr in zip(optimizer.param_groups, before, strict=True):
        group["lr"] = lr * lr_scale
    try:
        yield
    finally:
        for group, lr in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = lr


def took_step(optimizer: torch.optim.Optimizer) -> None:
    """Tell torch that a step was due: a schedule that steps after a skipped one would warn."""
    optimizer._opt_called = True  # type: ignore[attr-defined]


@contextmanager
def refusing(what: str, name: str) -> Iterator[None]:
    """Blame a hyper-parameter for whatever torch raises: it checks little and late."""
    try:
        yield
    except Exception as error:
        if stops_the_caller(error):
            raise
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InvalidHyperparameter(f"{what} {name!r}: {reason}") from error
