"""The device of a session, its precision, and the partitions that are kept on it."""

from __future__ import annotations

import os
import re
import resource
import sys
from collections import OrderedDict
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from mmdb.errors import DeviceMissing, PrecisionMissing
from mmdb.train.values.row_batch import Inputs, Labels, Partition, tensors_in

CPU = torch.device("cpu")
#: cuBLAS is deterministic only with a workspace of its own, named before CUDA starts.
_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
#: Share of a GPU's free memory that partitions may take, where MMDB_DEVICE_BYTES says nothing.
_PARTITION_SHARE = 0.25


def device_of(text: str) -> torch.device:
    """Return the device that "cpu", "cuda" (the first GPU) or "cuda:N" names, ready to compute.

    Raises:
        DeviceMissing: this process sees no such device.
    """
    found = re.fullmatch(r"cpu|cuda(?::(\d{1,4}))?", text) if isinstance(text, str) else None
    if found is None:
        raise DeviceMissing(f"{text!r} is not a device.", hint="Write cpu, cuda or cuda:N.")
    if text == "cpu":
        return CPU
    os.environ.setdefault(*_WORKSPACE)
    index, count = int(found[1] or 0), _gpu_count()
    if index >= count:
        raise DeviceMissing(f"There is no device {text!r} here: {_seen(count)}.")
    device = torch.device("cuda", index)
    try:
        torch.zeros(1, device=device)
    except RuntimeError as error:  # a driver that is too old, a GPU that is taken by another
        reason = str(error).splitlines()[0]
        raise DeviceMissing(f"Device {text!r} does not start: {reason}") from error
    return device


def _gpu_count() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _seen(count: int) -> str:
    if torch.version.cuda is None:
        return f"this torch ({torch.__version__}) is built for the CPU alone"
    names = ", ".join(f"cuda:{k}" for k in range(count))
    return f"torch sees {names}" if names else "torch sees no GPU"


def described(device: torch.device) -> str:
    """Return what the bits of a computation depend on: libraries, kind and capability of a GPU."""
    if device.type != "cuda":
        return str(device)
    major, minor = torch.cuda.get_device_capability(device)
    return (
        f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
        f"{torch.cuda.get_device_name(device)} sm_{major}{minor}"
    )


def partition_budget(device: torch.device) -> int:
    """Return how many bytes of partitions a session may keep on a GPU."""
    given = os.environ.get("MMDB_DEVICE_BYTES")
    if given is not None:
        return int(given)
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * _PARTITION_SHARE)


def reset_peak(device: torch.device) -> None:
    """Begin to measure `peak_bytes` anew, where the device can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """Return the most memory in use: on a GPU by tensors since `reset_peak`; on the CPU by this
    process since it began, what it maps and has touched included.
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
    if device.type == "cuda" and precision == "bfloat16":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return True


#: Bytes of each of the two pinned buffers.
BUFFER_BYTES = 32 << 20


class DevicePartitions:
    """The partitions that a session keeps on its GPU; the least recently used one goes first."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._budget = partition_budget(device)
        self._kept: OrderedDict[str, tuple[int, Partition]] = OrderedDict()
        self._staging = Staging(device)

    def place(self, key: str, rows: Partition) -> Partition:
        """Return the rows on the GPU; those that are larger than the budget stay where they are.

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
        placed = self._copied(x), self._copied(y)
        self._kept[key] = size, placed  # type: ignore[assignment]
        return self._kept[key][1]

    def _copied(self, part: Inputs | Labels) -> Inputs | Labels:
        if isinstance(part, Tensor):
            return self._staging.copied(part)
        if isinstance(part, dict):
            return {name: self._staging.copied(tensor) for name, tensor in part.items()}
        return tuple(self._staging.copied(tensor) for tensor in part)


class Staging:
    """Copies to a GPU: while one pinned buffer travels, the other one is filled."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._buffers = [
            torch.empty(BUFFER_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)
        ]
        self._free = [torch.cuda.Event() for _ in self._buffers]

    def copied(self, tensor: Tensor) -> Tensor:
        """Return a copy on the GPU, which kernels asked for from now on may read."""
        source = tensor.contiguous().reshape(-1).view(torch.uint8)
        with torch.cuda.stream(self._stream):
            found = torch.empty(tensor.shape, dtype=tensor.dtype, device=self._device)
            target = found.reshape(-1).view(torch.uint8)
            for turn, start in enumerate(range(0, len(source), BUFFER_BYTES)):
                buffer, free = self._buffers[turn % 2], self._free[turn % 2]
                free.synchronize()
                part = source[start : start + BUFFER_BYTES]
                staged = buffer[: len(part)].copy_(part)
                target[start : start + len(part)].copy_(staged, non_blocking=True)
                free.record(self._stream)
        reader = torch.cuda.current_stream(self._device)
        reader.wait_stream(self._stream)
        found.record_stream(reader)
        return found
