"""The timing of work: alone until its median is known, or in several workers at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean, median
from time import perf_counter, sleep, time
from typing import NamedTuple

import torch
from torch import nn

from mmdb.errors import Cancelled
from mmdb.plan.profile.fits import coefficient_of_variation
from mmdb.plan.profile.measurements import Measurement

#: A median is taken of at least so many, and of at most so many measurements.
LEAST, MOST = 5, 60
#: Relative standard error of the median at which measuring stops.
PRECISE = 0.01
#: Seconds that a single measurement takes at least: shorter work is repeated within it.
TICK_S = 5e-4
#: Seconds that what is loaded at a first run may take, and tries until a size counts as too long.
_START_S, _TRIES = 0.5, 2
#: Seconds for which the smallest sizes are measured in any case, even beyond the budget.
_SURE_S = (1.0, 0.25)
#: Measurements that one look at the clock of the budget may cost, at most.
_REPEATS = 4096

Work = Callable[[], object]


class Timed(NamedTuple):
    """Repeated measurements of one thing."""

    seconds: float  # the median
    deviation: float  # coefficient of variation
    samples: int

    def row(self, kind: str, size: float) -> Measurement:
        """Return what is kept of it."""
        return Measurement(
            kind=kind,
            size=size,
            value=self.seconds,
            deviation=self.deviation,
            samples=self.samples,
        )


class TimedTask(NamedTuple):
    """What is measured at one size."""

    kind: str
    size: float
    work: Work


class Allowance:
    """A time budget, and who may end it early."""

    def __init__(
        self,
        budget_s: float,
        stopped: Callable[[], bool] = lambda: False,
        *,
        synchronize: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Begin to spend.

        Args:
            stopped: asked between measurements.
            synchronize: waits until a device has done what it was asked for.
        """
        self._stopped, self._synchronize, self._clock = stopped, synchronize, clock
        self._deadline = clock() + budget_s

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._deadline - self._clock())

    def check(self) -> None:
        """Raise where the measuring was cancelled.

        Raises:
            Cancelled
        """
        if self._stopped():
            raise Cancelled("The calibration was cancelled.")

    def measure(
        self, work: Work, within_s: float | None = None, sure_s: float = 0.0
    ) -> Timed | None:
        """Return the median of a piece of work; None where LEAST measurements do not fit.

        More of them than LEAST are made `within_s`; LEAST may take `sure_s`, where that is longer.

        The first run is not counted: it pays for what is loaded and allocated once.

        Raises:
            Cancelled
        """
        within_s = self.left_s if within_s is None else within_s
        longest_s = max(within_s, sure_s)
        begun = self._clock()
        estimate_s = self._estimate(work, longest_s)
        repeats = min(_REPEATS, max(1, math.ceil(TICK_S / max(estimate_s, 1e-9))))
        if LEAST * repeats * estimate_s > longest_s:
            return None
        found: list[float] = []
        while not self._is_enough(found, within_s - (self._clock() - begun)):
            found.append(self._once(work, repeats))
        return Timed(median(found), coefficient_of_variation(found), len(found))

    def _estimate(self, work: Work, within_s: float) -> float:
        """Return what a run takes, the shortest of a few: the first may load a library."""
        first_s = self._once(work, 1)
        if LEAST * first_s > within_s and first_s > _START_S:
            return first_s
        estimate_s = self._once(work, 1)
        for _ in range(_TRIES):
            if LEAST * estimate_s <= within_s:
                break
            estimate_s = min(estimate_s, self._once(work, 1))
        return estimate_s

    def _once(self, work: Work, repeats: int) -> float:
        self.check()
        self._synchronize()
        begun = self._clock()
        for _ in range(repeats):
            work()
        self._synchronize()
        return (self._clock() - begun) / repeats

    @staticmethod
    def _is_enough(found: Sequence[float], left_s: float) -> bool:
        if len(found) < LEAST:
            return False
        middle = median(found)
        # Robust, or a pause that the system makes would count as a deviation of the work.
        deviation = 1.4826 * median(abs(value - middle) for value in found) / middle
        error = 1.2533 * deviation / math.sqrt(len(found))
        return error <= PRECISE or len(found) >= MOST or left_s <= 0


def measure_sizes(
    allowance: Allowance, cases: Sequence[Callable[[], Sequence[TimedTask]]]
) -> Iterator[Measurement]:
    """Yield the rows of tasks, size by size from the smallest, for as long as the budget lasts.

    Args:
        cases: each makes the tasks of one size; made one at a time, so that one is in memory.
    Raises:
        Cancelled
    """
    missed: set[str] = set()  # kinds of which a size was too long: a larger one would be, too
    for place, make in enumerate(cases):
        allowance.check()
        sure_s = _SURE_S[place] if place < len(_SURE_S) else 0.0
        if allowance.left_s <= 0 and not sure_s:
            return
        left_s = allowance.left_s * (1 - 1 / (len(cases) - place))  # for the sizes after this one
        tasks = [task for task in make() if task.kind not in missed]
        for number, task in enumerate(tasks):
            share_s = (allowance.left_s - left_s) / (len(tasks) - number)
            timed = allowance.measure(task.work, share_s, sure_s)
            if timed is None:
                missed.add(task.kind)
            else:
                yield timed.row(task.kind, task.size)


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
) -> Iterator[Measurement]:
    """Measure a product, a copy and a training step while `count` workers do.

    Whoever asks lets `count` workers begin at the same moment; each does the same for the same
    time.

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
    """Return the mean of a piece of work: the median one waits for no core where there are few."""
    found: list[float] = []
    while time() < until or len(found) < LEAST:
        allowance.check()
        begun = perf_counter()
        work()
        found.append(perf_counter() - begun)
    return Timed(fmean(found), coefficient_of_variation(found), len(found))


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
