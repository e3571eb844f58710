"""Which Value each tensor of a running forward has, and the copy whose tensors those are.

The copy's tensors are twins of the module's: same shapes, other values or none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, TypeAlias, cast

import torch
from blake3 import blake3
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mmdb.graph.ops.op_graph import CannotTrace, Value
from mmdb.graph.trace.stand_ins import Reports, WeightlessCopy

_MOST_ELEMENTS = 1 << 24


def numbers_of(values: Tensor | None) -> dict[str, object]:
    """Return arguments for a CONSTANT or BUFFER with these values.

    {"uniform": number} if all elements are one finite number; {"digest": text} of dtype, order and
    elements otherwise; {} if they are not known, or more than 2^24.
    """
    if values is None or values.is_meta or not 0 < values.numel() <= _MOST_ELEMENTS:
        return {}
    with torch._C.DisableTorchFunction():
        flat = values.detach().cpu().reshape(-1)
        if bool((flat == flat[0]).all()):
            number = flat[0].item()
            if not isinstance(number, complex) and isfinite(number):
                return {"uniform": number}
        data = flat.contiguous().view(torch.uint8).numpy().tobytes()
        return {"digest": blake3(str(values.dtype).encode() + data).hexdigest()}


#: Adds an operation with one output, by op, arguments and shape of the output.
AddOperation = Callable[[str, dict[str, object], tuple[int, ...]], Value]

_Geometry: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]  # size, strides, offset


@dataclass(slots=True)
class _Memory:
    """Memory that tensors share; `value` is of the first of them, which covers all of it."""

    root: _Geometry
    value: Value | None
    version: int = 0
    writes: list[tuple[_Geometry, Value]] = field(default_factory=list)  # not in `value` yet


@dataclass(slots=True)
class _TensorSlot:
    tensor: Tensor  # kept, so that its id stays taken
    value: Value | None  # None for a constant
    version: int
    memory: _Memory


class TensorContents:
    """Keeps every tensor it is told of alive.

    Args:
        add: records operations that follow from writes into shared memory.
        constant: records what a tensor held before the first write of a computed value into it.
    """

    def __init__(self, add: AddOperation, constant: Callable[[tuple[int, ...]], Value]) -> None:
        self._add, self._constant = add, constant
        self._slots: dict[int, _TensorSlot] = {}
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
        self._slots[id(tensor)] = _TensorSlot(tensor, value, memory.version, memory)

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

    def _part(self, whole: Value, slot: _TensorSlot) -> Value:
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


#: Makes what the forward sees in place of a tensor of the module.
Twin = Callable[[Tensor], Tensor]


class TwinCopy(WeightlessCopy):
    """The copy; the module is only read.

    Attributes:
        originals: the module's tensor, by the id of its twin.
    """

    def __init__(self, module: nn.Module, reports: Reports, twin: Twin) -> None:
        super().__init__(module, reports, training=False)
        self.originals: dict[int, Tensor] = {}
        self._make = twin

    def _twin(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._twins:
            twin = self._make(tensor)
            self._twins[id(tensor)] = twin
            self.originals[id(twin)] = tensor
        return self._twins[id(tensor)]

    def _own(self, value: object) -> object:
        if type(value) is partial:
            args = [self._own(arg) for arg in value.args]
            kwargs = {name: self._own(arg) for name, arg in value.keywords.items()}
            return partial(cast("Callable[..., object]", self._own(value.func)), *args, **kwargs)
        return super()._own(value)


class TensorPaths:
    """The paths in the state dict of a module's tensors, non-persistent buffers included.

    Attributes:
        first: the first path of each parameter and buffer, in the order of the module tree.
        ties: its further paths, with the first one.

    Raises:
        CannotTrace: a parameter has no shape yet.
    """

    def __init__(self, module: nn.Module) -> None:
        self.first: dict[str, Tensor] = {}
        self.ties: dict[str, str] = {}
        self.buffers: dict[str, bool] = {}  # whether each one is persistent
        self._by_id: dict[int, str] = {}
        for path, part in module.named_modules(remove_duplicate=False):
            for name, tensor, is_buffer in _tensors(part):
                self._add(f"{path}.{name}" if path else name, tensor)
                if is_buffer:
                    full = self._by_id[id(tensor)]
                    self.buffers.setdefault(full, name not in part._non_persistent_buffers_set)

    def of(self, tensor: Tensor) -> str | None:
        """Return the path of a tensor, None if it is not the module's."""
        return self._by_id.get(id(tensor))

    def _add(self, path: str, tensor: Tensor) -> None:
        if is_lazy(tensor):
            raise CannotTrace("a parameter has no shape before the first forward", path=path)
        known = self._by_id.setdefault(id(tensor), path)
        if known == path:
            self.first[path] = tensor
        else:
            self.ties[path] = known


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield name, tensor and whether it is a buffer, of those that the module itself holds."""
    held: Sequence[tuple[Mapping[str, Tensor | None], bool]]
    held = ((module._parameters, False), (module._buffers, True))
    for tensors, is_buffer in held:
        for name, tensor in tensors.items():
            if tensor is not None:
                yield name, tensor, is_buffer


def run_weight_hooks(module: nn.Module, copy: nn.Module, args: Sequence[Any]) -> None:
    """Run on the copy those hooks of the module that compute a weight from parameters."""
    for hook in module._forward_pre_hooks.values():
        if type(hook).__module__.startswith("torch.nn.utils."):
            cast("Any", hook)(copy, args)


def empty_twin(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a twin on the meta device, which holds nothing."""
    return _as(tensor, torch.empty(tensor.shape, dtype=dtype, device="meta"))


def random_twin(tensor: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a twin in memory: random numbers that keep activations small; zeros if no floats."""
    twin = torch.zeros(tensor.shape, dtype=dtype)
    if dtype.is_floating_point and tensor.ndim < 2:
        twin.uniform_(0.5, 1.0, generator=generator)  # a variance must not be negative
    elif dtype.is_floating_point:
        twin.normal_(0.0, max(1, tensor[0].numel()) ** -0.5, generator=generator)
    return _as(tensor, twin)


def _as(tensor: Tensor, twin: Tensor) -> Tensor:
    is_parameter = isinstance(tensor, nn.Parameter)
    return nn.Parameter(twin, requires_grad=False) if is_parameter else twin


def single(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for every kind of float, other dtypes as they are."""
    return torch.float32 if dtype.is_floating_point else dtype
