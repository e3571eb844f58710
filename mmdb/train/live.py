"""A candidate ready to step: module, optimizer and schedule, and their exact encoding.

The encoding holds everything training needs: weights, buffers, optimizer state, schedule step and
random generator. Equal states have equal bytes, so the hash of the bytes names the state.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
_TRANSIENT = "buffer."  # registered as not persistent: part of a state, not of a model
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
    make: Callable[..., torch.optim.Optimizer] = OPTIMIZERS[config.optimizer.name]
    with _refusing("optimizer", config.optimizer.name):
        optimizer = make(
            module.parameters(),
            lr=config.lr,
            weight_decay=config.weight_decay,
            **config.optimizer.arguments,
        )
    schedule = None
    if config.schedule is not None:
        with _refusing("schedule", config.schedule.name):
            schedule = SCHEDULES[config.schedule.name](optimizer, **config.schedule.arguments)
    return Live(module, optimizer, schedule, torch.zeros(0, dtype=torch.uint8))


def check_steps(config: Config) -> None:
    """Step a stand-in of one weight twice: some arguments torch refuses only then.

    Raises:
        InvalidHyperparameter: torch refuses the optimizer's or the schedule's arguments.
    """
    stand_in = nn.Linear(1, 1, bias=False)
    live = build_live(stand_in, config)
    stand_in.weight.grad = torch.zeros_like(stand_in.weight)
    for _ in range(2):
        with _refusing("optimizer", config.optimizer.name):
            live.optimizer.step()
        if live.schedule is not None and config.schedule is not None:
            with _refusing("schedule", config.schedule.name):
                live.schedule.step()


@contextmanager
def _refusing(what: str, name: str) -> Iterator[None]:
    """Blame a hyper-parameter for whatever torch raises: it checks little and late."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InvalidHyperparameter(f"{what} {name!r}: {reason}") from error


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
    for path, buffer in _transient(live.module).items():
        tensors[_TRANSIENT + path] = buffer.detach().clone().contiguous()
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


def _transient(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the buffers that a module's state dict leaves out, by path."""
    kept = module.state_dict().keys()
    return {path: buffer for path, buffer in module.named_buffers() if path not in kept}


def _add_weights(tensors: dict[str, torch.Tensor], module: nn.Module) -> dict[str, str]:
    aliases: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    stored: set[int] = set()
    for path, tensor in module.state_dict().items():
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and key in seen:
            aliases[path] = seen[key]
            continue
        seen[key] = path
        flat = tensor.detach().contiguous()
        memory = flat.untyped_storage().data_ptr()
        if memory in stored:  # a view of what is written already: safetensors takes no two
            flat = flat.clone()
        stored.add(memory)
        tensors[_MODEL + path] = flat
    return aliases


def restore(live: Live, state: bytes) -> None:
    """Load an encoded state into a freshly built candidate of the same architecture."""
    tensors, header = _decode(state)
    live.module.load_state_dict(_weights(tensors, header))
    for path in _transient(live.module):
        owner, _, name = path.rpartition(".")
        setattr(live.module.get_submodule(owner), name, tensors[_TRANSIENT + path])
    entries: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith(_OPTIMIZER):
            index, key = name.removeprefix(_OPTIMIZER).split(".", 1)
            entries.setdefault(int(index), {})[key] = tensor
    for index, values in header["scalars"].items():
        entries.setdefault(int(index), {}).update(values)
    live.optimizer.load_state_dict({"state": entries, "param_groups": header["groups"]})
    _put_back_types(live.optimizer, entries)
    if live.schedule is not None:
        live.schedule.load_state_dict(_schedule_state(live.schedule, header["schedule"]))
    live.generator = tensors[_GENERATOR]


def _put_back_types(
    optimizer: torch.optim.Optimizer, entries: Mapping[int, Mapping[str, Any]]
) -> None:
    """Undo load_state_dict's casts to the parameter's type, which loses bits of float32 scalars."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, values in entries.items():
        state = optimizer.state[parameters[index]]
        for key, value in values.items():
            if isinstance(value, torch.Tensor) and state[key].dtype != value.dtype:
                state[key] = value


def _schedule_state(
    schedule: torch.optim.lr_scheduler.LRScheduler, state: dict[str, Any]
) -> dict[str, Any]:
    """Return a schedule's state as it was before JSON made texts of its numeric keys."""
    if not isinstance(schedule, torch.optim.lr_scheduler.MultiStepLR):
        return state
    counts = {int(epoch): count for epoch, count in state["milestones"].items()}
    return state | {"milestones": Counter(counts)}


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
