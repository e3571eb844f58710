"""The hop: (state in, partition, configuration, seed) -> (state out, metrics). No I/O.

Random numbers come from the hop's own generator: torch's default generator is seeded for the hop
and put back as it was, so that dropout inside any module draws from it, and nothing outside the
hop sees it. A process runs one hop at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmdb.data.decoding import IGNORED, Target
from mmdb.errors import Cancelled, MmdbError, NotANumber, TrainingFailed, stops_the_caller
from mmdb.memory import require, shortage
from mmdb.train.candidate.setup import Setup, augmentation_generator
from mmdb.train.compute.device import CPU, autocast
from mmdb.train.compute.exact import environment, exact
from mmdb.train.compute.live import Live
from mmdb.train.compute.optimizer import Planner, Portion, scaled, step_of, steps, took_step
from mmdb.train.values.row_batch import (
    Inputs,
    Labels,
    call,
    fitted,
    inputs_to,
    labels_to,
    outputs_of,
    row_count,
    take_inputs,
    take_labels,
    tensors_in,
)
from mmdb.train.values.runtime import trace_of

#: Rows of one forward pass when nothing is learned.
EVALUATION_BATCH = 1024
#: Tokens of one forward pass when nothing is learned: each has an output for every token there is.
EVALUATION_TOKENS = 4096
#: Losses that wait on the device before they are added up, so that a step waits for none.
_WAITING_LOSSES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class HopOutcome:
    """What a pass over a partition measured."""

    rows: int
    steps: int  # of the optimizer
    loss: float  # mean over the rows
    metrics: dict[str, float]
    environment: str
    objective: float | None = None  # of a validation: the value that candidates are compared by


def train_pass(
    live: Live,
    x: Inputs,
    y: Labels,
    *,
    setup: Setup,
    seed: int,
    ends_epoch: bool,
    stopped: Callable[[], bool] = lambda: False,
    plan: Planner | None = None,
    reduce: Callable[[nn.Module], None] | None = None,
) -> HopOutcome:
    """Train `live` in place for one pass over a partition.

    Args:
        x, y: the rows, on `live.device` or on the CPU, from where they go batch by batch.
        ends_epoch: whether this is the candidate's last train hop of the epoch, after which a
            schedule `per` epoch steps.
        stopped: asked between steps.
        plan: from the pass's row order to its steps; the configuration's batches if left out.
        reduce: called with the module after the backward passes of each step, before gradients
            are clipped; it may change them. Under float16 they are still scaled.
    Raises:
        NotANumber, TrainingFailed, Cancelled
    """
    config = setup.config
    planned = plan or (lambda order: steps(order, config.batch_size, config.accumulate))
    live.module.train()
    total = Total()
    taken = 0
    with exact(seed, device=live.device):
        learner = Learner(live, setup, x, y, seed)
        batch_rows = min(config.batch_size, row_count(x))
        require(batch_rows * sum(t[:1].nbytes for t in tensors_in(x)), "A batch")
        with blaming_the_model():
            order = torch.randperm(row_count(x)).to(tensors_in(x)[0].device)
            for portions in planned(order):
                if stopped():
                    raise Cancelled("The hop was cancelled.")
                learner.backward(portions, total)
                if reduce is not None:
                    reduce(live.module)
                learner.update()
                taken += 1
            if ends_epoch:
                learner.end_epoch()
        live.optimizer.zero_grad()  # gradients would double what a live state takes
        live.generator = torch.get_rng_state()
        here = environment(live.device)
    mean = total.mean()
    if not math.isfinite(mean):
        raise NotANumber(f"The loss became {mean}.")
    if ends_epoch and not all(p.isfinite().all() for p in live.module.parameters()):
        raise NotANumber("A weight became infinite or not a number.")
    return HopOutcome(rows=row_count(x), steps=taken, loss=mean, metrics={}, environment=here)


class Learner:
    """The steps of a pass, one by one; used inside `exact`."""

    def __init__(self, live: Live, setup: Setup, x: Inputs, y: Labels, seed: int) -> None:
        self._live, self._setup, self._x, self._y = live, setup, x, y
        self._criterion = setup.criterion.to(live.device)
        self._moves = any(t.device != live.device for t in (*tensors_in(x), *tensors_in(y)))
        self._generator = augmentation_generator(seed, live.device)
        self._step = step_of(live.optimizer)
        self._parameters = [p for group in live.optimizer.param_groups for p in group["params"]]
        if live.scaler is not None:
            live.scaler.scale(torch.zeros((), device=live.device))  # it may see no loss here

    def backward(self, portions: Sequence[Portion], total: Total) -> None:
        """Leave the gradients of a step in the module's parameters, scaled under float16.

        A parameter that no portion has reached has no gradient (`None`).
        """
        for parameter in self._parameters:  # as zero_grad, without its 20 microseconds of hooks
            parameter.grad = None
        for portion in portions:
            if len(portion.index):
                loss = self._loss(portion.index)
                total.add(loss, len(portion.index))
                share = torch.full_like(loss, portion.share)
                if self._live.scaler is not None:
                    loss = self._live.scaler.scale(loss)
                loss.backward(share)

    def _loss(self, index: Tensor) -> Tensor:
        live, setup = self._live, self._setup
        x, y = take_inputs(self._x, index), take_labels(self._y, index)
        if self._moves:
            x, y = inputs_to(x, live.device), labels_to(y, live.device)
        if setup.augmentation:
            x = setup.augmentation(x, self._generator)
        if live.frozen is not None:
            x = features(live.frozen, x)
        if setup.config.amp is None:
            return self._criterion(outputs_of(call(live.module, x), setup.targets), y)
        with autocast(live.device, setup.config.amp):
            result = call(live.module, x)
        outputs = [output.float() for output in outputs_of(result, setup.targets)]
        return self._criterion(outputs, y)

    def update(self) -> None:
        """Clip the gradients, step the optimizer, and a schedule `per` step."""
        live, config = self._live, self._setup.config
        if live.scaler is not None:
            live.scaler.unscale_(live.optimizer)
        if config.clip_norm is not None:
            nn.utils.clip_grad_norm_(live.module.parameters(), config.clip_norm)
        if config.clip_value is not None:
            nn.utils.clip_grad_value_(live.module.parameters(), config.clip_value)
        if self._setup.lr_scale == 1.0:
            self._take_step()
        else:
            with scaled(live.optimizer, self._setup.lr_scale):
                self._take_step()
        took_step(live.optimizer)
        if live.schedule is not None and config.schedule_per == "step":
            live.schedule.step()

    def _take_step(self) -> None:
        live = self._live
        if live.scaler is None:
            self._step()
        else:
            live.scaler.step(live.optimizer)
            live.scaler.update()

    def end_epoch(self) -> None:
        """Step a schedule `per` epoch."""
        if self._live.schedule is not None and self._setup.config.schedule_per == "epoch":
            self._live.schedule.step()


class Total:
    """A sum of losses over rows, in float64, which lets no step wait for the device."""

    def __init__(self) -> None:
        self._sum, self._rows = 0.0, 0
        self._waiting: list[tuple[Tensor, int]] = []

    def add(self, loss: Tensor, rows: int) -> None:
        """Add the mean loss of some rows."""
        self._waiting.append((loss.detach(), rows))
        self._rows += rows
        if len(self._waiting) == _WAITING_LOSSES:
            self._settle()

    def mean(self) -> float:
        """Return the mean over all rows; 0 over none."""
        self._settle()
        return self._sum / self._rows if self._rows else 0.0

    def _settle(self) -> None:
        if self._waiting:
            losses = torch.stack([loss for loss, _ in self._waiting]).tolist()
            for loss, (_, rows) in zip(losses, self._waiting, strict=True):
                self._sum += loss * rows
            self._waiting.clear()


@contextmanager
def blaming_the_model() -> Iterator[None]:
    """Turn whatever a user's module raises into TrainingFailed, with the traceback."""
    try:
        yield
    except MmdbError:
        raise
    except BaseException as error:  # the module is the owner's code, and may call sys.exit()
        if stops_the_caller(error):
            raise
        if (short := shortage(error)) is not None:
            raise short from error
        failed = TrainingFailed(f"{type(error).__name__}: {error}")
        failed.trace = trace_of(error)
        raise failed from error


