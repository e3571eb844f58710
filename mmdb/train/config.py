"""A candidate's configuration: hyper-parameters with their types, ranges and defaults."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mmdb.errors import InvalidHyperparameter

ARCHITECTURE_PREFIX = "architecture."

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamax": torch.optim.Adamax,
    "adamw": torch.optim.AdamW,
    "asgd": torch.optim.ASGD,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}

SCHEDULES: dict[str, type[torch.optim.lr_scheduler.LRScheduler]] = {
    "constant": torch.optim.lr_scheduler.ConstantLR,
    "cosine": torch.optim.lr_scheduler.CosineAnnealingLR,
    "cosine_restarts": torch.optim.lr_scheduler.CosineAnnealingWarmRestarts,
    "exponential": torch.optim.lr_scheduler.ExponentialLR,
    "linear": torch.optim.lr_scheduler.LinearLR,
    "multistep": torch.optim.lr_scheduler.MultiStepLR,
    "one_cycle": torch.optim.lr_scheduler.OneCycleLR,
    "polynomial": torch.optim.lr_scheduler.PolynomialLR,
    "step": torch.optim.lr_scheduler.StepLR,
}

LOSSES: dict[str, dict[str, type[nn.Module]]] = {
    "classification": {"cross_entropy": nn.CrossEntropyLoss},
    "regression": {"mse": nn.MSELoss, "mae": nn.L1Loss, "huber": nn.HuberLoss},
}

#: Optimizer arguments that have a hyper-parameter of their own, and switches that change no result.
_TAKEN = {"params", "lr", "weight_decay", "foreach", "maximize", "capturable", "differentiable"}
#: Schedule arguments that the state sets.
_OWN = {"optimizer", "last_epoch"}
#: A batch is counted in 64 bits; no partition has more rows.
_LARGEST_BATCH = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A named optimizer or schedule with its arguments."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What one candidate trains with; see docs/search.md."""

    optimizer: Choice
    loss: str
    lr: float = 1e-3
    batch_size: int = 32
    weight_decay: float = 0.0
    schedule: Choice | None = None
    schedule_per: str = "epoch"  # or "step"
    arguments: dict[str, Any] = field(default_factory=dict)  # of the architecture


KEYS = ("lr", "batch_size", "weight_decay", "optimizer", "schedule", "loss")


def parse_config(raw: Mapping[str, Any], task: str) -> Config:
    """Return the checked configuration of a candidate.

    Args:
        raw: hyper-parameters by name, and architecture arguments as `architecture.<name>`.
        task: "classification" or "regression".
    Raises:
        InvalidHyperparameter: an unknown name, a wrong type or a value out of range.
    """
    prefix = len(ARCHITECTURE_PREFIX)
    arguments = {k[prefix:]: v for k, v in raw.items() if k.startswith(ARCHITECTURE_PREFIX)}
    for key in raw:
        if key not in KEYS and not key.startswith(ARCHITECTURE_PREFIX):
            known = ", ".join(KEYS)
            raise InvalidHyperparameter(
                f"{key!r} is not a hyper-parameter.",
                hint=f"Known: {known}; an argument of the architecture is 'architecture.{key}'.",
            )
    schedule, per = _schedule(raw.get("schedule"))
    return Config(
        lr=_number(raw, "lr", 1e-3, above=0.0),
        batch_size=_whole(raw, "batch_size", 32),
        weight_decay=_number(raw, "weight_decay", 0.0, least=0.0),
        optimizer=_choice("optimizer", raw.get("optimizer", "adam"), OPTIMIZERS),
        schedule=schedule,
        schedule_per=per,
        loss=_loss(raw.get("loss"), task),
        arguments=arguments,
    )


def _number(
    raw: Mapping[str, Any], key: str, default: float, *, above: float = -1.0, least: float = 0.0
) -> float:
    value = raw.get(key, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (above < value <= sys.float_info.max) or value < least:
        bound = f"above {above:g}" if above >= 0 else f"at least {least:g}"
        raise InvalidHyperparameter(
            f"{key} is {value!r}.", hint=f"{key} is a finite number {bound}."
        )
    return float(value)


def _whole(raw: Mapping[str, Any], key: str, default: int) -> int:
    value = raw.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LARGEST_BATCH:
        raise InvalidHyperparameter(
            f"{key} is {value!r}.", hint=f"{key} is a whole number from 1 to {_LARGEST_BATCH}."
        )
    return value


def _choice(key: str, value: Any, known: Mapping[str, type]) -> Choice:
    given = {"name": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or given.get("name") not in tuple(known):
        raise InvalidHyperparameter(
            f"{key} is {value!r}.",
            hint=f"{key} is a name or {{'name': ..., <arguments>}}; names: {', '.join(known)}.",
        )
    arguments = {k: v for k, v in given.items() if k != "name"}
    allowed = set(inspect.signature(known[given["name"]]).parameters) - _TAKEN - _OWN
    for name in arguments:
        if name not in allowed:
            raise InvalidHyperparameter(
                f"{key} {given['name']!r} has no argument {name!r}.",
                hint=f"It takes: {', '.join(sorted(allowed)) or 'none'}.",
            )
    return Choice(name=given["name"], arguments=arguments)


def _schedule(value: Any) -> tuple[Choice | None, str]:
    if value is None or value == "none":
        return None, "epoch"
    given = {"name": value} if isinstance(value, str) else value
    per = given.get("per", "epoch") if isinstance(given, Mapping) else "epoch"
    if per not in ("epoch", "step"):
        raise InvalidHyperparameter(f"schedule.per is {per!r}.", hint="It is 'epoch' or 'step'.")
    if isinstance(given, Mapping):
        given = {k: v for k, v in given.items() if k != "per"}
    return _choice("schedule", given, SCHEDULES), per


def _loss(value: Any, task: str) -> str:
    known = LOSSES[task]
    if value is None:
        return next(iter(known))
    if value not in tuple(known):
        raise InvalidHyperparameter(
            f"loss is {value!r}.", hint=f"Losses of a {task}: {', '.join(known)}."
        )
    return str(value)
