"""The same work in several workers at once: what one of them takes while the others are busy.

Whoever asks lets `count` workers begin at the same moment; each does the same for the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from time import perf_counter, sleep, time

import torch
from torch import nn

from mmdb.plan.profile.fits.points import coefficient_of_variation
from mmdb.plan.profile.measures.timing import LEAST, Allowance, Timed, Work
from mmdb.plan.profile.row import Row

_N = 256  # of a product
_NUMBERS = 2**22  # of a copy: beyond what the caches hold
_FEATURES, _HIDDEN, _BATCH = 64, 256, 64
#: When each kind ends, as a share of the whole time. Plans rest on the step, so it has most of it;
#: it comes last, as for a tenth of a second after a pause everything takes longer.
_ENDS = {"busy_product": 0.2, "busy_copy": 0.3, "busy_step": 1.0}
#: Seconds between two looks at whether to stop, while waiting to begin.
_POLL_S = 0.05


def measure_busy(
    allowance: Allowance,
    seed: int,
    device: torch.device,
    *,
    count: int,
    begin_at: float,
    lasts_s: float,
) -> Iterator[Row]:
    """Measure a product, a copy and a training step while `count` workers do.

    Args:
        begin_at: when all begin, in seconds since the epoch.
        lasts_s: how long all go on; see `_ENDS`.
    """
    works = _works(seed, device)
    for work in works.values():
        work()
    while (left_s := begin_at - time()) > 0:
        allowance.check()
        sleep(min(left_s, _POLL_S))
    begun = max(begin_at, time())
    for kind, end in _ENDS.items():
        yield _measured(allowance, works[kind], begun + lasts_s * end).row(kind, float(count))


def _measured(allowance: Allowance, work: Work, until: float) -> Timed:
    found: list[float] = []
    while time() < until or len(found) < LEAST:
        allowance.check()
        begun = perf_counter()
        work()
        found.append(perf_counter() - begun)
    return Timed(median(found), coefficient_of_variation(found), len(found))


def _works(seed: int, device: torch.device) -> dict[str, Work]:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.rand(_N, _N, generator=generator).to(device)
    source = torch.ones(_NUMBERS, device=device)
    return {
        "busy_product": partial(torch.mm, matrix, matrix),
        "busy_copy": partial(torch.empty_like(source).copy_, source),
        "busy_step": _step(generator, device),
    }


def _step(generator: torch.Generator, device: torch.device) -> Callable[[], object]:
    x = torch.rand(_BATCH, _FEATURES, generator=generator).to(device)
    y = torch.zeros(_BATCH, dtype=torch.long, device=device)
    layers = [(_FEATURES, _HIDDEN), (_HIDDEN, _HIDDEN), (_HIDDEN, 10)]
    weights = [
        (0.05 * torch.rand(m, n, generator=generator)).to(device).requires_grad_()
        for m, n in layers
    ]
    optimizer = torch.optim.Adam(weights, lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        value = x
        for weight in weights:
            value = torch.relu(value @ weight)
        nn.functional.cross_entropy(value, y).backward()
        optimizer.step()

    return step
