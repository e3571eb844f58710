"""A pass over a partition for several candidates at once: each as it would train in any stack."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.errors import Cancelled, NotANumber
from mmdb.graph import tabular
from mmdb.graph.grouped import Grouped
from mmdb.memory import require
from mmdb.train.candidate.setup import Setup
from mmdb.train.compute.device import CPU
from mmdb.train.compute.exact import environment, exact
from mmdb.train.compute.hop import HopOutcome, blaming_the_model, train_pass
from mmdb.train.compute.live import Live
from mmdb.train.compute.optimizer import batches, took_step
from mmdb.train.stack.flow import NotStackable, fill_rows
from mmdb.train.stack.forms import stacked
from mmdb.train.stack.grouped_pass import grouped_pass, row_shares
from mmdb.train.stack.updates import Updates, column, updates
from mmdb.train.stack.weights import Members, ParameterSlot, Steps, slots_of
from mmdb.train.values.row_batch import Inputs, Labels, Partition, outputs_of, row_count
from mmdb.train.values.spec import CandidateSpec

#: Of rows: numbers, and tokens.
_DTYPES = (torch.float32, torch.int64)
#: What a member's layers may put side by side for a batch: with more it would not learn faster.
_MOST_BYTES = 2**26


def stacks(live: Live, setup: Setup, x: Inputs) -> bool:
    """Return whether a candidate can train in a stack."""
    config, group = setup.config, live.optimizer.param_groups
    plain = (
        live.device == CPU and live.frozen is None and not live.omitted and live.scaler is None
        and config.amp is None and config.accumulate == 1 and not setup.augmentation
        and isinstance(x, Tensor) and x.dtype in _DTYPES and len(setup.targets) == 1
        and len(group) == 1 and updates(type(live.optimizer).__name__, group[0])
    )  # fmt: skip
    if not plain or not all(map(_is_plain, live.module.modules())):
        return False
    assert isinstance(x, Tensor)
    if _laid_out(live.module, x) * config.batch_size * 4 > _MOST_BYTES:
        return False
    parameters = [*live.module.named_parameters()]
    if len([*live.module.named_parameters(remove_duplicate=False)]) > len(parameters):
        return False  # one is in two layers
    if not all(p.requires_grad and p.dtype == torch.float32 for _, p in parameters):
        return False
    own = [*parameters, *live.module.named_buffers()]
    tensors = {path: tensor.detach()[None] for path, tensor in own}
    try:
        stacked([live.module], tensors, [torch.Generator()])
    except NotStackable:
        return False
    return True


def _laid_out(module: nn.Module, x: Tensor) -> int:
    """Return about how many numbers of a row convolutions and attention put side by side."""
    places = math.prod(x.shape[2:] if x.ndim > 3 else x.shape[1:])
    tokens = places if x.ndim > 3 else x.shape[1]
    found = 0
    for layer in module.modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d):
            found += layer.in_channels * math.prod(layer.kernel_size) * places
        elif isinstance(layer, nn.MultiheadAttention):
            found += layer.num_heads * tokens**2
    return found


def shape_of_stack(live: Live, setup: Setup) -> object:
    """Return what is equal for candidates of one stack, of those that `stacks` holds for."""
    config, smoothing = setup.config, _smoothing(setup)
    loss = (config.losses[0], config.class_weights) if smoothing is None else None
    layers = [
        (path, type(layer).__name__, _facts(layer)) for path, layer in live.module.named_modules()
    ]
    shapes = [(path, tuple(p.shape)) for path, p in live.module.named_parameters()]
    return repr((layers, shapes, type(live.optimizer).__name__, config.batch_size, loss))


#: Attributes of layers that members may differ in.
_SHARES = ("p", "dropout")


def _facts(layer: nn.Module) -> tuple[object, ...]:
    """Return what a layer is told beside its parameters; each may drop another share."""
    told = {
        name: value
        for name, value in vars(layer).items()
        if name not in _SHARES and isinstance(value, str | int | float | tuple | list | None)
    }
    numbers = layer.numbers.tolist() if isinstance(layer, tabular.ColumnInput) else None
    return told, numbers


def _is_plain(module: nn.Module) -> bool:
    """Return whether nothing has been hung on a module, which a stack would not call."""
    return not (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def candidate_pass(
    candidate: CandidateSpec,
    live: Live,
    x: Inputs,
    y: Labels,
    *,
    setup: Setup,
    seed: int,
    ends_epoch: bool,
    partition: Callable[[str], Partition],
    stopped: Callable[[], bool] = lambda: False,
) -> HopOutcome:
    """Train a candidate by itself: as in a stack, where its run stacks and it can.

    A network per group trains as `mmdb.train.stack.grouped_pass` does.

    Args and errors: as of `mmdb.train.compute.hop.train_pass`, and
        partition: from a key to its rows, of those that groups are compared on.
    """
    how: dict[str, Any] = {"ends_epoch": ends_epoch, "stopped": stopped}
    if isinstance(live.module, Grouped):
        assert isinstance(x, Tensor)  # rows of several inputs have no column of groups
        how["patience"] = candidate.group_patience
        if ends_epoch and candidate.held_out is not None:
            how["held_out"] = partition(candidate.held_out[1])
        return grouped_pass(live, x, y, setup=setup, seed=seed, **how)
    if candidate.stacks and isinstance(x, Tensor) and stacks(live, setup, x):
        return stacked_pass([live], x, y, setups=[setup], seeds=[seed], **how)[0]
    return train_pass(live, x, y, setup=setup, seed=seed, **how)


def stacked_pass(
    lives: Sequence[Live],
    x: Tensor,
    y: Labels,
    *,
    setups: Sequence[Setup],
    seeds: Sequence[int],
    ends_epoch: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> list[HopOutcome]:
    """Train candidates for which `stacks` holds, of one shape and batch size, in place.

    Args: as of `mmdb.train.compute.hop.train_pass`, for each member.
    Raises:
        NotANumber: a member's loss or weights, whatever those of the others are.
        TrainingFailed, Cancelled
    """
    count, size = row_count(x), setups[0].config.batch_size
    require(len(lives) * min(size, count) * x[:1].nbytes, "A batch")
    with exact(seeds[0]), blaming_the_model():
        stack = _Stack(lives, setups, seeds)
        orders = torch.stack([torch.randperm(count, generator=g) for g in stack.draws])
        losses, rows = [], []
        places = batches(torch.arange(count), size)
        for batch in places:
            if stopped():
                raise Cancelled("The hop was cancelled.")
            losses.append(stack.step(x, y, orders[:, int(batch[0]) : int(batch[-1]) + 1]))
            rows.append(len(batch))
        stack.write_back(ends_epoch=ends_epoch)
        here = environment()
    weights = torch.tensor(rows, dtype=torch.float64)
    means = (torch.stack(losses).double() * weights[:, None]).sum(0) / count
    for live, mean in zip(lives, means.tolist(), strict=True):
        if not math.isfinite(mean):
            raise NotANumber(f"The loss became {mean}.")
        if ends_epoch and not all(p.isfinite().all() for p in live.module.parameters()):
            raise NotANumber("A weight became infinite or not a number.")
    return [
        HopOutcome(rows=count, steps=len(places), loss=mean, metrics={}, environment=here)
        for mean in means.tolist()
    ]


class _Stack:
    """The members' weights in one tensor, and what changes them."""

    def __init__(
        self, lives: Sequence[Live], setups: Sequence[Setup], seeds: Sequence[int]
    ) -> None:
        self.draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._lives, self._setups = lives, setups
        self._groups = [live.optimizer.param_groups[0] for live in lives]
        self._slots = slots_of(lives[0].module)
        name = type(lives[0].optimizer).__name__
        self._members = Members.blank(self._slots, len(lives), name)
        for place, live in enumerate(lives):
            for slot, parameter in zip(self._slots, live.module.parameters(), strict=True):
                slot.put(self._members.weights[place], parameter.detach())
                state = live.optimizer.state.get(parameter, {})
                for kind, numbers in self._members.kept.items():
                    if state.get(kind) is not None:
                        slot.put(numbers[place], state[kind])
        steps = [_steps_of(live) for live in lives]
        self._steps = Steps(self._members, Updates(name, self._members.kept, steps))
        self._buffers = {
            path: torch.stack([live.module.get_buffer(path) for live in lives])
            for path, _ in lives[0].module.named_buffers()
        }
        for live in lives:
            live.module.train()
        modules = [live.module for live in lives]
        self._forward = stacked(modules, self._steps.views | self._buffers, self.draws)

    def step(self, x: Tensor, y: Labels, index: Tensor) -> Tensor:
        """Learn from a batch, int64 (members, n); return the loss of each member."""
        members, rows = index.shape
        flat = index.reshape(-1)
        outputs = self._forward(x.index_select(0, flat).view(members, rows, *x.shape[1:]))
        losses = self._losses(outputs.contiguous(), y, index)
        rates = [
            float(group["lr"]) * setup.lr_scale
            for group, setup in zip(self._groups, self._setups, strict=True)
        ]
        self._steps.take(losses, [setup.config for setup in self._setups], self._groups, rates)
        for live, setup in zip(self._lives, self._setups, strict=True):
            took_step(live.optimizer)
            if live.schedule is not None and setup.config.schedule_per == "step":
                live.schedule.step()
        return losses.detach()

    def _losses(self, outputs: Tensor, y: Labels, index: Tensor) -> Tensor:
        several = y if isinstance(y, tuple) else (y,)
        labels = [
            one.index_select(0, index.reshape(-1)).view(*index.shape, *one.shape[1:])
            for one in several
        ]
        if _is_by_row(self._setups[0]):
            return _means(self._setups, outputs, *labels)
        found = []
        for place, setup in enumerate(self._setups):
            own = tuple(one[place] for one in labels)
            output = outputs_of(outputs[place], setup.targets)
            found.append(setup.criterion(output, own if len(own) > 1 else own[0]))
        return torch.stack(found)

    def write_back(self, *, ends_epoch: bool) -> None:
        """Give each member what it has come to."""
        for place, (live, setup) in enumerate(zip(self._lives, self._setups, strict=True)):
            with torch.no_grad():
                for slot, parameter in zip(self._slots, live.module.parameters(), strict=True):
                    parameter.copy_(slot.take(self._members.weights[place]))
                    if self._groups[place].get("momentum", 1):  # torch's keeps nothing without
                        live.optimizer.state[parameter] = self._state(live, place, slot)
                for path, buffer in live.module.named_buffers():
                    buffer.copy_(self._buffers[path][place])
            if ends_epoch and live.schedule is not None and setup.config.schedule_per == "epoch":
                live.schedule.step()
            live.generator = self.draws[place].get_state()

    def _state(self, live: Live, place: int, slot: ParameterSlot) -> dict[str, Any]:
        state: dict[str, Any] = {
            kind: slot.take(numbers[place]).clone() for kind, numbers in self._members.kept.items()
        }
        if isinstance(live.optimizer, torch.optim.SGD):
            return state
        return {"step": torch.tensor(float(self._steps.updates.steps[place])), **state}


