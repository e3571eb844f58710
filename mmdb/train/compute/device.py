"""The device of a session, its precision, and the partitions that are kept on it.

An accelerator is whatever `torch.accelerator` says there is: CUDA, ROCm, XPU, MPS or another one.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from mmdb.errors import DeviceMissing, PrecisionMissing
from mmdb.memory import ran_out
from mmdb.train.values import device_names
from mmdb.train.values.row_batch import Inputs, Labels, Partition, tensors_in

CPU = torch.device("cpu")
#: Share of an accelerator's free memory that partitions may take; MMDB_DEVICE_BYTES goes before.
_PARTITION_SHARE = 0.25
#: What they may take where nobody knows what is free.
_PARTITION_BYTES = 1 << 30


def device_of(text: str) -> torch.device:
    """Return the device that "cpu", "cuda" (the first one) or "cuda:N" names, ready to compute.

    Raises:
        DeviceMissing: this process sees no such device.
    """
    found = device_names.split(text)
    if found is None:
        raise DeviceMissing(f"{text!r} is not a device.", hint=device_names.EXAMPLES)
    kind, index = found[0], found[1] or 0
    if kind == CPU.type:
        return CPU
    for name, value in device_names.SETTINGS.items():
        os.environ.setdefault(name, value)
    known = accelerator()
    if known is None or kind != known.type or index >= torch.accelerator.device_count():
        raise DeviceMissing(f"There is no device {text!r} here: {_seen(known)}.")
    device = torch.device(kind, index)
    try:
        torch.zeros(1, device=device)
    except RuntimeError as error:  # a driver that is too old, a device that another one has
        reason = str(error).splitlines()[0]
        raise DeviceMissing(f"Device {text!r} does not start: {reason}") from error
    return device


def accelerator() -> torch.device | None:
    """Return the kind of accelerator that torch sees, without a number; None where it sees none."""
    return torch.accelerator.current_accelerator(check_available=True)


def _seen(known: torch.device | None) -> str:
    if torch.accelerator.current_accelerator() is None:
        return f"this torch ({torch.__version__}) is built for the CPU alone"
    if known is None:
        return "torch sees no accelerator"
    return f"torch sees {', '.join(map(str, accelerators()))}"


def accelerators() -> list[torch.device]:
    """Return every accelerator that torch sees."""
    known = accelerator()
    count = torch.accelerator.device_count() if known else 0
    return [torch.device(known.type, k) for k in range(count)] if known else []


def device_like(name: str, environment: str) -> torch.device:
    """Return the device here that gives the bits of a recorded one: of its kind, else the CPU.

    Args:
        name, environment: as hops record them.
    """
    alike = [one for one in accelerators() if one.type == name.partition(":")[0]]
    for one in sorted(alike, key=lambda one: not environment.endswith(described(one))):
        with suppress(DeviceMissing):  # another process may have it
            return device_of(str(one))
    return CPU


def module_of(device: torch.device) -> Any:
    """Return torch's module of a kind of device, such as `torch.cuda`."""
    return torch.get_device_module(device)


def described(device: torch.device) -> str:
    """Return what the bits of a computation depend on: libraries, name and kind of an accelerator.

    The libraries are those that torch was built with, such as CUDA 13.0 and cuDNN 91002.
    """
    if device == CPU:
        return str(device)
    kind, module = device.type, module_of(device)
    built = getattr(torch.version, kind, None)
    parts = [f"{kind.upper()} {built}" if built else kind]
    if torch.backends.cudnn.is_available():
        parts.append(f"cuDNN {torch.backends.cudnn.version()}")
    name = str(module.get_device_name(device)) if hasattr(module, "get_device_name") else kind
    capability = getattr(module, "get_device_capability", lambda device: None)(device)
    if isinstance(capability, tuple):  # CUDA's and ROCm's; others say it otherwise, or not
        name += f" sm_{capability[0]}{capability[1]}"
    return ", ".join([*parts, name])


def partition_budget(device: torch.device) -> int:
    """Return how many bytes of partitions a session may keep on an accelerator."""
    given = os.environ.get("MMDB_DEVICE_BYTES")
    if given is not None:
        return int(given)
    try:
        free, _ = torch.accelerator.get_memory_info(device)
    except (
        RuntimeError
    ):  # torch does not know it of every kind; a fault shows at the next operation
        return _PARTITION_BYTES
    return int(free * _PARTITION_SHARE)


