"""Runs a forward's operations on the meta device, and beside it those whose values are known.

A forward may read values that are known, where torch would not ask for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode

from mmdb.graph.ops.canonical import Schema
from mmdb.graph.ops.result_sizes import ResultSizes

_META, _CPU = torch.device("meta"), torch.device("cpu")
_MOST_ELEMENTS = 1 << 18  # of a tensor that is computed beside the forward
_INDEXING = ("aten::index", "aten::index_put", "aten::index_put_")


class Runner(Protocol):
    """Computes an operation."""

    def run(
        self, func: OpOverload, schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return what the operation gives; no generator of torch is drawn from."""

    def known(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a tensor of the forward, if they are known."""

    def certain(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a constant, if they follow from no random numbers."""


class RunOnMeta:
    """Tensors have no values, but for constants, integer inputs and small buffers.

    A mask without values is taken to be true everywhere, so that what it selects has a size.

    Args:
        originals: the module's tensor, by the id of what the forward sees in its place.
    """

    def __init__(self, originals: Mapping[int, Tensor]) -> None:
        self._originals = originals
        self._values: dict[int, tuple[Tensor, Tensor]] = {}  # the first keeps its id taken
        self._metas: dict[int, tuple[Tensor, Tensor]] = {}  # of tensors that are not on meta
        self._sizes = ResultSizes()

    def learn(self, tensor: Tensor, values: Tensor) -> None:
        """Take `values` for those of a tensor of the forward."""
        self._values[id(tensor)] = tensor, values

    def run(
        self, func: OpOverload, schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """As `Runs`."""
        if schema.is_random and schema.keeps_values:
            return _unchanged(schema, args)
        given = [*args, *kwargs.values()]
        is_known = not schema.is_random and (
            schema.only_sizes or _all(given, lambda one: self.known(one) is not None)
        )
        if schema.name == "aten::nonzero" and not is_known:
            return self._all_places(args[0])
        try:
            here = self._on(_META, schema, kwargs, self._meta)
            placed = map_tensors(self._without_masks(schema, args), self._meta)
            result = self._sizes.run(func, schema, placed, here)
        except (RuntimeError, NotImplementedError):
            if not is_known:
                raise
            return map_tensors(self._compute(func, schema, args, kwargs), self._adopt)
        if is_known and _all([result], lambda one: one.numel() <= _MOST_ELEMENTS):
            computed = self._compute(func, schema, args, kwargs)
            if not isinstance(result, Tensor | tuple | list):
                return computed
            _pairwise(result, computed, self.learn)
        elif schema.writes:
            self._forget(schema, args, kwargs)
        return result

    def known(self, tensor: Tensor) -> Tensor | None:
        """As `Runs`."""
        if id(tensor) in self._values:
            return self._values[id(tensor)][1]
        original = self._originals.get(id(tensor), tensor)
        is_weight = isinstance(original, nn.Parameter) or original.is_floating_point()
        if original is not tensor and is_weight and original.numel() > 1:
            return None
        if original.device != _CPU or original.numel() > _MOST_ELEMENTS:
            return None
        values = original.detach().clone()
        self.learn(tensor, values)
        return values

    def certain(self, tensor: Tensor) -> Tensor | None:
        """As `Runs`."""
        return self.known(tensor)

    def _without_masks(self, schema: Schema, args: Sequence[Any]) -> Sequence[Any]:
        """Return indices in place of masks; those that are not known are taken to take all."""
        if schema.name not in _INDEXING or len(args) < 2:
            return args
        indices: list[Tensor | None] = []
        for index in args[1]:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                values = self.known(index)
                places = self._all_places(index) if values is None else values.nonzero()
                indices += places.unbind(1)
            else:
                indices.append(index)
        return (args[0], indices, *args[2:])

    def _all_places(self, tensor: Tensor) -> Tensor:
        """Return what nonzero gives for a tensor without a zero."""
        if tensor.numel() > _MOST_ELEMENTS:
            shape = (tensor.numel(), tensor.ndim)
            return torch.empty(shape, dtype=torch.int64, device=_META)
        return self._adopt(torch.ones(tensor.shape, dtype=torch.bool).nonzero())

    def _compute(
        self, func: OpOverload, schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        def values(tensor: Tensor) -> Tensor:
            if schema.only_sizes:
                return _empty_on_cpu(schema, tensor)
            return cast("Tensor", self.known(tensor))

        return func(*map_tensors(args, values), **self._on(_CPU, schema, kwargs, values))

    def _on(
        self,
        device: torch.device,
        schema: Schema,
        kwargs: Mapping[str, Any],
        change: Callable[[Tensor], Tensor],
    ) -> dict[str, Any]:
        found = {name: map_tensors(value, change) for name, value in kwargs.items()}
        return {**found, "device": device} if schema.takes_device else found

    def _meta(self, tensor: Tensor) -> Tensor:
        if tensor.is_meta:
            return tensor
        if id(tensor) not in self._metas:
            meta = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META
            )
            self._metas[id(tensor)] = tensor, meta
        return self._metas[id(tensor)][1]

    def _adopt(self, values: Tensor) -> Tensor:
        """Return the tensor on meta that stands for computed values."""
        meta = self._meta(values)
        self.learn(meta, values)
        return meta

    def _forget(self, schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Values that are not known were written into a tensor, and what shares its memory."""
        given = dict(zip((name for name, _ in schema.arguments), args, strict=False)) | dict(kwargs)
        for name in schema.writes:
            found = self._values.get(id(given.get(name)))
            if found is not None:
                memory = _memory(found[1])
                keys = [key for key, (_, one) in self._values.items() if _memory(one) == memory]
                for key in keys:
                    del self._values[key]


class RunInMemory:
    """Tensors have values, on the CPU."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def run(
        self, func: OpOverload, schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """As `Runs`; results of random operations are uniform, or zeros."""
        if not schema.is_random:
            return func(*args, **kwargs)
        if schema.keeps_values:
            return _unchanged(schema, args)
        if schema.writes:
            return self._fill(args[0])
        on_meta = {**kwargs, "device": _META} if schema.takes_device else kwargs
        shapes = func(*map_tensors(args, _empty), **map_tensors(on_meta, _empty))
        return map_tensors(shapes, lambda one: self._fill(torch.empty(one.shape, dtype=one.dtype)))

    def known(self, tensor: Tensor) -> Tensor:
        """As `Runs`."""
        return tensor

    def certain(self, tensor: Tensor) -> Tensor | None:
        """As `Runs`: what the module holds is random here, and all may follow from it."""
        return None

    def _fill(self, tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            return tensor.uniform_(generator=self._generator)
        return tensor.zero_()


def _unchanged(schema: Schema, args: Sequence[Any]) -> Any:
    """Return what a dropout gives that lets all pass."""
    if schema.name == "aten::native_dropout":
        return args[0], torch.ones_like(args[0], dtype=torch.bool)
    return args[0]


def _empty_on_cpu(schema: Schema, tensor: Tensor) -> Tensor:
    """Return a tensor for an operation that asks for its size, layout or dtype alone."""
    if schema.name.endswith("_like"):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return torch.empty((), dtype=tensor.dtype)


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return nested containers with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, Mapping):
        return {name: map_tensors(item, change) for name, item in value.items()}
    return value


def _all(value: Any, holds: Callable[[Tensor], bool]) -> bool:
    """Whether it holds for all tensors in nested lists."""
    if isinstance(value, Tensor):
        return holds(value)
    if isinstance(value, tuple | list):
        return all(_all(item, holds) for item in value)
    return True


def _pairwise(one: Any, other: Any, do: Callable[[Tensor, Tensor], None]) -> None:
    if isinstance(one, Tensor):
        do(one, other)
    elif isinstance(one, tuple | list):
        for a, b in zip(one, other, strict=True):
            _pairwise(a, b, do)


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=_META)


def _memory(tensor: Tensor) -> int:
    return cast("int", tensor.untyped_storage()._cdata)


_READS = frozenset((Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__index__))
_MAKES = frozenset((torch.tensor, torch.as_tensor, torch.asarray))
_TAKES = frozenset((Tensor.__getitem__, Tensor.__setitem__))


class Readable(TorchFunctionMode):
    """Lets a forward read known values as lists and arrays, and make tensors that keep theirs.

    On the meta device torch drops the numbers of a list before anything else sees them. While the
    mode is on, torch takes no fused path past the operations of nn.MultiheadAttention.
    """

    def __init__(self, runs: Runner) -> None:
        super().__init__()
        self._runs = runs

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _READS and isinstance(args[0], Tensor):
            values = self._runs.known(args[0])
            args = (args[0] if values is None else values, *args[1:])
        elif func in _TAKES:
            args = (args[0], _index(args[1]), *args[2:])
        elif func in _MAKES and kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": "cpu"}
        return func(*args, **kwargs)


def _index(index: Any) -> Any:
    """Return an index with a tensor in place of each list."""
    if isinstance(index, tuple):
        return tuple(_index(one) if isinstance(one, list) else one for one in index)
    return torch.tensor(index) if isinstance(index, list) and _is_numbers(index) else index


def _is_numbers(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_numbers, value))
    return isinstance(value, int)


_LEAST_BATCH = 11


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arguments of a forward: tensors and others, by position and by name."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def changed(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """Return the same with each tensor changed, in their order."""
        args, kwargs = map_tensors((self.args, self.kwargs), change)
        return Inputs(args, kwargs)

    def tensors(self) -> list[Tensor]:
        """Return the tensors, in their order."""
        found: list[Tensor] = []

        def keep(tensor: Tensor) -> Tensor:
            found.append(tensor)
            return tensor

        self.changed(keep)
        return found

    @property
    def rows(self) -> int:
        """The length of the first axis of the first tensor that has one."""
        return next((one.shape[0] for one in self.tensors() if one.ndim), 0)

    def with_batch(self, size: int) -> Inputs:
        """Return a batch of this size, the rows of this one again and again.

        Tensors whose first axis is as long as that of the first one have rows.
        """
        rows = self.rows

        def repeat(tensor: Tensor) -> Tensor:
            if not rows or not tensor.ndim or tensor.shape[0] != rows:
                return tensor
            return tensor.detach()[torch.arange(size, device=tensor.device) % rows]

        return self.changed(repeat)


def batch_apart(sizes: Iterable[int]) -> int:
    """Return a batch size that divides none of these sizes, so that no axis is taken for it."""
    known = {size for size in sizes if size}
    return next(
        number
        for number in count(_LEAST_BATCH, 2)
        if all(number % factor for factor in range(3, int(number**0.5) + 1, 2))
        and all(size % number for size in known)
    )
