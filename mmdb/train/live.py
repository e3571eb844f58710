"""A candidate ready to step: module, optimizer and schedule, and their exact encoding.

The encoding holds everything training needs: weights, buffers, optimizer state, schedule step and
random generator. Equal states have equal bytes, so the hash of the bytes names the state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import blake3
import safetensors
import safetensors.torch
import torch
from torch import nn

from mmdb.errors import InvalidHyperparameter
from mmdb.train.config import OPTIMIZERS, SCHEDULES, Config

_MODEL = "model."
_OPTIMIZER = "optimizer."
_GENERATOR = "generator"


@dataclass(slots=True)
class Live:
    """A candidate's training state as live objects."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler | None
    generator: torch.Tensor  # state of torch's CPU generator after the last hop, uint8


def build_live(module: nn.Module, config: Config) -> Live:
    """Return `module` with a fresh optimizer and schedule.

    Raises:
        InvalidHyperparameter: torch refuses the optimizer's or the schedule's arguments.
    """
    try:
        make: Callable[..., torch.optim.Optimizer] = OPTIMIZERS[config.optimizer.name]
        optimizer = make(
            module.parameters(),
            lr=config.lr,
            weight_decay=config.weight_decay,
            **config.optimizer.arguments,
        )
    except (TypeError, ValueError) as error:
        name = config.optimizer.name
        raise InvalidHyperparameter(f"optimizer {name!r}: {error}") from error
    schedule = None
    if config.schedule is not None:
        try:
            schedule = SCHEDULES[config.schedule.name](optimizer, **config.schedule.arguments)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise InvalidHyperparameter(f"schedule {config.schedule.name!r}: {error}") from error
    return Live(module, optimizer, schedule, torch.zeros(0, dtype=torch.uint8))


def byte_count(live: Live) -> int:
    """Return the bytes that the weights, buffers and optimizer state take in memory."""
    state = [t for entries in live.optimizer.state.values() for t in entries.values()]
    tensors = [*live.module.state_dict().values(), *state]
    return sum(t.nbytes for t in tensors if isinstance(t, torch.Tensor))


def encode(live: Live) -> bytes:
    """Return the state as the bytes of a safetensors file.

    Tied weights are written once; `aliases` in the header's metadata names their other paths.
    """
    tensors: dict[str, torch.Tensor] = {_GENERATOR: live.generator}
    aliases = _add_weights(tensors, live.module)
    scalars: dict[str, dict[str, Any]] = {}
    state = live.optimizer.state_dict()
    for index, entries in state["state"].items():
        for key, value in entries.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{_OPTIMIZER}{index}.{key}"] = value.detach().contiguous()
            else:
                scalars.setdefault(str(index), {})[key] = value
    header = {
        "aliases": aliases,
        "groups": state["param_groups"],
        "scalars": scalars,
        "schedule": live.schedule.state_dict() if live.schedule else None,
    }
    return safetensors.torch.save(tensors, {"mmdb": json.dumps(header, sort_keys=True)})


def _add_weights(tensors: dict[str, torch.Tensor], module: nn.Module) -> dict[str, str]:
    aliases: dict[str, str] = {}
    seen: dict[tuple[int, tuple[int, ...], tuple[int, ...]], str] = {}
    for path, tensor in module.state_dict().items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
        if tensor.numel() and key in seen:
            aliases[path] = seen[key]
        else:
            seen[key] = path
            tensors[_MODEL + path] = tensor.detach().contiguous()
    return aliases


def restore(live: Live, state: bytes) -> None:
    """Load an encoded state into a freshly built candidate of the same architecture."""
    tensors, header = _decode(state)
    live.module.load_state_dict(_weights(tensors, header))
    entries: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith(_OPTIMIZER):
            index, key = name.removeprefix(_OPTIMIZER).split(".", 1)
            entries.setdefault(int(index), {})[key] = tensor
    for index, values in header["scalars"].items():
        entries.setdefault(int(index), {}).update(values)
    live.optimizer.load_state_dict({"state": entries, "param_groups": header["groups"]})
    if live.schedule is not None:
        live.schedule.load_state_dict(header["schedule"])
    live.generator = tensors[_GENERATOR]


def weights(state: bytes) -> dict[str, torch.Tensor]:
    """Return the module's state dict out of an encoded state; tied paths share one tensor."""
    return _weights(*_decode(state))


def _weights(
    tensors: Mapping[str, torch.Tensor], header: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    found = {
        name.removeprefix(_MODEL): tensor
        for name, tensor in tensors.items()
        if name.startswith(_MODEL)
    }
    return found | {path: found[other] for path, other in header["aliases"].items()}


def _decode(state: bytes) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    size = int.from_bytes(state[:8], "little")
    header = json.loads(json.loads(state[8 : 8 + size])["__metadata__"]["mmdb"])
    return safetensors.torch.load(state), header


def state_hash(state: bytes) -> bytes:
    """Return the name of a state: BLAKE3-256 of its encoding, 32 bytes."""
    return blake3.blake3(state).digest()
