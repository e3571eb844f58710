"""A pass over a partition for a network per group: many groups step together, each by its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmdb.errors import Cancelled, DeviceMissing, InvalidHyperparameter, NotANumber
from mmdb.graph.grouped import COMMON, Grouped
from mmdb.train.candidate.setup import Setup
from mmdb.train.compute.device import CPU
from mmdb.train.compute.exact import environment, exact
from mmdb.train.compute.hop import HopOutcome, blaming_the_model
from mmdb.train.compute.live import Live
from mmdb.train.compute.optimizer import took_step
from mmdb.train.stack.flow import NotStackable
from mmdb.train.stack.forms import PLAIN, stacked
from mmdb.train.stack.updates import Updates, updates
from mmdb.train.stack.weights import Members, Steps, slots_of
from mmdb.train.values.row_batch import Labels, fitted, tensors_in

#: Steps of the common network, about, and rows of its batches, at most: it learns from all rows.
_COMMON_STEPS, _COMMON_BATCH = 256, 8192
#: Numbers of weights that step together, about: what the processor's caches hold; and the most
#: groups that do.
_TOGETHER, _MOST = 2**20, 512


def check_grouped(network: Grouped, setup: Setup, optimizer: torch.optim.Optimizer) -> None:
    """Check that a network per group can train as its configuration says.

    Raises:
        InvalidHyperparameter
    """
    config, (group, *_) = setup.config, optimizer.param_groups
    name = type(optimizer).__name__
    wrong = {
        f"optimizer {config.optimizer.name!r} with these arguments": not updates(name, group),
        "accumulate": config.accumulate != 1,
        "amp": config.amp is not None,
        "augmentation": bool(setup.augmentation),
        "a schedule per step": config.schedule_per == "step" and config.schedule is not None,
        "a registered loss": not isinstance(setup.criterion.losses[0], torch.nn.Module),
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            raise InvalidHyperparameter(
                f"A network per group cannot train with {what}.",
                hint="Use adam, adamw or sgd, a built-in loss, and a schedule per epoch.",
            )
    try:
        stacked([network.each], network.tensors(), [torch.Generator()], forms=PLAIN)
    except NotStackable as error:
        raise InvalidHyperparameter(
            f"A network per group cannot have the layer {error}.",
            hint="Use mlp without batch_norm, or linear; a text read as words as index or hash.",
        ) from error


def grouped_pass(
    live: Live,
    x: Tensor,
    y: Labels,
    *,
    setup: Setup,
    seed: int,
    ends_epoch: bool,
    stopped: Callable[[], bool] = lambda: False,
    patience: int | None = None,
    held_out: tuple[Tensor, Labels] | None = None,
) -> HopOutcome:
    """Train each group's network on its rows, in place, and the common one on all of them.

    The common network goes first; a group that has taken no step yet begins with its weights. A
    group whose numbers become infinite keeps the weights that it came with.

    Args: as of `mmdb.train.compute.hop.train_pass`, and
        patience: epochs without a better loss of its rows held out after which a group stops.
        held_out: those rows, where the epoch ends; each group's best weights are held by them.
    Raises:
        NotANumber: of the common network, or of all groups. DeviceMissing: it is on a GPU.
        TrainingFailed, Cancelled
    """
    if live.device != CPU:
        raise DeviceMissing(
            f"A network per group trains on the CPU, and this worker has {live.device}.",
            hint="Start it with --device cpu.",
        )
    with exact(seed), blaming_the_model():
        draw = torch.Generator().manual_seed(seed)
        hop = _Hop(live, setup, x, y, draw, stopped, patience)
        batch = setup.config.batch_size
        for part in hop.common():
            if not hop.train(part, max(batch, min(len(x) // _COMMON_STEPS, _COMMON_BATCH))):
                raise NotANumber("The common network's weights became infinite or not a number.")
        hop.begin_with_common()
        done = [hop.train(part, batch) for part in hop.parts()]
        if done and not any(done) and not hop.has_stopped.any():
            raise NotANumber("The weights of all groups became infinite or not a number.")
        hop.measure_stopped()
        if held_out is not None:
            hop.mark(*held_out)
        took_step(live.optimizer)
        if ends_epoch and live.schedule is not None:
            live.schedule.step()
        live.generator = draw.get_state()
        here = environment()
    return HopOutcome(
        rows=len(x), steps=hop.taken, loss=hop.loss / len(x), metrics={}, environment=here
    )


def group_losses(
    setup: Setup, codes: Tensor, outputs: Tensor, labels: Labels, groups: int
) -> Tensor:
    """Return the mean loss of each group's rows, float64 (groups,); NaN where none counts."""
    y, *weights = tensors_in(labels)
    output = outputs[..., : setup.targets[0].size]
    each = setup.criterion.each(fitted(output, y), y).double()
    share = weights[0] if weights else row_shares(setup, y)
    lost = codes.bincount(each * weights[0] if weights else each, groups)
    count = codes.bincount(share.double(), groups)
    return torch.where(count > 0, (lost / count).nan_to_num(torch.inf), torch.nan)


