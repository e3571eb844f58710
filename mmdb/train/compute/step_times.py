"""Steps of a training, timed: those that a hop takes, on a copy that is thrown away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from time import perf_counter

from mmdb.errors import Cancelled, NotANumber
from mmdb.train.candidate.setup import Setup
from mmdb.train.compute.device import synchronize
from mmdb.train.compute.live import Live, encoding
from mmdb.train.values.jobs import StepTimes
from mmdb.train.values.row_batch import Inputs, row_count

#: Steps that are not counted, for what they load and allocate; and those that are, at most.
FIRST, MOST = 2, 60


def time_steps(
    lives: Sequence[Live],
    train: Callable[..., object],
    x: Inputs,
    *,
    setup: Setup,
    budget_s: float,
    stopped: Callable[[], bool] = lambda: False,
) -> StepTimes:
    """Train `lives` for some steps of one pass after the other, and say what each takes of them.

    The last step of a pass, which may have fewer rows, is left out where there are others.

    Args:
        train: trains them for a pass; told `ends_epoch` and `stopped`.
        x: of the pass.
    Raises:
        TrainingFailed, Cancelled
    """
    rows = min(setup.config.batch_size * setup.config.accumulate, row_count(x))
    found: list[float] = []
    live = lives[0]
    end = perf_counter() + budget_s
    while len(found) <= FIRST or (len(found) < FIRST + MOST and perf_counter() < end):
        times: list[float] = []
        is_enough = partial(_is_enough, live, stopped, times, FIRST + MOST - len(found), end)
        try:
            train(ends_epoch=False, stopped=is_enough)
        except Cancelled:
            if stopped():
                raise
        except NotANumber:  # it takes as long
            pass
        if len(times) == 1:  # a pass is a step
            synchronize(live.device)
            times.append(perf_counter())
        found += [b - a for a, b in pairwise(times)]
    counted = found[FIRST:] or found
    return StepTimes(
        rows=rows,
        steps=len(counted),
        seconds=median(counted) / len(lives),
        state_bytes=len(encoding(live)),
    )


def _is_enough(
    live: Live, stopped: Callable[[], bool], times: list[float], most: int, end: float
) -> bool:
    """Note when a step begins; return whether it is not to be taken."""
    synchronize(live.device)
    times.append(perf_counter())
    return stopped() or len(times) > most or (len(times) > FIRST + 1 and times[-1] > end)
