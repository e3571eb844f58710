"""Automatic mixed precision: what a device computes in, and the scaler of float16 gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from mmdb.errors import PrecisionMissing

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
