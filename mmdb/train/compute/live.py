"""A candidate ready to step: its module and optimizer, and their exact encoding."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import blake3
import torch
from torch import nn
from torch.optim import lr_scheduler

from mmdb.errors import InvalidHyperparameter, StateCorrupt
from mmdb.graph.grouped import Grouped
from mmdb.graph.spec.build import initial_module
from mmdb.memory import ran_out
from mmdb.messages import explain
from mmdb.store.files.safetensors_format import StateEncoding, decode, decode_mapped
from mmdb.train.candidate.config import Config, parse_config
from mmdb.train.compute.device import CPU, scaler_of, synchronize
from mmdb.train.compute.optimizer import advance, check_memory, make_optimizer, make_schedule
from mmdb.train.values.spec import CandidateSpec

if TYPE_CHECKING:
    from mmdb.train.compute.backbone import Backbones


_MODEL = "model."
_OPTIMIZER = "optimizer."
_TRANSIENT = "buffer."  # registered as not persistent: part of a state, not of a model
_GENERATOR = "generator"
#: What schedules add to an optimizer's groups.
_OF_SCHEDULES = {"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum"}


@dataclass(slots=True)
class Live:
    """A candidate's training state as live objects.

    Attributes:
        generator: state of torch's CPU generator after the last hop, uint8.
        scaler: of float16 gradients.
        frozen: layers that rows pass first, which are no part of the state.
        omitted: paths of the module's tensors that are no part of the state: its backbone has them.
        base: names what has the omitted ones of an adapted network; see `shared_base`.
    """

    module: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: lr_scheduler.LRScheduler | None
    generator: torch.Tensor
    scaler: torch.amp.GradScaler | None = None
    device: torch.device = CPU
    frozen: nn.Module | None = None
    omitted: frozenset[str] = frozenset()
    base: str | None = None


def build_live(
    module: nn.Module,
    config: Config,
    device: torch.device = CPU,
    *,
    frozen: nn.Module | None = None,
    omitted: frozenset[str] = frozenset(),
    base: str | None = None,
    is_partial: bool = False,
) -> Live:
    """Return `module`, moved to a device, with a fresh optimizer, schedule and scaler.

    Args:
        frozen, omitted, base: see `Live`.
        is_partial: whether the optimizer has only the parameters that require gradients.
    Raises:
        InvalidHyperparameter: torch refuses the optimizer's or the schedule's arguments.
        PrecisionMissing: the device does not compute in the configuration's precision.
    """
    module.to(device)
    optimizer = make_optimizer(module, config, is_partial=is_partial)
    return Live(
        module,
        optimizer,
        make_schedule(optimizer, config),
        torch.zeros(0, dtype=torch.uint8),
        scaler_of(config.amp, device),
        device,
        frozen,
        omitted,
        base,
    )


def byte_count(live: Live) -> int:
    """Return the bytes that the weights, buffers and optimizer state take in memory."""
    state = [t for entries in live.optimizer.state.values() for t in entries.values()]
    own = [t for path, t in live.module.state_dict().items() if path not in live.omitted]
    tensors = [*own, *state]
    return sum(t.nbytes for t in tensors if isinstance(t, torch.Tensor))


def encode(live: Live) -> bytes:
    """Return the state as the bytes of a safetensors file."""
    return bytes(encoding(live))


def encoding(live: Live) -> StateEncoding:
    """Return the encoded state over the live tensors, to be used before they change.

    Tied weights are written once; `aliases` in the header's metadata names their other paths.
    """
    tensors: dict[str, torch.Tensor] = {_GENERATOR: live.generator}
    aliases = _add_weights(tensors, live)
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
    if live.base is not None:
        header["base"] = live.base
    if live.scaler is not None:
        header["scaler"] = live.scaler.state_dict()
    on_host = _to_host(tensors, live.device)
    return StateEncoding(on_host, {"mmdb": json.dumps(header, sort_keys=True)})


def _to_host(tensors: dict[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """Return a device's tensors in pinned memory: all copies are begun before any is awaited."""
    if device == CPU:
        return tensors
    found = {}
    for name, tensor in tensors.items():
        if tensor.device == device:
            pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            found[name] = pinned.copy_(tensor, non_blocking=True)
        else:
            found[name] = tensor
    synchronize(device)
    return found


