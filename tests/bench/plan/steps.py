"""Steps of many models: predicted before one was run, predicted from a few, and measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median, stdev
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from mmdb.data.decoding import Target
from mmdb.plan.calibration import calibrate
from mmdb.plan.profile.fits import Point, fit_line
from mmdb.plan.profile.machine_profile import profile_of
from mmdb.plan.profile.measurers import processes
from mmdb.plan.step.corrections import Residual, features, learn
from mmdb.plan.step.recording import batch_of
from mmdb.plan.step.roofline import speeds_of, step_seconds
from mmdb.plan.step.step_work import Work, work_of
from mmdb.train.candidate.setup import setup_of
from mmdb.train.compute.exact import exact
from mmdb.train.compute.hop import Learner, Total
from mmdb.train.compute.live import build_live
from mmdb.train.compute.optimizer import steps
from mmdb.train.values.runtime import keep_freed_memory
from tests.bench.plan.memory import peak_bytes
from tests.bench.plan.models import CLASSES, Model, rows_of

#: Rounds over all models, so that what changes with the hour is seen; the first one teaches.
ROUNDS = 5
#: Shares of the budget: the calibration's, and of the longest of them.
_CALIBRATION, _MOST_S = 0.2, 60.0
#: Steps of a block at least, of which the median is taken; seconds that one takes at most.
_LEAST, _BLOCK_S = 4, 0.4
#: A model by its name, and a batch.
Place = tuple[str, int]
_TARGETS = (Target(name="y", task="classification", size=CLASSES),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A training step of a model with Adam, its seconds and its process's bytes at the peak."""

    model: str
    family: str
    batch: int
    bare_s: float  # by the profile and the architecture alone
    cold_s: float  # the same, corrected by what steps of all other families took
    warm_s: float  # by a line through what was measured in the first round
    measured_s: float  # the median of the rounds after it
    deviation: float  # relative standard deviation, of rounds
    memory_predicted: float
    memory_measured: float | None  # None where it was not measured: all but the largest batch

    @property
    def bare_error(self) -> float:
        """Return the relative error of the prediction where nothing has ever run."""
        return self.bare_s / self.measured_s - 1

    @property
    def cold_error(self) -> float:
        """Return the relative error of the prediction where no model of the family has run."""
        return self.cold_s / self.measured_s - 1

    @property
    def warm_error(self) -> float:
        """Return the relative error of the line."""
        return self.warm_s / self.measured_s - 1

    @property
    def memory_error(self) -> float | None:
        """Return the relative error of the peak."""
        if self.memory_measured is None:
            return None
        return self.memory_predicted / self.memory_measured - 1


def measure_steps(models: Sequence[Model], budget_s: float) -> list[Step]:
    """Calibrate, predict the steps of all models, then measure them.

    Args:
        budget_s: about; rounds may take longer where models are large.
    """
    calibration_s = min(_MOST_S, _CALIBRATION * budget_s)
    with processes(1) as places:
        profile = profile_of(calibrate(places, calibration_s))
    speeds = speeds_of(profile)
    works = {model.name: _work(model) for model in models}
    bare = {
        (model.name, batch): step_seconds(works[model.name], speeds, batch)
        for model in models
        for batch in model.batches
    }
    points = {key: features(works[key[0]], speeds, key[1]) for key in bare}
    count = len(bare)
    within_s = min(_BLOCK_S, (budget_s - calibration_s) / ROUNDS / count / 2)
    keep_freed_memory()  # as a worker does
    rounds = [_round(models, within_s) for _ in range(ROUNDS)]
    found = []
    for model in models:
        residual = _learned_elsewhere(models, model.family, points, bare, rounds[0])
        line = fit_line(Point(b, rounds[0][model.name, b]) for b in model.batches)
        for batch in model.batches:
            seconds = [one[model.name, batch] for one in rounds]
            is_largest = batch == max(model.batches)
            place = model.name, batch
            found.append(
                Step(
                    model=model.name,
                    family=model.family,
                    batch=batch,
                    bare_s=bare[place],
                    cold_s=bare[place] * (residual.factor(points[place]) if residual else 1.0),
                    warm_s=line.seconds(batch),
                    measured_s=median(seconds[1:]),
                    deviation=stdev(seconds) / fmean(seconds),
                    memory_predicted=profile.process_bytes
                    + works[model.name].resident_bytes(batch),
                    memory_measured=peak_bytes(model.name, batch) if is_largest else None,
                )
            )
    return found


def _learned_elsewhere(
    models: Sequence[Model],
    family: str,
    points: Mapping[Place, NDArray[np.float64]],
    bare: Mapping[Place, float],
    measured: Mapping[Place, float],
) -> Residual | None:
    """Return what steps of all other families say of the profile's predictions."""
    others = [(m.name, batch) for m in models if m.family != family for batch in m.batches]
    return learn(
        [points[place] for place in others],
        [bare[place] for place in others],
        [measured[place] for place in others],
    )


def _work(model: Model) -> Work:
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                module = model.build()
        except Exception:  # a library's code that does not work there
            module = model.build()
    adam = partial(torch.optim.Adam, lr=1e-3)
    return work_of(module, batch_of(model.shape, model.dtype), optimizer=adam)


def _round(models: Sequence[Model], within_s: float) -> dict[Place, float]:
    found: dict[Place, list[float]] = defaultdict(list)
    for model in models:
        for batch in model.batches:
            with exact(0):
                found[model.name, batch] = list(taken(model, batch, within_s))
    return {key: median(seconds) for key, seconds in found.items()}


def taken(model: Model, batch: int, within_s: float, least: int = _LEAST) -> Iterator[float]:
    """Yield the seconds of steps as a hop computes them; the first two are not counted."""
    setup = setup_of({"batch_size": batch, "optimizer": "adam", "lr": 1e-4}, _TARGETS)
    live = build_live(model.build(), setup.config)
    live.module.train()
    rows = 2 * batch
    x, y = rows_of(model, rows)
    learner, total = Learner(live, setup, x, y, 0), Total()
    count, until = 0, perf_counter() + within_s
    while count < least + 2 or perf_counter() < until:
        for portions in steps(torch.randperm(rows), batch, 1):
            begun = perf_counter()
            learner.backward(portions, total)
            learner.update()
            count += 1
            if count > 2:
                yield perf_counter() - begun
    total.mean()
