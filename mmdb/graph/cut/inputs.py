"""What of a forward's arguments are tensors, and what it may ask of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import nn
from torch.fx.proxy import TracerBase

from mmdb.graph.stand_ins import Value

#: Names of the arguments that are tensors, or shapes of a row by name, or the only one's; by
#: default the arguments that must be given, or the first. What is known of shapes can be asked
#: for in a forward; the number of rows is never known.
Inputs = Sequence[str] | Mapping[str, tuple[int, ...]] | tuple[int, ...] | None


def _named(inputs: Inputs) -> tuple[str, ...] | None:
    """Return the names that `inputs` says, if it does."""
    if inputs is None or _is_shape(inputs):
        return None
    return tuple(cast("Sequence[str]", inputs))


def _is_shape(inputs: object) -> bool:
    return isinstance(inputs, tuple) and all(isinstance(size, int) for size in inputs)


def input_names(module: nn.Module, inputs: Inputs) -> tuple[list[str], list[str]]:
    """Return the names of tensors that the forward takes by position, and by name alone."""
    if (names := _named(inputs)) is not None:
        return [], list(names)
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):  # written in C
        return ["input"], []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    by_position = [p for p in parameters if p.kind in kinds]
    needed = [p.name for p in by_position if p.default is p.empty]
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not needed and not by_name:
        return [by_position[0].name if by_position else "input"], []
    return needed, by_name


def row_shapes(names: Sequence[str], inputs: Inputs) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a row that are known, by name."""
    if isinstance(inputs, Mapping):
        return {name: tuple(inputs[name]) for name in names}
    if inputs is not None and _is_shape(inputs) and len(names) == 1:
        return {names[0]: cast("tuple[int, ...]", inputs)}
    return {}


class InputValue(Value):
    """Stands for an input of which all sizes but the number of rows are known."""

    def __init__(self, node: Any, tracer: TracerBase, row_shape: tuple[int, ...]) -> None:
        super().__init__(node, tracer)
        self._row_shape = row_shape

    @property
    def shape(self) -> tuple[Any, ...]:
        """As of a tensor."""
        rows = self.tracer.create_proxy("call_method", "size", (self, 0), {})
        return (rows, *self._row_shape)

    @property
    def ndim(self) -> int:
        """As of a tensor."""
        return 1 + len(self._row_shape)

    def dim(self) -> int:
        """As of a tensor."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """As of a tensor."""
        return self.shape if dim is None else self.shape[dim]