def _steps_of(live: Live) -> int:
    for state in live.optimizer.state.values():
        if "step" in state:
            return int(state["step"])
    return 0


def _smoothing(setup: Setup) -> float | None:
    """Return the label smoothing of a plain cross entropy; None of another loss."""
    loss = setup.criterion.losses[0]
    if isinstance(loss, nn.CrossEntropyLoss) and loss.weight is None and _is_by_row(setup):
        return float(loss.label_smoothing)
    return None


def _is_by_row(setup: Setup) -> bool:
    """Return whether a loss is known of each row."""
    is_built_in = isinstance(setup.criterion.losses[0], nn.Module)
    return is_built_in and setup.targets[0].task != "next_token"


def _means(
    setups: Sequence[Setup], outputs: Tensor, y: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Return the mean loss of each member: (members, n, ...) and (members, n, ...)."""
    members, rows = y.shape[:2]
    smoothing = [_smoothing(setup) for setup in setups]
    if None in smoothing:
        given = [fill_rows(x, 1).flatten(0, 1) for x in (outputs, y)]
        each = setups[0].criterion.each(*given).view(members, -1, _several(outputs))[:, :rows]
    else:
        each = _cross_entropy(outputs, y, column([float(s or 0) for s in smoothing]))
        if weights is None:
            return each.flatten(1).mean(1)
    if weights is None:
        share = row_shares(setups[0], y.flatten(0, 1)).view(members, rows)
    else:
        share, each = weights, each * weights[..., None]
    total = _several(outputs) * share.sum(1).clamp(min=torch.finfo(torch.float32).tiny)
    return each.flatten(1).sum(1) / total


def _several(outputs: Tensor) -> int:
    """Return how many members an ensemble has, each of which is compared by itself."""
    return outputs.shape[2] if outputs.ndim > 3 else 1


def _cross_entropy(outputs: Tensor, y: Tensor, smoothing: Tensor) -> Tensor:
    """Return the loss of each row of each of an ensemble: (members, n, several)."""
    shares = outputs.log_softmax(-1).view(*y.shape, -1, outputs.shape[-1])
    right = shares.gather(-1, y[:, :, None, None].expand(-1, -1, shares.shape[2], 1))[..., 0]
    if not smoothing.any():
        return -right
    share = smoothing[..., None]
    return -(right * (1 - share) + shares.mean(-1) * share)
