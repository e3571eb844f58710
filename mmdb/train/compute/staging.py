"""Partitions on a GPU: copied through pinned buffers on a stream of their own, and kept there."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from mmdb.train.batch import Inputs, Labels, tensors_in
from mmdb.train.compute.device import partition_budget

#: Bytes of each of the two pinned buffers.
BUFFER_BYTES = 32 << 20

Rows = tuple[Inputs, Labels]


class DevicePartitions:
    """The partitions that a session keeps on its GPU; the least recently used one goes first."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._budget = partition_budget(device)
        self._kept: OrderedDict[str, tuple[int, Rows]] = OrderedDict()
        self._staging = Staging(device)

    def place(self, key: str, rows: Rows) -> Rows:
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
