"""States: laid out and hashed, written out, taken up again, averaged; seconds over their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import nn

from mmdb.plan.profile.measures.timing import Allowance, Task, measure_sizes
from mmdb.plan.profile.row import Row
from mmdb.train.candidate.config import parse_config
from mmdb.train.compute.live import Live, build_live, encode, encoding, restore
from mmdb.train.group.average import average

#: Inputs and outputs of a layer without a bias; with Adam a state has 12 n * n bytes.
WIDTHS = (32, 128, 384, 768, 1536)


def measure_states(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Row]:
    """Measure what a hop does with its state."""
    return measure_sizes(allowance, [partial(_tasks, n, device) for n in WIDTHS])


def _tasks(width: int, device: torch.device) -> list[Task]:
    live = made_live(width, device)
    state = encode(live)
    other = encode(made_live(width, device, value=2e-3))  # equal tensors would not be added up
    size = float(len(state))
    return [
        Task("state_hash", size, lambda: encoding(live).digest()),
        Task("state_encode", size, lambda: encode(live)),
        Task("state_decode", size, lambda: restore(live, state)),
        Task("merge", 2 * size, lambda: average([state, other], [1, 1])),
    ]


def made_live(width: int, device: torch.device, value: float = 1e-3) -> Live:
    """Return a candidate of one layer that has taken a step of Adam."""
    config = parse_config({"optimizer": "adam"}, "regression")
    module = nn.utils.skip_init(nn.Linear, width, width, bias=False)
    nn.init.constant_(module.weight, value)
    live = build_live(module, config, device)
    module.weight.grad = torch.full_like(module.weight, value)
    live.optimizer.step()
    live.optimizer.zero_grad()
    live.generator = torch.get_rng_state()
    return live
