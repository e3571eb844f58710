"""Named optimizers and schedules of torch, and functions that the owner has registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.optim import lr_scheduler

from mmdb.arguments import is_whole
from mmdb.data.functions import resolve_function
from mmdb.errors import FunctionNotFound, InvalidHyperparameter
from mmdb.messages import show

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adadelta": torch.optim.Adadelta,
    "adafactor": torch.optim.Adafactor,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamax": torch.optim.Adamax,
    "adamw": torch.optim.AdamW,
    "asgd": torch.optim.ASGD,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "rprop": torch.optim.Rprop,
    "sgd": torch.optim.SGD,
}

SCHEDULES: dict[str, type[lr_scheduler.LRScheduler]] = {
    "constant": lr_scheduler.ConstantLR,
    "cosine": lr_scheduler.CosineAnnealingLR,
    "cosine_restarts": lr_scheduler.CosineAnnealingWarmRestarts,
    "cyclic": lr_scheduler.CyclicLR,
    "exponential": lr_scheduler.ExponentialLR,
    "linear": lr_scheduler.LinearLR,
    "multistep": lr_scheduler.MultiStepLR,
    "one_cycle": lr_scheduler.OneCycleLR,
    "polynomial": lr_scheduler.PolynomialLR,
    "step": lr_scheduler.StepLR,
}
#: Several schedules, one after the other: a list of them, each but the last with its `until`.
SEQUENCE = "sequence"

#: Optimizer arguments that have a hyper-parameter of their own, and switches that change no result.
_TAKEN = {"params", "lr", "weight_decay", "foreach", "maximize", "capturable", "differentiable"}
#: Schedule arguments that the state sets, and one that is a function.
_OWN = {"optimizer", "last_epoch", "scale_fn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedChoice:
    """A name out of a table, with its arguments."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


def parse_choice(
    key: str, value: Any, known: Iterable[str], arguments: Mapping[str, set[str]]
) -> NamedChoice:
    """Return a name, or {"name": ..., <arguments>}, as a choice.

    Args:
        key: the hyper-parameter, for messages.
        arguments: the names that a choice takes; any, where it does not stand there.
    Raises:
        InvalidHyperparameter
    """
    given = {"name": value} if isinstance(value, str) else value
    names = tuple(known)
    if not isinstance(given, Mapping) or given.get("name") not in names:
        raise InvalidHyperparameter(
            f"{key} is {show(value)}.",
            hint=f"{key} is a name or {{'name': ..., <arguments>}}; "
            f"names: {', '.join(names) or 'none'}.",
        )
    name = str(given["name"])
    found = {k: v for k, v in given.items() if k != "name"}
    for argument in found:
        if name in arguments and argument not in arguments[name]:
            raise InvalidHyperparameter(
                f"{key} {name!r} has no argument {argument!r}.",
                hint=f"It takes: {', '.join(sorted(arguments[name])) or 'none'}.",
            )
    return NamedChoice(name=name, arguments=found)


def takes(kind: type, without: Iterable[str]) -> set[str]:
    """Return the names of the arguments that a class takes, but for some."""
    return set(inspect.signature(kind).parameters) - set(without)


def parse_optimizer(value: Any) -> NamedChoice:
    """Return the optimizer that a configuration names."""
    name = value.get("name") if isinstance(value, Mapping) else value
    kind = OPTIMIZERS.get(name) if isinstance(name, str) else None
    arguments = {} if kind is None else {str(name): takes(kind, _TAKEN)}
    return parse_choice("optimizer", value, OPTIMIZERS, arguments)


def has_weight_decay(optimizer: str) -> bool:
    """Return whether an optimizer of `OPTIMIZERS` can decay weights."""
    return "weight_decay" in inspect.signature(OPTIMIZERS[optimizer]).parameters


def parse_schedule(value: Any) -> tuple[NamedChoice | None, str]:
    """Return the schedule that a configuration names, if any, and whether it steps per "epoch" or
    per "step".

    Args:
        value: a name; a mapping of a name, arguments and `per`; or a list of such, one after the
            other, which is short for {"name": "sequence", "parts": [...]}.
    """
    if value is None or value == "none":
        return None, "epoch"
    given = {"name": SEQUENCE, "parts": value} if isinstance(value, list) else value
    per = given.get("per", "epoch") if isinstance(given, Mapping) else "epoch"
    if per not in ("epoch", "step"):
        raise InvalidHyperparameter(
            f"schedule.per is {show(per)}.", hint="It is 'epoch' or 'step'."
        )
    if isinstance(given, Mapping):
        given = {k: v for k, v in given.items() if k != "per"}
        if given.get("name") == SEQUENCE:
            return _sequence(given), per
    return _single(given), per


def _single(value: Any) -> NamedChoice:
    name = value.get("name") if isinstance(value, Mapping) else value
    kind = SCHEDULES.get(name) if isinstance(name, str) else None
    arguments = {} if kind is None else {str(name): takes(kind, _OWN)}
    return parse_choice("schedule", value, SCHEDULES, arguments)


def _sequence(given: Mapping[str, Any]) -> NamedChoice:
    parts = given.get("parts")
    if set(given) != {"name", "parts"} or not isinstance(parts, list) or len(parts) < 2:
        raise InvalidHyperparameter(
            f"schedule is {dict(given)!r}.", hint="A sequence is a list of two or more schedules."
        )
    found: list[NamedChoice] = []
    untils: list[Any] = []
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        until = part.get("until") if isinstance(part, Mapping) else None
        if (until is None) != last or not (last or _after(until, untils)):
            raise InvalidHyperparameter(
                f"schedule.until of part {place} is {show(until)}.",
                hint="Each part but the last has an 'until', a whole number that grows from 1.",
            )
        untils.append(until)
        bare = {k: v for k, v in part.items() if k != "until"} if until is not None else part
        found.append(_single(bare))
    return NamedChoice(
        name=SEQUENCE, arguments={"parts": tuple(found), "until": tuple(untils[:-1])}
    )


def _after(until: object, before: list[Any]) -> bool:
    return is_whole(until) and until > (before[-1] if before else 0)


#: Registered functions: kind -> name -> 'package.module:callable'.
Functions = Mapping[str, Mapping[str, str]]


def registered(functions: Functions, kind: str) -> tuple[str, ...]:
    """Return the names of the registered functions of a kind."""
    return tuple(functions.get(kind, {}))


def function_of(functions: Functions, kind: str, choice: NamedChoice) -> Callable[..., object]:
    """Return a registered function, with the choice's arguments bound by name.

    Raises:
        FunctionNotFound: none of that kind and name is registered.
        FunctionFailed: its target cannot be imported or called.
    """
    target = functions.get(kind, {}).get(choice.name)
    if target is None:
        raise FunctionNotFound(f"There is no {kind} {choice.name!r}.")
    found = resolve_function(target, kind)
    return partial(found, **choice.arguments) if choice.arguments else found
