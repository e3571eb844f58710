"""The passes of workers that train one candidate together, and the averages of their models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate as running
from itertools import pairwise
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from mmdb.errors import EnvironmentChanged, StatesDiffer
from mmdb.store.files.safetensors_format import decode
from mmdb.train.candidate.setup import Setup
from mmdb.train.compute.exact import environment, exact
from mmdb.train.compute.hop import HopOutcome, train_pass
from mmdb.train.compute.live import Live
from mmdb.train.compute.optimizer import Planner, Portion, steps
from mmdb.train.group.collectives import Communicator
from mmdb.train.values.row_batch import Inputs, Labels, row_count


class WeightedMean:
    """The mean of sets of tensors that have the same names, element by element.

    Floats are summed in float64 in the order in which they are added, and cast back. Integers
    count something and take the maximum, as does each tensor that `counts` names. A tensor that is
    equal in all sets stays as it is, to the bit. In memory: the sum of what differs, in float64,
    and one set.
    """

    def __init__(self, counts: Callable[[str], bool] = lambda name: False) -> None:
        self._counts = counts
        self._entries: dict[str, _Entry] = {}

    def add(self, tensors: Mapping[str, Tensor], weight: int) -> None:
        """Add a set; a name that other sets lack is averaged over those that have it.

        Args:
            weight: at least 1, for example a number of rows.
        Raises:
            StatesDiffer: a tensor has another shape or dtype than in the sets before.
        """
        for name, tensor in tensors.items():
            entry = self._entries.get(name)
            if entry is None:
                self._entries[name] = _Entry(tensor, weight, self._counts(name))
            elif not entry.fits(tensor):
                raise StatesDiffer(
                    f"{name} is {tensor.dtype} {tuple(tensor.shape)} in one state and "
                    f"{entry.value.dtype} {tuple(entry.value.shape)} in another."
                )
            else:
                entry.add(tensor, weight)

    def result(self) -> dict[str, Tensor]:
        """Return the mean of what was added."""
        return {name: entry.mean() for name, entry in self._entries.items()}


class _Entry:
    """One tensor's mean."""

    def __init__(self, value: Tensor, weight: int, counts: bool) -> None:
        self.value = value  # equal in all sets so far, or the maximum
        self._sum: Tensor | None = None  # once two have differed
        self._weight = weight
        self._maximum = counts or not (value.is_floating_point() or value.is_complex())

    def fits(self, tensor: Tensor) -> bool:
        return tensor.shape == self.value.shape and tensor.dtype == self.value.dtype

    def add(self, tensor: Tensor, weight: int) -> None:
        if self._maximum:
            self.value = torch.maximum(self.value, tensor)
            return
        if self._sum is None and not torch.equal(self.value, tensor):
            self._sum = _weighted(self.value, self._weight)
            self.value = torch.empty_like(self.value, device="meta")  # its shape and dtype
        if self._sum is not None:
            self._sum += _weighted(tensor, weight)
        self._weight += weight

    def mean(self) -> Tensor:
        if self._sum is None:
            return self.value
        return (self._sum / self._weight).to(self.value.dtype)


def _weighted(tensor: Tensor, weight: int) -> Tensor:
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.to(wide, copy=True).mul_(weight)


_GENERATOR = "generator"
_OPTIMIZER = "optimizer."


def average(states: Iterable[bytes], weights: Sequence[int]) -> bytes:
    """Return the mean of a candidate's encoded states, encoded as they are.

    Weights, float buffers and the floats of the optimizer's state are means, weighted, summed in
    float64 in the order given and cast back; what is equal in all states stays as it is. Integers
    and the optimizer's counts of steps take the maximum. Hyper-parameters of the optimizer's
    groups, the schedule, the scaler and the generator are those of the first state. An entry that
    the optimizer made in some of the passes only is averaged over those. In memory: one state, and
    a sum of twice its size.

    Args:
        states: at least one, in the order of their partitions; taken one by one.
        weights: rows of each state's partition, each at least 1.
    Raises:
        StatesDiffer: the states are not of one candidate.
    Source: McDonald, Hall and Mann, Distributed Training Strategies for the Structured Perceptron,
        NAACL 2010 (iterative parameter mixing).
    """
    mean = WeightedMean(counts=_counts_steps)
    first: tuple[set[str], Tensor, dict[str, Any]] | None = None
    for state, weight in zip(states, weights, strict=True):
        tensors, header = decode(state)
        generator = tensors.pop(_GENERATOR)
        names = {name for name in tensors if not name.startswith(_OPTIMIZER)}
        if first is None:
            first = names, generator, header
        elif names != first[0] or header["aliases"] != first[2]["aliases"]:
            raise StatesDiffer("The states to be averaged are of modules with other tensors.")
        mean.add(tensors, weight)
    if first is None:
        raise StatesDiffer("There is no state to be averaged.")
    metadata = {"mmdb": json.dumps(first[2], sort_keys=True)}
    return safetensors.torch.save(mean.result() | {_GENERATOR: first[1]}, metadata)


