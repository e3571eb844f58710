"""Runs a forward's operations on the meta device, and beside it those whose values are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch._ops import OpOverload

from mmdb.graph.flow.result_sizes import ResultSizes
from mmdb.graph.flow.schemas import Schema

_META, _CPU = torch.device("meta"), torch.device("cpu")
_MOST_ELEMENTS = 1 << 18  # of a tensor that is computed beside the forward
_INDEXING = ("aten::index", "aten::index_put", "aten::index_put_")


class Runs(Protocol):
    """Computes an operation."""

    def run(
        self, func: OpOverload, schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return what the operation gives; no generator of torch is drawn from."""

    def known(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a tensor of the forward, if they are known."""

    def certain(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a constant, if they follow from no random numbers."""


class OnMeta:
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


class InMemory:
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
