"""The device of a session: the CPU, or one GPU."""

from __future__ import annotations

import os
import re
import resource
import sys

import torch

from mmdb.errors import DeviceMissing

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