def _counts_steps(name: str) -> bool:
    """Return whether a tensor counts an optimizer's steps, which torch keeps as a float."""
    return name.startswith(_OPTIMIZER) and name.endswith(".step")


def portion_sizes(rows: Sequence[int], batch_size: int) -> list[tuple[int, ...]]:
    """Return how many rows each rank puts through in each batch of the group.

    There are ceil(sum(rows) / batch_size) batches, and each rank's rows are split among them as
    evenly as can be. A portion has two rows or more, or none: BatchNorm cannot learn from a single
    row. Where that leaves a rank with fewer portions than batches, they are spread, and ranks take
    turns.

    Args:
        rows: of each rank's partition, at least 1.
        batch_size: of the group, not of a rank.

    >>> portion_sizes([6, 5], 4)
    [(2, 2), (2, 0), (2, 3)]
    >>> portion_sizes([4, 4], 2)
    [(2, 0), (0, 2), (2, 0), (0, 2)]
    """
    batches = -(-sum(rows) // batch_size)
    found = [[0] * len(rows) for _ in range(batches)]
    for rank, count in enumerate(rows):
        pieces = min(batches, max(1, count // 2))
        for piece in range(pieces):
            batch = (piece * len(rows) + rank) * batches // (pieces * len(rows))
            found[batch][rank] = (piece + 1) * count // pieces - piece * count // pieces
    return [tuple(sizes) for sizes in found if any(sizes)]


def group_plan(rows: Sequence[int], rank: int, batch_size: int, accumulate: int = 1) -> Planner:
    """Return the plan of one rank's pass, which has as many steps as that of each other rank.

    A step takes `accumulate` batches of the group. A portion's share is its part of all rows of
    the step, so that the sum of the ranks' gradients is that of the mean loss over those rows. A
    group of one has the plan of an ordinary hop.

    Args:
        rows: of each rank's partition, in rank order.
        batch_size: of the group, not of a rank.
    """
    if len(rows) == 1:
        return lambda order: steps(order, batch_size, accumulate)
    batches = portion_sizes(rows, batch_size)
    ends = [0, *running(sizes[rank] for sizes in batches)]

    def plan(order: Tensor) -> list[list[Portion]]:
        parts = [order[low:high] for low, high in pairwise(ends)]
        found = []
        for first in range(0, len(batches), accumulate):
            chosen = slice(first, first + accumulate)
            total = sum(map(sum, batches[chosen]))
            found.append([Portion(part, len(part) / total) for part in parts[chosen]])
        return found

    return plan


class _Bucket:
    """Parameters whose gradients are summed in one tensor; a flag for each stands at the end."""

    def __init__(self, parameters: Sequence[nn.Parameter], dtype: torch.dtype) -> None:
        self._parameters = parameters
        self._sizes = [*(one.numel() for one in parameters), len(parameters)]
        device = parameters[0].device
        self._flat = torch.empty(sum(self._sizes), dtype=dtype, device=device)
        self._parts = self._cut(self._flat)

    def pack(self) -> Tensor:
        *parts, flags = self._parts
        gradients = [one.grad for one in self._parameters]
        filled, dense = [], []
        for part, gradient in zip(parts, gradients, strict=True):
            if gradient is None:
                part.zero_()
            else:
                filled.append(part)
                dense.append(gradient.to_dense() if gradient.is_sparse else gradient)
        if filled:
            torch._foreach_copy_(filled, dense)
        flags.copy_(torch.tensor([one is not None for one in gradients]))
        return self._flat

    def unpack(self, flat: Tensor) -> None:
        *parts, flags = self._parts if flat is self._flat else self._cut(flat)
        for parameter, part, flag in zip(self._parameters, parts, flags.tolist(), strict=True):
            parameter.grad = part.to(parameter.dtype) if flag else None

    def _cut(self, flat: Tensor) -> list[Tensor]:
        *parts, flags = flat.split(self._sizes)
        shaped = [p.view(q.shape) for p, q in zip(parts, self._parameters, strict=True)]
        return [*shaped, flags]


class Gradients:
    """The gradients of a module's parameters: float64 in one flat tensor, all else in float32.

    A flag says whether a parameter has a gradient. Where no rank has one it stays without: an
    optimizer would step on zeros, and weight decay shrink it.
    """

    def __init__(self, module: nn.Module) -> None:
        found: dict[torch.dtype, list[nn.Parameter]] = {}
        for parameter in module.parameters():
            if parameter.requires_grad:
                dtype = torch.float64 if parameter.dtype == torch.float64 else torch.float32
                found.setdefault(dtype, []).append(parameter)
        self._buckets = [_Bucket(some, dtype) for dtype, some in found.items()]

    def sum(self, communicator: Communicator) -> None:
        """Let the sums of all members' be the parameters' gradients."""
        flats = self.pack()
        for flat in flats:
            communicator.sum(flat)
        self.unpack(flats)

    def pack(self) -> list[Tensor]:
        """Copy the gradients into the flat tensors and return those; a missing one is zero."""
        return [bucket.pack() for bucket in self._buckets]

    def unpack(self, flats: Sequence[Tensor]) -> None:
        """Let sums of packed gradients be the parameters' gradients; float32 ones share memory."""
        for bucket, flat in zip(self._buckets, flats, strict=True):
            bucket.unpack(flat)


def group_pass(
    live: Live,
    x: Inputs,
    y: Labels,
    *,
    communicator: Communicator,
    state: str,
    setup: Setup,
    seed: int,
    ends_epoch: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[HopOutcome, ...]:
    """Train `live` in place with the other members of a group, each on a partition of its own.

    The configuration's batch_size is the group's. Dropout and row order are of each rank's own
    seed. At the end float buffers, such as BatchNorm's running statistics, become the mean over the
    ranks weighted by rows, integer buffers the maximum, and the generator is rank 0's.

    Args:
        x, y: the rows of this rank's partition.
        state: hash in hex of the state that `live` is in.
        seed: of the hop of this rank's partition.
        ends_epoch: as in `train_pass`; the same for all ranks.
    Returns:
        Each rank's outcome, in rank order, the same on all ranks.
    Raises:
        StatesDiffer, EnvironmentChanged: the ranks would not go the same way.
        GroupBroken: a member was lost, or did not answer in time.
        NotANumber, TrainingFailed, Cancelled: on all ranks, whichever had it.
    """
    with communicator.during(stopped):
        rows = _begin(live, row_count(x), state, communicator)
        config, gradients = setup.config, Gradients(live.module)

        ready_scaler(live)
        outcome = train_pass(
            live,
            x,
            y,
            setup=setup,
            seed=seed,
            ends_epoch=ends_epoch,
            stopped=stopped,
            plan=group_plan(rows, communicator.group.rank, config.batch_size, config.accumulate),
            reduce=lambda _: gradients.sum(communicator),
        )
        return merge(live, communicator.gather(result(live, outcome)))


def _begin(live: Live, rows: int, state: str, communicator: Communicator) -> list[int]:
    """Check that all ranks start alike; return the rows of their partitions."""
    with exact(0, device=live.device):
        here = environment(live.device)
    mine = json.dumps({"state": state, "environment": here, "rows": rows})
    found = [json.loads(text) for text in communicator.gather(mine.encode())]
    for rank, other in enumerate(found):
        if other["state"] != found[0]["state"]:
            raise StatesDiffer(
                f"Rank {rank} of the group starts from state {other['state'][:12]}, "
                f"rank 0 from {found[0]['state'][:12]}."
            )
        if other["environment"] != found[0]["environment"]:
            raise EnvironmentChanged(
                f"Rank {rank} of the group has {other['environment']}, "
                f"rank 0 {found[0]['environment']}."
            )
    return [int(other["rows"]) for other in found]


def ready_scaler(live: Live) -> None:
    """Let a float16 scaler make its state, which a rank without rows in the first step needs."""
    if live.scaler is not None:
        live.scaler.scale(torch.zeros((), device=live.device))


def result(live: Live, outcome: HopOutcome) -> bytes:
    """Return what a rank tells the others at the end of a pass: buffers, generator and outcome."""
    whole = torch.contiguous_format  # safetensors takes no views, and none that share memory
    tensors = {
        path: buffer.detach().cpu().clone(memory_format=whole)
        for path, buffer in _buffers(live.module)
    }
    return safetensors.torch.save(
        tensors | {_GENERATOR: live.generator}, {"outcome": json.dumps(asdict(outcome))}
    )


def merge(live: Live, results: Sequence[bytes]) -> tuple[HopOutcome, ...]:
    """Give `live` the group's buffers and generator; return the ranks' outcomes.

    Args:
        results: what `result` returned on each rank, in rank order.
    """
    mean, outcomes = WeightedMean(), []
    for rank, message in enumerate(results):
        tensors = safetensors.torch.load(message)
        generator = tensors.pop(_GENERATOR)
        if rank == 0:
            live.generator = generator
        outcomes.append(HopOutcome(**_outcome(message)))
        mean.add(tensors, outcomes[-1].rows)
    merged = mean.result()
    with torch.no_grad():
        for path, buffer in _buffers(live.module):
            if not torch.equal(buffer.cpu(), merged[path]):
                buffer.copy_(merged[path])
    return tuple(outcomes)


def _outcome(message: bytes) -> dict[str, Any]:
    size = int.from_bytes(message[:8], "little")
    metadata = json.loads(message[8 : 8 + size])["__metadata__"]
    found: dict[str, Any] = json.loads(metadata["outcome"])
    return found


def _buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [(f"buffer.{path}", buffer) for path, buffer in module.named_buffers()]