def _transient(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the buffers that a module's state dict leaves out, by path."""
    kept = module.state_dict().keys()
    return {path: buffer for path, buffer in module.named_buffers() if path not in kept}


def _add_weights(tensors: dict[str, torch.Tensor], live: Live) -> dict[str, str]:
    aliases: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    stored: set[int] = set()
    for path, tensor in live.module.state_dict().items():
        if path in live.omitted:
            continue
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
    """Load an encoded state into a freshly built candidate of the same configuration.

    Raises:
        StateCorrupt: it is no state of that configuration, though its bytes match its hash.
    """
    tensors, header = decode(state)
    try:
        _restore(live, tensors, header)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if ran_out(error):
            raise
        raise StateCorrupt(
            f"A state does not fit its candidate: {type(error).__name__}: {explain(error)}"
        ) from error


def _restore(live: Live, tensors: dict[str, torch.Tensor], header: Mapping[str, Any]) -> None:
    _load_module(live, tensors, header)
    entries = _entries(tensors, header)
    live.optimizer.load_state_dict({"state": entries, "param_groups": header["groups"]})
    _put_back_types(live.optimizer, entries)
    if live.schedule is not None:
        live.schedule.load_state_dict(_schedule_state(live.schedule, header["schedule"]))
    if live.scaler is not None:
        live.scaler.load_state_dict(header["scaler"])
    live.generator = tensors[_GENERATOR]


def adopt(live: Live, state: bytes) -> None:
    """Let a freshly built clone go on from the encoded state of its parent.

    Weights, buffers and generator are the parent's. Where the optimizer keeps the same kind of
    state, its moments are too; a float16 scaler goes on where both have one. Hyper-parameters are
    the clone's own; its schedule starts as many steps on as its parent's had taken.

    Raises:
        InvalidHyperparameter: the parent's module has other tensors.
    """
    tensors, header = decode(state)
    try:
        _load_module(live, tensors, header)
    except (RuntimeError, KeyError) as error:
        if ran_out(error):
            raise
        raise InvalidHyperparameter(
            "The parent's state has other tensors than the clone's model.",
            hint="A clone keeps its parent's architecture and 'architecture.*' arguments.",
        ) from error
    _adopt_optimizer(live, tensors, header)
    if live.schedule is not None and header["schedule"] is not None:
        advance(live.schedule, live.optimizer, header["schedule"]["last_epoch"])
    live.generator = tensors[_GENERATOR]


def adopt_optimizer(live: Live, state: bytes) -> bool:
    """Let the optimizer of a fresh candidate go on from an encoded state of the same weights.

    Only its moments and counts, and a float16 scaler, are those of the state.

    Returns:
        Whether it could be: the weights that train are the same, and so is what optimizers keep.
    """
    tensors, header = decode(state)
    theirs = _weights(tensors, header)
    for path, own in live.module.named_parameters():
        other = theirs.get(path)
        if path not in live.omitted and (other is None or not torch.equal(own.detach(), other)):
            return False
    return _adopt_optimizer(live, tensors, header)


def _adopt_optimizer(
    live: Live, tensors: Mapping[str, torch.Tensor], header: Mapping[str, Any]
) -> bool:
    """Take over an optimizer's state and a scaler's; return False where those kept are others."""
    entries, groups = _entries(tensors, header), live.optimizer.state_dict()["param_groups"]
    is_alike = _keeps(groups[0]) == _keeps(header["groups"][0])
    if is_alike:
        live.optimizer.load_state_dict({"state": entries, "param_groups": groups})
        _put_back_types(live.optimizer, entries)
    if live.scaler is not None and "scaler" in header:
        live.scaler.load_state_dict(header["scaler"])
    return is_alike


def _keeps(group: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what tells which state an optimizer keeps, and of which parameters."""
    names = frozenset(group) - _OF_SCHEDULES
    switches = (bool(group.get(switch)) for switch in ("amsgrad", "centered", "momentum"))
    return names, tuple(group["params"]), *switches


def _load_module(
    live: Live, tensors: Mapping[str, torch.Tensor], header: Mapping[str, Any]
) -> None:
    if header.get("base") != live.base:
        raise KeyError("another base")
    found = live.module.load_state_dict(_weights(tensors, header), strict=False)
    # What others share is not written, not even with what it has.
    if found.unexpected_keys or not live.omitted.issuperset(found.missing_keys):
        raise KeyError(*found.unexpected_keys, *found.missing_keys)
    for path in _transient(live.module):
        owner, _, name = path.rpartition(".")
        buffer = tensors[_TRANSIENT + path].to(live.device)
        setattr(live.module.get_submodule(owner), name, buffer)


def _entries(
    tensors: Mapping[str, torch.Tensor], header: Mapping[str, Any]
) -> dict[int, dict[str, Any]]:
    """Return the optimizer's state by the parameters' ordinals."""
    entries: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith(_OPTIMIZER):
            index, key = name.removeprefix(_OPTIMIZER).split(".", 1)
            entries.setdefault(int(index), {})[key] = tensor
    for index, values in header["scalars"].items():
        entries.setdefault(int(index), {}).update(values)
    return entries


def _put_back_types(
    optimizer: torch.optim.Optimizer, entries: Mapping[int, Mapping[str, Any]]
) -> None:
    """Undo load_state_dict's casts to the parameter's type, which loses bits of float32 scalars."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, values in entries.items():
        state = optimizer.state[parameters[index]]
        for key, value in values.items():
            if isinstance(value, torch.Tensor) and state[key].dtype != value.dtype:
                state[key] = value.to(state[key].device)


def _schedule_state(schedule: lr_scheduler.LRScheduler, state: dict[str, Any]) -> dict[str, Any]:
    """Return a schedule's state as it was before JSON made texts of its numeric keys."""
    if isinstance(schedule, lr_scheduler.SequentialLR):
        pairs = zip(schedule._schedulers, state["_schedulers"], strict=True)
        return state | {"_schedulers": [_schedule_state(s, d) for s, d in pairs]}
    if not isinstance(schedule, lr_scheduler.MultiStepLR):
        return state
    counts = {int(epoch): count for epoch, count in state["milestones"].items()}
    return state | {"milestones": Counter(counts)}


def weights(state: bytes) -> dict[str, torch.Tensor]:
    """Return the module's state dict out of an encoded state; tied paths share one tensor."""
    return _weights(*decode(state))


def mapped_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the same out of a file; processes share its pages.

    Raises:
        OSError, StateCorrupt
    """
    return _weights(*decode_mapped(path))


def _weights(
    tensors: Mapping[str, torch.Tensor], header: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    found = {
        name.removeprefix(_MODEL): tensor
        for name, tensor in tensors.items()
        if name.startswith(_MODEL)
    }
    return found | {path: found[other] for path, other in header["aliases"].items()}


def state_hash(state: bytes) -> bytes:
    """Return the name of a state: BLAKE3-256 of its encoding, 32 bytes."""
    return blake3.blake3(state).digest()


def packed(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return a model's tensors as bytes that `weights` reads; tied ones are written once.

    Raises:
        KeyError: safetensors has no name for a dtype.
    """
    found: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple[object, ...], str] = {}
    for path, tensor in tensors.items():
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and key in first:
            aliases[path] = first[key]
            continue
        first[key] = path
        found[_MODEL + path] = tensor.detach().contiguous()
    return bytes(StateEncoding(found, {"mmdb": json.dumps({"aliases": aliases})}))


def build(
    candidate: CandidateSpec,
    device: torch.device = CPU,
    backbones: Backbones | None = None,
    *,
    blank: bool = False,
    feature_shape: tuple[int, ...] | None = None,
) -> Live:
    """Return a candidate with its initial state, which its seed alone decides.

    With frozen layers it is the state of what trains, which the backbone decides, too. The state
    is drawn on the CPU, so that it is the same on every device.

    Args:
        backbones: where networks with frozen layers are kept, on `device`.
        blank, feature_shape: see `head_of`; nothing to candidates without frozen layers.
    """
    config = parse_config(candidate.config, candidate.targets, candidate.functions)
    if candidate.frozen is not None or candidate.base is not None:
        from mmdb.train.compute.backbone import Backbones  # loads torch.fx
    if candidate.frozen is not None:
        from mmdb.train.compute.trainable_head import head_of

        tail = head_of(
            candidate,
            backbones or Backbones(device),
            blank=blank,
            feature_shape=feature_shape,
        )
        return build_live(
            tail.module,
            config,
            device,
            frozen=tail.layers,
            omitted=tail.omitted,
            is_partial=True,
        )
    if candidate.base is not None:
        from mmdb.train.compute.shared_base import shared_module

        module, omitted = shared_module(candidate, backbones or Backbones(device))
        base = candidate.base
        return build_live(module, config, device, omitted=omitted, base=base, is_partial=True)
    module = initial_module(
        candidate.architecture,
        config.arguments,
        candidate.input_shape,
        candidate.outputs,
        candidate.factories,
        seed=candidate.seed,
    )
    if candidate.group_patience is not None and isinstance(module, Grouped):
        module.keep_best()
    if device == CPU:
        check_memory(module, config)
    return build_live(module, config, device)