def validate_pass(
    live: Live,
    x: Inputs,
    y: Labels,
    *,
    setup: Setup,
    stopped: Callable[[], bool] = lambda: False,
) -> HopOutcome:
    """Measure `live` on a partition, in float32, and change nothing in it.

    Raises:
        NotANumber, TrainingFailed, Cancelled
    """
    with exact(0, device=live.device), blaming_the_model():
        if setup.targets[0].task == "next_token":
            return _validate_tokens(live, x, tensors_in(y)[0], setup, stopped)
        outputs = outputs_on(
            live.module, x, setup.targets, device=live.device, frozen=live.frozen, stopped=stopped
        )
        return measured(outputs, labels_to(y, live.device), setup, live.device)


def _validate_tokens(
    live: Live, x: Inputs, y: Tensor, setup: Setup, stopped: Callable[[], bool]
) -> HopOutcome:
    """Measure next tokens a few rows at a time: all outputs together would not fit into memory."""
    criterion, count, total = setup.criterion.to(live.device), 0, 0.0
    found: list[Tensor] = []
    for index in torch.arange(len(y)).split(max(1, EVALUATION_TOKENS // y.shape[1])):
        (output,) = outputs_on(
            live.module,
            take_inputs(x, index.to(tensors_in(x)[0].device)),
            setup.targets,
            device=live.device,
            frozen=live.frozen,
            stopped=stopped,
        )
        labels = y.index_select(0, index.to(y.device)).to(live.device)
        found.append(label_logs(output, labels).to(CPU))
        if tokens := int((labels != IGNORED).sum()):
            total += float(criterion([output.float()], labels)) * tokens
            count += tokens
    loss = total / count if count else math.nan
    return _outcome([torch.cat(found)], [y.to(CPU)], loss, setup, live.device)


def label_logs(output: Tensor, labels: Tensor) -> Tensor:
    """Return the logarithm of the probability of each label (n, length); 0 where there is none.

    Args:
        output: (n, length, tokens).
    """
    logits = output.float().transpose(1, 2)
    cost = nn.functional.cross_entropy(logits, labels, reduction="none", ignore_index=IGNORED)
    return -cost


def outputs_on(
    module: nn.Module,
    x: Inputs,
    targets: Sequence[Target],
    *,
    device: torch.device = CPU,
    frozen: nn.Module | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Tensor]:
    """Return a module's outputs of a partition's rows for each target; used inside `exact`.

    Args:
        frozen: layers that rows pass first.
    Raises:
        Cancelled
    """
    found: list[tuple[Tensor, ...]] = []
    for index in torch.arange(row_count(x)).split(EVALUATION_BATCH):
        if stopped():
            raise Cancelled("The hop was cancelled.")
        batch = take_inputs(x, index.to(tensors_in(x)[0].device))
        batch = inputs_to(batch, device)
        if frozen is not None:
            batch = features(frozen, batch)
        found.append(outputs_of(predict(module, batch), targets))
    return [torch.cat(parts) for parts in zip(*found, strict=True)]


def measured(
    outputs: Sequence[Tensor], labels: Labels, setup: Setup, device: torch.device
) -> HopOutcome:
    """Return what a validation says of outputs beside the labels, all on a device.

    Raises:
        NotANumber
    """
    loss = float(setup.criterion.to(device)(outputs, labels))
    true = [label.to(CPU) for label in tensors_in(labels)]  # weights come after labels
    fitting = [fitted(o.to(CPU), y) for o, y in zip(outputs, true, strict=False)]
    return _outcome(fitting, true, loss, setup, device)


def _outcome(
    fitting: Sequence[Tensor],
    true: Sequence[Tensor],
    loss: float,
    setup: Setup,
    device: torch.device,
) -> HopOutcome:
    here = environment(device)
    if not math.isfinite(loss):
        raise NotANumber(f"The validation loss became {loss}.")
    metrics = setup.measure(fitting, true)
    return HopOutcome(
        rows=len(true[0]),
        steps=0,
        loss=loss,
        metrics=metrics,
        environment=here,
        objective=setup.objective.value(metrics, loss),
    )


def features(frozen: nn.Module, x: Inputs) -> Tensor:
    """Return what frozen layers, which are in evaluation mode, make of a batch."""
    with torch.no_grad():
        found: Tensor = call(frozen, x)  # type: ignore[assignment]
        return found.float()


def predict(module: nn.Module, x: Inputs) -> object:
    """Return the module's output for a batch, in evaluation mode."""
    module.eval()
    with torch.no_grad():
        return call(module, x)
