"""A copy of a module tree without weights and hooks, whose parts report what happens to them."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_HOOKS = frozenset(name for name in vars(nn.Module()) if "_hooks" in name)


class Reports(Protocol):
    """Who hears of the copy."""

    def weight(self, twin: Tensor) -> object:
        """Return what the forward sees in place of a tensor of the module."""

    def enter(
        self, module: nn.Module, copy: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        """Return what a call of a part of the copy gives."""


class WeightlessCopy:
    """The copy; the module is only read.

    `paths` are the first path of each part, by its id.
    """

    def __init__(self, module: nn.Module, reports: Reports, *, training: bool) -> None:
        self.paths = {id(part): path for path, part in module.named_modules()}
        self._module, self._reports, self._training = module, reports, training
        self._copies: dict[int, nn.Module] = {}
        self._twins: dict[int, Tensor] = {}
        self._places: dict[int, tuple[str, str, Tensor, bool]] = {}  # by id of twin and tensor
        self._full_paths: dict[int, str] = {}  # by id of the twin, as the originals
        self._originals: dict[int, Tensor] = {}
        self._no_hooks: OrderedDict[int, object] = OrderedDict()

    def root(self) -> nn.Module:
        """Return the copy of the module itself."""
        return self._copy(self._module)

    def place_of(self, tensor: Tensor) -> tuple[str, str, Tensor, bool] | None:
        """Return path, name, tensor and whether it is a buffer, of one of the state dict."""
        return self._places.get(id(tensor))

    def path_of(self, tensor: Tensor) -> str | None:
        """Return the path of a parameter or buffer, also of one that no state dict has."""
        return self._full_paths.get(id(tensor))

    def original(self, tensor: Tensor) -> Tensor:
        """Return the tensor for which one of the copy stands, or the tensor itself."""
        return self._originals.get(id(tensor), tensor)

    def _copy(self, module: nn.Module) -> nn.Module:
        if id(module) in self._copies:
            return self._copies[id(module)]
        if isinstance(module, torch.jit.ScriptModule):
            copy = nn.Module()
        else:
            copy = object.__new__(type(module))
        self._copies[id(module)] = copy
        own = copy.__dict__
        for key, value in vars(module).items() if type(copy) is type(module) else ():
            if key in ("_parameters", "_buffers"):
                own[key] = self._tensors(module, value)
            elif key == "_modules":
                parts = value.items()
                own[key] = {name: None if p is None else self._copy(p) for name, p in parts}
            else:
                own[key] = self._no_hooks if key in _HOOKS else self._own(value)
        own["training"] = self._training
        enter = self._reports.enter
        # nn.Module calls this in place of the forward and of hooks, global ones included.
        own["_compiled_call_impl"] = lambda *args, **kwargs: enter(module, copy, args, kwargs)
        return copy

    def _tensors(self, module: nn.Module, tensors: Mapping[str, Tensor | None]) -> _Tensors:
        held = _Tensors(self._reports)
        path = self.paths[id(module)]
        for name, tensor in tensors.items():
            held[name] = None if tensor is None else self._twin(tensor)
            if tensor is not None:
                full = f"{path}.{name}" if path else name
                self._full_paths.setdefault(id(self._twins[id(tensor)]), full)
            if tensor is not None and name not in module._non_persistent_buffers_set:
                place = (path, name, tensor, tensors is module._buffers)
                for known in (tensor, self._twins[id(tensor)]):
                    self._places.setdefault(id(known), place)
        return held

    def _twin(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._twins:
            twin = self._twins[id(tensor)] = _empty_like(tensor)
            self._originals[id(twin)] = tensor
        return self._twins[id(tensor)]

    def _own(self, value: object) -> object:
        """Return a value that the forward may change without the module seeing it."""
        if isinstance(value, nn.Module):  # one that is not in the tree stays as it is
            return self._copy(value) if id(value) in self.paths else value
        if isinstance(value, Tensor):
            return self._twin(value)
        if isinstance(value, types.MethodType) and id(value.__self__) in self.paths:
            return types.MethodType(value.__func__, self._copy(cast("nn.Module", value.__self__)))
        if type(value) in (list, tuple, set):
            items = [self._own(item) for item in cast("list[object]", value)]
            return cast("type[list[object]]", type(value))(items)
        if type(value) in (dict, OrderedDict):
            pairs = cast("dict[object, object]", value).items()
            kind = cast("type[dict[object, object]]", type(value))
            return kind((key, self._own(item)) for key, item in pairs)
        return value


class _Tensors(dict[str, Tensor | None]):
    """The parameters or buffers of a copied module: read by name, they are stand-ins."""

    def __init__(self, reports: Reports) -> None:
        super().__init__()
        self._reports = reports

    def __getitem__(self, name: str) -> Any:
        twin = super().__getitem__(name)
        return None if twin is None else self._reports.weight(twin)


def _empty_like(tensor: Tensor) -> Tensor:
    """Return a tensor of the same shape and dtype that holds nothing."""
    shape = () if is_lazy(tensor) else tensor.shape
    twin = torch.empty(shape, dtype=tensor.dtype, device="meta")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(twin, requires_grad=tensor.requires_grad)
    return twin
