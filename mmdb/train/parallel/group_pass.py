"""One pass of a group over as many partitions: gradients are summed at each step. No I/O but that.

The gradient of a step is that of the mean loss over the union of the ranks' rows, so the optimizers
of all ranks take the same step, and their states stay equal to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from mmdb.errors import EnvironmentChanged, StatesDiffer
from mmdb.train.batch import Inputs, Labels, row_count
from mmdb.train.candidate.setup import Setup
from mmdb.train.compute.exact import environment, exact
from mmdb.train.compute.hop import Outcome, train_pass
from mmdb.train.compute.live import Live
from mmdb.train.parallel.communicator import Communicator
from mmdb.train.parallel.gradients import Gradients
from mmdb.train.parallel.mean import WeightedMean
from mmdb.train.parallel.plan import group_plan

_GENERATOR = "generator"


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
) -> tuple[Outcome, ...]:
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

        def reduce(module: nn.Module) -> None:
            flats = gradients.pack()
            for flat in flats:
                communicator.sum(flat)
            gradients.unpack(flats)

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
            reduce=reduce,
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


def result(live: Live, outcome: Outcome) -> bytes:
    """Return what a rank tells the others at the end of a pass: buffers, generator and outcome."""
    whole = torch.contiguous_format  # safetensors takes no views, and none that share memory
    tensors = {
        path: buffer.detach().cpu().clone(memory_format=whole)
        for path, buffer in _buffers(live.module)
    }
    return safetensors.torch.save(
        tensors | {_GENERATOR: live.generator}, {"outcome": json.dumps(asdict(outcome))}
    )


def merge(live: Live, results: Sequence[bytes]) -> tuple[Outcome, ...]:
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
        outcomes.append(Outcome(**_outcome(message)))
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
