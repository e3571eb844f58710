"""A candidate's configuration: hyper-parameters with their types, ranges and defaults.

The architecture's hash says which candidates differ in the other hyper-parameters alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from mmdb.arguments import is_number, is_whole
from mmdb.data.decoding import Target, Task
from mmdb.errors import InvalidHyperparameter
from mmdb.messages import show
from mmdb.train.candidate.losses import (
    ClassWeights,
    parse_class_weights,
    parse_loss_weights,
    parse_losses,
)
from mmdb.train.candidate.named_choices import (
    Functions,
    NamedChoice,
    has_weight_decay,
    parse_choice,
    parse_optimizer,
    parse_schedule,
    registered,
)
from mmdb.train.values.feature_options import KEYS as TRANSFER_KEYS
from mmdb.train.values.feature_options import FrozenOptions, parse_frozen_options

ARCHITECTURE_PREFIX = "architecture."
#: What automatic mixed precision computes in, where the device does.
PRECISIONS = ("bfloat16", "float16")

#: A batch is counted in 64 bits; no partition has more rows.
_LARGEST_BATCH = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What one candidate trains with; see docs/candidates.md. Tuples are in the targets' order."""

    optimizer: NamedChoice
    losses: tuple[NamedChoice, ...]
    loss_weights: tuple[float, ...] = (1.0,)
    class_weights: tuple[ClassWeights, ...] = (None,)
    lr: float = 1e-3
    batch_size: int = 32
    accumulate: int = 1  # batches of an optimizer step
    weight_decay: float = 0.0
    schedule: NamedChoice | None = None
    schedule_per: str = "epoch"  # or "step"
    clip_norm: float | None = None
    clip_value: float | None = None
    amp: str | None = None  # one of PRECISIONS
    augment: tuple[NamedChoice, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)  # of the architecture
    transfer: FrozenOptions | None = None  # what is frozen; None: everything trains


KEYS = (
    "lr",
    "batch_size",
    "weight_decay",
    "optimizer",
    "schedule",
    "loss",
    "loss_weights",
    "class_weights",
    "accumulate",
    "clip_norm",
    "clip_value",
    "amp",
    "augment",
    *TRANSFER_KEYS,
)


def parse_config(
    raw: Mapping[str, Any],
    targets: Task | Sequence[Target],
    functions: Functions | None = None,
) -> Config:
    """Return the checked configuration of a candidate.

    Args:
        raw: hyper-parameters by name, and architecture arguments as `architecture.<name>`.
        targets: the dataset's; a task stands for one target of it, whose size is not known.
        functions: the registered ones, by kind and name.
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
    if isinstance(targets, str):
        targets = (Target(name="label", task=targets, size=0),)
    schedule, per = parse_schedule(raw.get("schedule"))
    config = Config(
        lr=_number(raw, "lr", 1e-3, above=0.0),
        batch_size=_whole(raw, "batch_size", 32),
        accumulate=_whole(raw, "accumulate", 1),
        weight_decay=_number(raw, "weight_decay", 0.0, least=0.0),
        optimizer=parse_optimizer(raw.get("optimizer", "adam")),
        schedule=schedule,
        schedule_per=per,
        losses=parse_losses(raw.get("loss"), targets, functions or {}),
        loss_weights=parse_loss_weights(raw.get("loss_weights"), targets),
        class_weights=parse_class_weights(raw.get("class_weights"), targets),
        clip_norm=_limit(raw, "clip_norm"),
        clip_value=_limit(raw, "clip_value"),
        amp=_precision(raw.get("amp")),
        augment=_augment(raw.get("augment"), functions or {}),
        arguments=arguments,
        transfer=parse_frozen_options(raw),
    )
    _check_together(config, targets)
    return config


def _check_together(config: Config, targets: Sequence[Target]) -> None:
    """Refuse hyper-parameters that are fine one by one and not together."""
    if config.clip_norm is not None and config.clip_value is not None:
        raise InvalidHyperparameter("clip_norm and clip_value are given both.", hint="Choose one.")
    if config.weight_decay and not has_weight_decay(config.optimizer.name):
        raise InvalidHyperparameter(
            f"weight_decay is {config.weight_decay:g}; {config.optimizer.name!r} has none.",
            hint="Leave weight_decay out, or choose another optimizer.",
        )
    for target, loss, weights in zip(targets, config.losses, config.class_weights, strict=True):
        if weights is not None and loss.name not in _WEIGHTED:
            raise InvalidHyperparameter(
                f"class_weights of {target.name!r} is given; loss {loss.name!r} takes none.",
                hint=f"Losses that do: {', '.join(_WEIGHTED)}.",
            )


_WEIGHTED = ("cross_entropy", "multi_margin", "nll", "bce", "soft_margin")


def _number(
    raw: Mapping[str, Any], key: str, default: float, *, above: float = -1.0, least: float = 0.0
) -> float:
    value = raw.get(key, default)
    if not is_number(value, least) or value <= above:
        bound = f"above {above:g}" if above >= 0 else f"at least {least:g}"
        raise InvalidHyperparameter(
            f"{key} is {show(value)}.", hint=f"{key} is a finite number {bound}."
        )
    return float(value)


def _limit(raw: Mapping[str, Any], key: str) -> float | None:
    return None if raw.get(key) is None else _number(raw, key, 0.0, above=0.0)


def _whole(raw: Mapping[str, Any], key: str, default: int) -> int:
    value = raw.get(key, default)
    if not is_whole(value, 1, _LARGEST_BATCH):
        raise InvalidHyperparameter(
            f"{key} is {show(value)}.", hint=f"{key} is a whole number from 1 to {_LARGEST_BATCH}."
        )
    return value


def _precision(value: Any) -> str | None:
    if value is None or value is False:
        return None
    if value not in PRECISIONS:
        raise InvalidHyperparameter(
            f"amp is {show(value)}.", hint=f"amp is false, {' or '.join(map(repr, PRECISIONS))}."
        )
    return str(value)


def _augment(value: Any, functions: Functions) -> tuple[NamedChoice, ...]:
    given = [] if value is None else value if isinstance(value, list) else [value]
    known = registered(functions, "augmentation")
    return tuple(parse_choice("augment", one, known, {}) for one in given)


def architecture_hash(architecture: Mapping[str, Any], config: Mapping[str, Any]) -> bytes:
    """Return BLAKE3-256 of an architecture with the arguments that a configuration gives it.

    Args:
        architecture: parsed, a factory with its own arguments or a layer graph.
        config: what it freezes and puts in place of the rest counts, too.
    """
    prefix = ARCHITECTURE_PREFIX
    given = {k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)}
    whole: object = [architecture, given]
    if "factory" in architecture:
        whole = [architecture["factory"], {**architecture.get("arguments", {}), **given}]
    if config.get("freeze_up_to") is not None:
        whole = [whole, {key: config.get(key) for key in TRANSFER_KEYS}]
    return blake3(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).digest()