def reset_peak(device: torch.device) -> None:
    """Begin to measure `peak_bytes` anew, where the device can."""
    if device != CPU:
        torch.accelerator.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """Return the most memory in use: on an accelerator by tensors since `reset_peak`; on the CPU by
    this process since it began, what it maps and has touched included.
    """
    if device != CPU:
        return int(torch.accelerator.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that was asked of it."""
    if device != CPU:
        torch.accelerator.synchronize(device)


def generators() -> dict[str, list[Tensor]]:
    """Return the states of the accelerators' generators by their kind; nothing of unused ones."""
    known = accelerator()
    if known is None or not getattr(module_of(known), "is_initialized", lambda: True)():
        return {}
    return {known.type: [generator_of(device) for device in accelerators()]}


def generator_of(device: torch.device) -> Tensor:
    """Return the state of the generator that draws on a device."""
    if device == CPU:
        return torch.get_rng_state()
    state: Tensor = module_of(device).get_rng_state(device)
    return state


def set_generator(device: torch.device, state: Tensor) -> None:
    """Let a device draw on from a state."""
    if device == CPU:
        torch.set_rng_state(state)
    else:
        module_of(device).set_rng_state(state, device)


def seed_accelerators(seed: int | None) -> None:
    """Let every accelerator draw from a seed; None: from one that nobody knows."""
    known = accelerator()
    if known is not None:
        module = module_of(known)
        module.seed_all() if seed is None else module.manual_seed_all(seed)


@contextmanager
def drawing(device: torch.device, seed: int) -> Iterator[None]:
    """Inside the block an accelerator is the current one and draws from a seed; then as before."""
    state = generator_of(device)
    with torch.accelerator.device_index(device.index):
        module_of(device).manual_seed(seed)
        try:
            yield
        finally:
            set_generator(device, state)


_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Return a context in which modules compute in `precision` where torch holds that to be safe.

    Casts of weights are not kept: inside another autocast context they would outlive a step.
    """
    return torch.autocast(device.type, dtype=_TYPES[precision], cache_enabled=False)


def scaler_of(precision: str | None, device: torch.device) -> torch.amp.GradScaler | None:
    """Return the scaler that keeps small float16 gradients from vanishing; None if none is needed.

    Raises:
        PrecisionMissing: the device does not compute in that precision.
    """
    if precision is None:
        return None
    if not _computes(device, precision):
        raise PrecisionMissing(f"Device {device} does not compute in {precision}.")
    return torch.amp.GradScaler(device.type) if precision == "float16" else None


def _computes(device: torch.device, precision: str) -> bool:
    if not torch.amp.is_autocast_available(device.type):
        return False
    if device != CPU and precision == "bfloat16":
        # Only CUDA emulates it.
        kind = module_of(device)
        can = getattr(kind, "is_bf16_supported", lambda including_emulation=False: True)
        return bool(can(including_emulation=False))
    return True


#: Bytes of each of the two pinned buffers.
BUFFER_BYTES = 32 << 20


class DevicePartitions:
    """The partitions that a session keeps on its device; the least recently used one goes first."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._budget = partition_budget(device)
        self._kept: OrderedDict[str, tuple[int, Partition]] = OrderedDict()
        self._staging = Staging(device)

    def place(self, key: str, rows: Partition) -> Partition:
        """Return the rows on the device; those for which it has no room stay where they are.

        Then each batch is copied by itself.
        """
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][1]
        size = sum(t.nbytes for part in rows for t in tensors_in(part))
        if size > self._budget:
            return rows
        while sum(kept for kept, _ in self._kept.values()) + size > self._budget:
            self._kept.popitem(last=False)
        x, y = rows
        try:
            placed = self._copied(x), self._copied(y)
        except RuntimeError as error:
            if not ran_out(error):
                raise
            self._kept.clear()  # candidates have taken what was free, and need it more
            torch.accelerator.empty_cache()
            return rows
        self._kept[key] = size, placed  # type: ignore[assignment]
        return self._kept[key][1]

    def _copied(self, part: Inputs | Labels) -> Inputs | Labels:
        if isinstance(part, Tensor):
            return self._staging.copied(part)
        if isinstance(part, dict):
            return {name: self._staging.copied(tensor) for name, tensor in part.items()}
        return tuple(self._staging.copied(tensor) for tensor in part)


class Staging:
    """Copies to an accelerator: while one pinned buffer travels, the other one is filled."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device)
        self._buffers = [
            torch.empty(BUFFER_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)
        ]
        self._free = [torch.Event(device.type) for _ in self._buffers]

    def copied(self, tensor: Tensor) -> Tensor:
        """Return a copy on the device, which kernels asked for from now on may read."""
        source = tensor.contiguous().reshape(-1).view(torch.uint8)
        # Memory of the stream that reads it, which may have had another use there a moment ago.
        found = torch.empty(tensor.shape, dtype=tensor.dtype, device=self._device)
        reader = torch.accelerator.current_stream(self._device)
        self._stream.wait_stream(reader)
        with self._stream:
            target = found.reshape(-1).view(torch.uint8)
            for turn, start in enumerate(range(0, len(source), BUFFER_BYTES)):
                buffer, free = self._buffers[turn % 2], self._free[turn % 2]
                free.synchronize()
                part = source[start : start + BUFFER_BYTES]
                staged = buffer[: len(part)].copy_(part)
                target[start : start + len(part)].copy_(staged, non_blocking=True)
                free.record(self._stream)
        reader.wait_stream(self._stream)
        return found
