"""One training: the same seed gives the same curve."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mmdb.bench.figures import one_thread
from tests.bench.warm.tasks import Task

#: Evaluations at the end of a curve whose mean is its final score.
LAST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How all arms of a pair are trained.

    Attributes:
        steps: batches in all.
        every: steps between two evaluations; one comes before the first step too.
        warm_up: steps over which the learning rate rises from zero.
        gentle: steps over which a child of a gentle arm learns more slowly: the rate is
            multiplied by 1 - slower, but not by less than 0.3 (ModelKeeper, ray_tuner.py, where
            it is two epochs).
        averaging: decay, by step, of the exponential mean of the weights that is scored. At a
            constant rate the last weights scatter, and their luck would decide when a target is
            first reached (Polyak and Juditsky 1992).
    """

    steps: int
    every: int
    batch_size: int
    lr: float
    optimizer: Literal["sgd", "adamw"] = "sgd"
    weight_decay: float = 5e-4
    warm_up: int = 0
    gentle: int = 0
    averaging: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Scores on held-out data by step; `seconds` is the whole training's time."""

    steps: tuple[int, ...]
    scores: tuple[float, ...]
    seconds: float

    @property
    def final(self) -> float:
        """The mean of the last evaluations."""
        return mean(self.scores[-LAST:])

    def steps_to(self, target: float) -> int | None:
        """Return the step of the first evaluation that reaches the target, None if none does."""
        reached = (s for s, score in zip(self.steps, self.scores, strict=True) if score >= target)
        return next(reached, None)


def built(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return a module whose initial weights depend on the seed alone."""
    with drawn_from(seed):
        return make()


def train(
    module: nn.Module,
    task: Task,
    recipe: Recipe,
    seed: int,
    until: float | None = None,
    slower: float = 0.0,
) -> Curve:
    """Train a module in place, on one thread, and return its curve; it ends with the mean weights.

    Args:
        seed: of the order of the data.
        until: a score that ends the training at the evaluation that reaches it.
        slower: the fraction of the weights that a parent gave, in gentle arms.
    """
    started = perf_counter()
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    steps, scores = [0], [score(module, task)]
    with one_thread():
        optimizer = _optimizer(module, recipe)
        smooth = get_ema_multi_avg_fn(recipe.averaging)
        mean_of = AveragedModel(module, multi_avg_fn=smooth, use_buffers=True)
        batches = task.batches(recipe.batch_size, torch.Generator().manual_seed(seed))
        for step in range(1, recipe.steps + 1):
            for group in optimizer.param_groups:
                group["lr"] = _rate(recipe, step, slower)
            _step(module.train(), task, optimizer, *next(batches))
            mean_of.update_parameters(module)
            if step % recipe.every == 0:
                steps.append(step)
                scores.append(score(mean_of.module, task))
                if until is not None and scores[-1] >= until:
                    break
    module.load_state_dict(mean_of.module.state_dict())
    seconds = perf_counter() - started
    return Curve(steps=tuple(steps), scores=tuple(scores), seconds=seconds)


def score(module: nn.Module, task: Task) -> float:
    """Return the task's score of a module, on one thread."""
    with one_thread(), torch.inference_mode():
        return task.score(module.eval())


@contextlib.contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Let torch's own draws come from a seed, and put its generator back."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _step(
    module: nn.Module, task: Task, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor
) -> None:
    optimizer.zero_grad(set_to_none=True)
    task.loss(module(x), y).backward()
    optimizer.step()


def _rate(recipe: Recipe, step: int, slower: float) -> float:
    rate = recipe.lr * min(1.0, step / max(recipe.warm_up, 1))
    return rate * max(1 - slower, 0.3) if step <= recipe.gentle else rate


def _optimizer(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(
        parameters, lr=recipe.lr, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay
    )