def row_shares(setup: Setup, y: Tensor) -> Tensor:
    """Return what the sum of losses of unweighted rows is divided by, (n,)."""
    loss = setup.criterion.losses[0]
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) and loss.weight is not None:
        return loss.weight[y]  # torch divides by the weights of the rows' classes
    return torch.ones(len(y))


@dataclass(slots=True)
class _Part:
    """Groups that step together, those of most rows first.

    Attributes:
        groups: int64 (members,).
        starts, counts: where each member's rows begin in `order`, and how many they are.
        order: of the partition's rows, int64.
        longest: rows of the largest member, those that have stopped among them: what is computed
            together has the same shape with them and without.
    """

    groups: Tensor
    starts: Tensor
    counts: Tensor
    order: Tensor
    longest: int

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the rows of each step, int64 (members that have any, n), and which of them count.

        A member's last batch has fewer rows than others': it is filled up by its first row.
        """
        for begin in range(0, int(self.counts[0]), size):
            left = self.counts - begin
            left = left[left > 0].clamp(max=size)
            within = torch.arange(min(self.longest - begin, size))
            counts = within < left[:, None]
            places = self.starts[: len(left), None] + torch.where(counts, within + begin, 0)
            yield self.order[places], counts


class _Hop:
    """What the groups of a hop share."""

    def __init__(
        self,
        live: Live,
        setup: Setup,
        x: Tensor,
        y: Labels,
        draw: torch.Generator,
        stopped: Callable[[], bool],
        patience: int | None,
    ) -> None:
        assert isinstance(live.module, Grouped)
        self._live, self._setup, self._draw, self._stopped = live, setup, draw, stopped
        self._network = live.module.train()
        self._codes, self._x = live.module.codes(x), live.module.rows(x)
        self._y, *weights = tensors_in(y)
        self._weights = weights[0] if weights else None
        self._slots = slots_of(live.module.each, skipped=1, unit=1)
        self._parameters = [*live.module.each.parameters()]
        waited = self._network.waited
        if waited is None or patience is None:
            waited, patience = torch.zeros_like(self._network.steps), 1
        self.has_stopped = waited >= patience  # bool (groups,)
        self.taken, self.loss = 0, 0.0

    def common(self) -> Iterator[_Part]:
        """Yield all rows for the common network, until it has stopped."""
        count = len(self._x)
        order, counts = torch.randperm(count, generator=self._draw), torch.tensor([count])
        if not self.has_stopped[COMMON]:
            yield _Part(torch.tensor([COMMON]), torch.zeros(1).long(), counts, order, count)

    def begin_with_common(self) -> None:
        """Give the common network's weights to groups that have taken no step."""
        new = (self._network.steps == 0).nonzero()[:, 0]
        with torch.no_grad():
            for parameter in self._parameters:
                parameter[new] = parameter[COMMON].clone()

    def parts(self) -> Iterator[_Part]:
        """Yield the groups that have rows here."""
        order = torch.randperm(len(self._x), generator=self._draw)
        order = order[self._codes[order].argsort(stable=True)]
        counts = self._codes.bincount(minlength=self._network.groups)
        starts = counts.cumsum(0) - counts
        counts[COMMON] = 0
        if self._weights is not None:  # a group of rows that count nothing has nothing to learn
            counts[self._codes.bincount(self._weights, self._network.groups) <= 0] = 0
        groups = counts.argsort(descending=True, stable=True)[: int((counts > 0).sum())]
        size = min(max(1, _TOGETHER // self._slots[-1].end), _MOST)
        for part in groups.split(size) if len(groups) else ():
            on = part[~self.has_stopped[part]]
            if len(on):
                yield _Part(on, starts[on], counts[on], order, int(counts[part[0]]))

    def train(self, part: _Part, size: int) -> bool:
        """Train the members; return whether any of them has finite weights."""
        groups = part.groups
        members, before = self._gathered(groups), self._network.steps[groups].tolist()
        name, config = type(self._live.optimizer).__name__, self._setup.config
        (group,) = self._live.optimizer.param_groups
        rate = float(group["lr"]) * self._setup.lr_scale
        total = torch.zeros(len(groups))
        steps, taken = None, 0
        for index, counts in part.batches(size):
            if self._stopped():
                raise Cancelled("The hop was cancelled.")
            count = len(index)
            if steps is None or len(steps.updates.steps) != count:
                own = members.first(count)
                steps = Steps(own, Updates(name, own.kept, [b + taken for b in before[:count]]))
                forward = stacked([self._network.each], steps.views, [self._draw], unit=1)
            rows = self._x.index_select(0, index.flatten()).view(*index.shape, -1)
            losses = self._losses(forward(rows), index, counts)
            total[:count] += losses.detach() * counts.sum(1)
            steps.take(losses, [config], [group], [rate])
            taken += 1
        finite = members.weights.isfinite().all(1) & total.isfinite()
        self._scatter(members, groups, finite)
        if groups[0] == COMMON:  # which answers for rows of no group
            self.loss += float(total[0] / len(self._x) * (self._codes == COMMON).sum())
        else:
            self.loss += float(total[finite].sum())
        steps_of = -(-part.counts // size)
        self._network.steps[groups] += steps_of * finite
        self.taken += int(steps_of.sum())
        return bool(finite.any())

    def _losses(self, outputs: Tensor, index: Tensor, counts: Tensor) -> Tensor:
        """Return each member's mean loss over the rows that count."""
        output = outputs[..., : self._setup.targets[0].size].flatten(0, 1)
        y = self._y.index_select(0, index.flatten())
        each = self._setup.criterion.each(fitted(output, y), y).view(index.shape)
        weights = counts.float() if self._weights is None else counts * self._weights[index]
        total = weights
        if self._weights is None:
            total = counts * row_shares(self._setup, y).view(index.shape)
        return (each * weights).sum(1) / total.sum(1).clamp(min=torch.finfo(torch.float32).tiny)

    @torch.no_grad()
    def measure_stopped(self) -> None:
        """Count the loss of rows that no group learns from any more."""
        rows = self.has_stopped[self._codes].nonzero()[:, 0]
        if len(rows):
            network, codes = self._network.eval(), self._codes[rows]
            labels = (self._y[rows], *([] if self._weights is None else [self._weights[rows]]))
            outputs = network.answers(codes, self._x[rows])
            found = group_losses(self._setup, codes, outputs, labels, network.groups)
            self.loss += float((found * codes.bincount(minlength=network.groups)).nansum())

    @torch.no_grad()
    def mark(self, x: Tensor, labels: Labels) -> None:
        """Hold the weights of groups that do better than before on the rows held out."""
        network = self._network.train()  # what answers is what has just been learned
        network.each.eval()
        codes, rows = network.codes(x), network.rows(x)
        every = torch.full_like(codes, COMMON)
        found, common = (
            group_losses(self._setup, own, network.answers(own, rows), labels, network.groups)
            for own in (codes, every)
        )
        found[COMMON] = common[COMMON]
        found[self.has_stopped | (network.steps == 0)] = torch.nan
        network.mark(found)

    def _gathered(self, groups: Tensor) -> Members:
        optimizer = self._live.optimizer
        members = Members.blank(self._slots, len(groups), type(optimizer).__name__)
        for slot, parameter in zip(self._slots, self._parameters, strict=True):
            slot.put(members.weights, parameter.detach()[groups])
            for kind, numbers in members.kept.items():
                slot.put(numbers, self._kept(parameter, kind)[groups])
        return members

    def _scatter(self, members: Members, groups: Tensor, finite: Tensor) -> None:
        with torch.no_grad():
            for slot, parameter in zip(self._slots, self._parameters, strict=True):
                parameter[groups[finite]] = slot.take(members.weights)[finite]
                for kind, numbers in members.kept.items():
                    self._kept(parameter, kind)[groups[finite]] = slot.take(numbers)[finite]

    def _kept(self, parameter: Tensor, kind: str) -> Tensor:
        """Return what the optimizer keeps of a parameter."""
        state = self._live.optimizer.state[parameter]
        if kind not in state:
            state[kind] = torch.zeros_like(parameter)
            if not isinstance(self._live.optimizer, torch.optim.SGD):
                state["step"] = torch.zeros(())  # torch wants one; `Grouped.steps` has each group's
        return state[kind]  # type: ignore[no-any-return]
