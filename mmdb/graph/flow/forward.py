"""One forward of a copy of a module, followed from inputs to outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.errors import stops_the_caller
from mmdb.graph.flow.capture import Capture
from mmdb.graph.flow.flow import Flow
from mmdb.graph.flow.inputs import Inputs
from mmdb.graph.flow.known import InMemory, OnMeta
from mmdb.graph.flow.place import Place
from mmdb.graph.flow.readable import Readable
from mmdb.graph.flow.tidy import tidy
from mmdb.graph.flow.twins import TensorPaths, Twin, TwinCopy, run_weight_hooks
from mmdb.graph.stand_ins import python_generator_kept

# Modules that only hand their input on to the one they hold.
_TRANSPARENT = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "OptimizedModule": "_orig_mod",  # what torch.compile returns
}


class Forward:
    """A forward of a module's copy; the module is only read.

    Args:
        twin: makes what the forward sees in place of a tensor of the module.
        dtype: of inputs that are floats.
        memory: computes with values, for twins that have some; without it nothing has values.

    Raises:
        CannotTrace: a parameter has no shape yet.
    """

    def __init__(
        self,
        module: nn.Module,
        twin: Twin,
        *,
        dtype: torch.dtype = torch.float32,
        memory: InMemory | None = None,
    ) -> None:
        self._module, self._dtype = module, dtype
        self._paths, self._place = TensorPaths(module), Place()
        self._copy = TwinCopy(module, self, twin)
        self._on_meta = None if memory else OnMeta(self._copy.originals)
        self._runs = memory or self._on_meta or OnMeta({})
        self._capture = Capture(self._place, self._paths, self._copy.originals, self._runs)

    def follow(self, inputs: Inputs) -> Flow:
        """Return the flow; to be called once.

        Raises:
            CannotTrace: the forward fails.
        """
        capture = self._capture
        with python_generator_kept(), torch.inference_mode():
            try:
                root = self._copy.root()
                args, kwargs = self._given(inputs)
                with Readable(self._runs), capture:
                    result = root(*args, **kwargs)
            except Exception as exc:  # the forward is the user's code
                if stops_the_caller(exc):
                    raise
                error = self._place.error(exc)
                raise error from (None if error is exc else exc)
            outputs = [capture.value_of(tensor) for tensor in results_of(result)]
            unread = capture.add_unread()
        operations, values = tidy(capture.operations, outputs)
        return Flow(operations=operations, outputs=values, ties=self._paths.ties, unread=unread)

    # -- what the copy calls -------------------------------------------------------

    def weight(self, twin: Tensor) -> object:
        """As `Reports`."""
        return twin

    def enter(
        self, module: nn.Module, copy: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        """As `Reports`."""
        before, self._place.path = self._place.path, self._copy.paths[id(module)]
        try:
            held = _TRANSPARENT.get(type(module).__name__, "")
            if held in module._modules:
                return copy.get_submodule(held)(*args, **kwargs)
            run_weight_hooks(module, copy, args)
            return copy.forward(*args, **kwargs)
        except Exception as exc:
            self._place.note(exc)
            raise
        finally:
            self._place.path = before

    # -- inputs --------------------------------------------------------------------

    def _given(self, inputs: Inputs) -> tuple[list[Any], dict[str, Any]]:
        names = _names(self._module, len(inputs.args))
        args = [self._input(*pair) for pair in zip(names, inputs.args, strict=True)]
        return args, {name: self._input(name, value) for name, value in inputs.kwargs.items()}

    def _input(self, name: str, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(self._input(f"{name}.{i}", item) for i, item in enumerate(value))
        if not isinstance(value, Tensor):
            return value
        dtype = self._dtype if value.is_floating_point() else value.dtype
        if self._on_meta is None:
            zeros = torch.zeros(value.shape, dtype=value.dtype)
            tensor = (zeros if value.is_meta else value.detach().to("cpu", copy=True)).to(dtype)
        else:
            tensor = torch.empty(value.shape, dtype=dtype, device="meta")
            if not dtype.is_floating_point and not value.is_meta:
                self._on_meta.learn(tensor, value.detach().to("cpu", copy=True))
        self._capture.add_input(name, tensor)
        return tensor


def _names(module: nn.Module, count: int) -> list[str]:
    """Return names for arguments that are given by position."""
    try:
        names = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):  # written in C
        names = []
    return [*names, *(f"input{i}" for i in range(len(names), count))][:count]


def results_of(value: object) -> Iterator[Tensor]:
    """Yield the tensors that a forward returned."""
    held: Callable[[], Iterator[object]] | None = None
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        held = value.values().__iter__
    elif isinstance(value, tuple | list):
        held = value.__iter__
    elif is_dataclass(value):
        held = (getattr(value, field.name) for field in fields(value)).__iter__
    if held is not None:
        for item in held():
            yield from results_of(item)
