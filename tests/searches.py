"""Runs a search without training: candidates follow a learning curve."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdb.train.search import (
    Decision,
    Entry,
    Goal,
    Report,
    Search,
    Start,
    Stop,
    Want,
    make_search,
)

#: Value of a configuration after so many epochs of its weights; the last argument is its ordinal.
Curve = Callable[[Mapping[str, Any], int, int], float]


@dataclass(slots=True)
class Trained:
    """A candidate as the driver sees it."""

    config: dict[str, Any]
    goal: int
    before: int  # epochs in the state that it started from
    epoch: int = 0
    stopped: str | None = None
    failed: bool = False

    @property
    def in_flight(self) -> bool:
        return not self.failed and self.stopped is None and self.epoch < self.goal


@dataclass(slots=True)
class Bench:
    """Workers that train one epoch at a time of whichever candidate comes up.

    Args:
        fails: says whether a candidate fails in the epoch that it is in.
    """

    search: Search
    curve: Curve
    workers: int = 4
    seed: int = 0
    fails: Callable[[Trained], bool] = lambda trained: False
    candidates: list[Trained] = field(default_factory=list)
    log: list[Entry] = field(default_factory=list)

    def run(self, epochs: int | None = None) -> int:
        """Train until the search is done, or for so many epochs; return how many were trained."""
        source = random.Random(self.seed)
        if not self.log:
            self.take(self.search.begin())
        done = 0
        while epochs is None or done < epochs:
            flying = self.flying()
            if len(flying) < self.workers and not self.search.done:
                self.log.append(Want(idle=self.workers - len(flying)))
                self.take(self.search.want(self.workers - len(flying)))
                flying = self.flying()
            if not flying:
                assert self.search.done
                break
            self.report(source.choice(flying))  # candidates take turns, as they hop
            done += 1
        return done

    def flying(self) -> list[int]:
        return [k for k, trained in enumerate(self.candidates) if trained.in_flight]

    def report(self, candidate: int) -> None:
        """Train one epoch and report it."""
        trained = self.candidates[candidate]
        if trained.failed or self.fails(trained):
            trained.failed = True
            report = Report(candidate=candidate, epoch=trained.epoch, failed=True)
        else:
            trained.epoch += 1
            value = self.curve(trained.config, trained.before + trained.epoch, candidate)
            report = Report(candidate=candidate, epoch=trained.epoch, value=value)
        self.log.append(report)
        self.take(self.search.report(report))

    def take(self, decisions: Iterable[Decision]) -> None:
        """Do what was decided."""
        for decision in decisions:
            self.log.append(decision)
            match decision:
                case Start():
                    self.candidates.append(self._start(decision))
                case Goal():
                    self.candidates[decision.candidate].goal = decision.epochs
                    self.candidates[decision.candidate].stopped = None
                case Stop():
                    self.candidates[decision.candidate].stopped = decision.reason

    def _start(self, start: Start) -> Trained:
        before = 0
        if start.parent is not None:
            parent = self.candidates[start.parent]
            assert start.epoch is not None and 0 < start.epoch <= parent.epoch
            before = parent.before + start.epoch
        return Trained(config=start.config, goal=start.goal, before=before)


def bench(search: Mapping[str, Any], *, epochs: int = 9, seed: int = 0, **more: Any) -> Bench:
    """Return a bench for a search of metric "more is better"."""
    options = more.pop("options", {})
    made = make_search(search, epochs=epochs, seed=seed, maximize=True, options=options)
    return Bench(made, more.pop("curve", learning_curve), seed=seed, **more)


NOISE = 0.02  # standard deviation of a measured value

SPACE: dict[str, Any] = {
    "lr": {"low": 1e-4, "high": 1, "log": True},
    "batch_size": {"low": 8, "high": 128, "whole": True},
    "optimizer": ["adam", {"name": "sgd", "momentum": 0.9}],
    "weight_decay": {"low": 0, "high": 0.1},
    "architecture.width": [8, 16, 32],
}


def quality(config: Mapping[str, Any]) -> float:
    """Return what a configuration of SPACE comes to after many epochs; 0 is the most."""
    return float(
        -abs(math.log10(config["lr"]) + 2.2)
        - 10 * abs(config["weight_decay"] - 0.03)
        - 0.3 * (config["optimizer"] != "adam")
        - 0.1 * abs(math.log2(config["batch_size"]) - 5)
    )


def learning_curve(
    config: Mapping[str, Any], epoch: int, ordinal: int, noise: float = 0.02
) -> float:
    """Return the value after `epoch` epochs, with noise of its own for each candidate and epoch."""
    wobble = random.Random(f"{ordinal}/{epoch}").gauss(0, noise)
    return quality(config) - 3 * math.exp(-epoch / 5) + wobble
