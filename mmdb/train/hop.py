"""The hop: (state in, partition, configuration, seed) -> (state out, metrics). No I/O.

Random numbers come from the hop's own generator: torch's default generator is seeded for the hop
and put back as it was, so that dropout inside any module draws from it, and nothing outside the
hop sees it. A process runs one hop at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from mmdb.errors import Cancelled, MmdbError, NotANumber, TrainingFailed
from mmdb.train.config import LOSSES, Config
from mmdb.train.live import Live

#: torch makes this switch at run time, where no type checker sees it.
_FILL = "fill_uninitialized_memory"
#: Rows of one forward pass when nothing is learned.
EVALUATION_BATCH = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a pass over a partition measured."""

    rows: int
    steps: int
    loss: float  # mean over the rows
    metrics: dict[str, float]
    environment: str


def environment() -> str:
    """Return what the bits of a hop depend on besides its inputs."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, {capability}, {torch.get_num_threads()} thread(s)"


@contextmanager
def exact(seed: int, threads: int = 1) -> Iterator[None]:
    """Inside the block torch is deterministic, uses `threads` threads and draws from `seed`."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
        torch.get_rng_state(),
        getattr(torch.utils.deterministic, _FILL),
    )
    torch.use_deterministic_algorithms(True)
    # Deterministic results do not read what they have not written; filling costs time.
    setattr(torch.utils.deterministic, _FILL, False)
    if before[1] != threads:
        torch.set_num_threads(threads)
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        if before[1] != threads:
            torch.set_num_threads(before[1])
        torch.set_rng_state(before[2])
        setattr(torch.utils.deterministic, _FILL, before[3])


def batches(order: torch.Tensor, size: int) -> list[torch.Tensor]:
    """Return row indices by batch; a last batch of one row joins the batch before it.

    BatchNorm cannot learn from a single row.
    """
    parts = list(order.split(size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def train_pass(
    live: Live,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    config: Config,
    task: str,
    seed: int,
    ends_epoch: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train `live` in place for one pass over a partition.

    Args:
        x: float32 (n, *input_shape)
        y: int64 (n,) class indices, or float32 (n,)
        ends_epoch: whether this is the candidate's last train hop of the epoch, after which a
            schedule `per` epoch steps.
        stopped: asked between steps.
    Raises:
        NotANumber, TrainingFailed, Cancelled
    """
    loss_function = LOSSES[task][config.loss]()
    live.module.train()
    total = 0.0
    steps = 0
    with exact(seed):
        with _blaming_the_model():
            for index in batches(torch.randperm(len(x)), config.batch_size):
                if stopped():
                    raise Cancelled("The hop was cancelled.")
                # index_select copies whole rows: a quarter of the time of x[index]
                batch = x.index_select(0, index), y.index_select(0, index)
                total += _step(live, loss_function, *batch) * len(index)
                steps += 1
                if live.schedule is not None and config.schedule_per == "step":
                    live.schedule.step()
            if live.schedule is not None and config.schedule_per == "epoch" and ends_epoch:
                live.schedule.step()
        live.optimizer.zero_grad()  # gradients would double what a live state takes
        live.generator = torch.get_rng_state()
        here = environment()
    mean = total / len(x)
    if not math.isfinite(total):
        raise NotANumber(f"The loss became {mean}.")
    if ends_epoch and not all(p.isfinite().all() for p in live.module.parameters()):
        raise NotANumber("A weight became infinite or not a number.")
    return Outcome(rows=len(x), steps=steps, loss=mean, metrics={}, environment=here)


@contextmanager
def _blaming_the_model() -> Iterator[None]:
    """Turn whatever a user's module raises into TrainingFailed."""
    try:
        yield
    except MmdbError:
        raise
    except Exception as error:  # the module is the owner's code
        raise TrainingFailed(f"{type(error).__name__}: {error}") from error


def _step(live: Live, loss_function: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    live.optimizer.zero_grad()
    loss: torch.Tensor = loss_function(_fit(live.module(x), y), y)
    loss.backward()
    live.optimizer.step()
    return loss.item()


def _fit(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Drop the last axis of a regression's (n, 1) output, so that it cannot broadcast."""
    return output.squeeze(-1) if y.is_floating_point() and output.ndim > y.ndim else output


def validate_pass(
    live: Live,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    config: Config,
    task: str,
    stopped: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Measure `live` on a partition and change nothing in it.

    Raises:
        NotANumber, TrainingFailed, Cancelled
    """
    outputs = []
    with exact(0), _blaming_the_model():
        for index in torch.arange(len(x)).split(EVALUATION_BATCH):
            if stopped():
                raise Cancelled("The hop was cancelled.")
            outputs.append(predict(live.module, x[index]))
        output = _fit(torch.cat(outputs), y)
        loss = float(LOSSES[task][config.loss]()(output, y))
        here = environment()
    if not math.isfinite(loss):
        raise NotANumber(f"The validation loss became {loss}.")
    found = metrics(output, y, task)
    return Outcome(rows=len(x), steps=0, loss=loss, metrics=found, environment=here)


def predict(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the module's output for a batch, in evaluation mode."""
    module.eval()
    with torch.no_grad():
        output: torch.Tensor = module(x)
    return output


def metrics(output: torch.Tensor, y: torch.Tensor, task: str) -> dict[str, float]:
    """Return accuracy in 0..1, or root mean squared and mean absolute error in label units."""
    if task == "classification":
        return {"accuracy": float((output.argmax(-1) == y).double().mean())}
    error = output.double() - y.double()
    return {"rmse": float(error.square().mean().sqrt()), "mae": float(error.abs().mean())}
