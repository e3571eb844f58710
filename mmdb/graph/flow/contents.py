"""Which Value each tensor of a running forward now has, writes into shared memory included."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from mmdb.graph.flow.flow import Value

#: Adds an operation with one output, by op, arguments and shape of the output.
Add = Callable[[str, dict[str, object], tuple[int, ...]], Value]

_Geometry: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]  # size, strides, offset


@dataclass(slots=True)
class _Memory:
    """Memory that tensors share; `value` is of the first of them, which covers all of it."""

    root: _Geometry
    value: Value | None
    version: int = 0
    writes: list[tuple[_Geometry, Value]] = field(default_factory=list)  # not in `value` yet


@dataclass(slots=True)
class _Slot:
    tensor: Tensor  # kept, so that its id stays taken
    value: Value | None  # None for a constant
    version: int
    memory: _Memory


class Contents:
    """Keeps every tensor it is told of alive.

    Args:
        add: records operations that follow from writes into shared memory.
        constant: records what a tensor held before the first write of a computed value into it.
    """

    def __init__(self, add: Add, constant: Callable[[tuple[int, ...]], Value]) -> None:
        self._add, self._constant = add, constant
        self._slots: dict[int, _Slot] = {}
        self._memories: dict[int, _Memory] = {}

    def __contains__(self, tensor: Tensor) -> bool:
        return id(tensor) in self._slots

    def place(self, tensor: Tensor, value: Value | None) -> None:
        """Take up a tensor, or set what it has without a write; None for a constant."""
        key = tensor.untyped_storage()._cdata
        memory = self._memories.get(key)
        if memory is None:
            memory = self._memories[key] = _Memory(_geometry(tensor), value)
        elif memory.version == 0 and memory.value is None and _geometry(tensor) == memory.root:
            memory.value = value
        self._slots[id(tensor)] = _Slot(tensor, value, memory.version, memory)

    def value_of(self, tensor: Tensor) -> Value | None:
        """Return what the tensor has now, None if it is a constant or not known."""
        slot = self._slots.get(id(tensor))
        if slot is None:
            return None
        if slot.version != slot.memory.version:
            whole = self._whole(slot.memory)
            slot.value = None if whole is None else self._part(whole, slot)
            slot.version = slot.memory.version
        return slot.value

    def is_written(self, tensor: Tensor) -> bool:
        """Whether anything was written into the tensor's memory."""
        slot = self._slots.get(id(tensor))
        return slot is not None and slot.memory.version > 0

    def write(self, tensor: Tensor, value: Value | None) -> None:
        """Note that the tensor was overwritten in place; None by constants only."""
        if tensor not in self:
            self.place(tensor, None)
        slot = self._slots[id(tensor)]
        memory = slot.memory
        memory.version += 1
        slot.value, slot.version = value, memory.version
        if value is None or _geometry(tensor) == memory.root:
            memory.value = value
            memory.writes.clear()
        else:
            memory.writes.append((_geometry(tensor), value))

    def _whole(self, memory: _Memory) -> Value | None:
        size = memory.root[0]
        for part, value in memory.writes:
            if memory.value is None:
                memory.value = self._constant(size)
            op, arguments = _place_in(memory.root, part)
            if op == "view":
                memory.value = self._add("view", {"self": value, "size": size}, size)
                continue
            if op == "permute":
                dims = tuple(arguments["dims"].index(d) for d in range(len(size)))
                memory.value = self._add("permute", {"self": value, "dims": dims}, size)
                continue
            found = {"self": memory.value, "src": value, **arguments}
            memory.value = self._add(f"{op}_scatter", found, size)
        memory.writes.clear()
        return memory.value

    def _part(self, whole: Value, slot: _Slot) -> Value:
        part = _geometry(slot.tensor)
        if part == slot.memory.root:
            return whole
        op, arguments = _place_in(slot.memory.root, part)
        return self._add(op, {"self": whole, **arguments}, part[0])


def _geometry(tensor: Tensor) -> _Geometry:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())


def _place_in(root: _Geometry, part: _Geometry) -> tuple[str, dict[str, Any]]:
    """Return the operation that takes the part out of the root: op, and arguments after self."""
    (size, strides, start), (taken, steps, offset) = root, part
    offset -= start
    if (
        offset == 0
        and _is_dense(*root[:2])
        and _is_dense(taken, steps)
        and math.prod(size) == math.prod(taken)
    ):
        return "view", {"size": taken}
    if offset == 0 and (dims := _permuted(root, part)) is not None:
        return "permute", {"dims": dims}
    if len(taken) == len(size):
        changed = [d for d in range(len(size)) if (size[d], strides[d]) != (taken[d], steps[d])]
        if len(changed) == 1:
            d = changed[0]
            first, rest = divmod(offset, max(1, strides[d]))
            step = max(1, steps[d] // max(1, strides[d])) if taken[d] > 1 else 1
            end = first + (taken[d] - 1) * step + 1
            if rest == 0 and end <= size[d] and (taken[d] < 2 or step * strides[d] == steps[d]):
                return "slice", {"dim": d, "start": first, "end": end, "step": step}
    if len(taken) == len(size) - 1:
        for d in range(len(size)):
            others = size[:d] + size[d + 1 :], strides[:d] + strides[d + 1 :]
            index, rest = divmod(offset, max(1, strides[d]))
            if others == (taken, steps) and rest == 0 and index < size[d]:
                return "select", {"dim": d, "index": index}
    return "as_strided", {"size": taken, "stride": steps, "storage_offset": offset}


def _permuted(root: _Geometry, part: _Geometry) -> tuple[int, ...] | None:
    """Return from which dimensions of the root those of the part come, if it has them all."""
    pairs = list(zip(root[0], root[1], strict=True))
    wanted = list(zip(part[0], part[1], strict=True))
    if sorted(pairs) != sorted(wanted) or len(set(pairs)) < len(pairs):
        return None
    return tuple(pairs.index(pair) for pair in wanted)


def _is_dense(size: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for length, stride in zip(reversed(size), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True
