"""Copies a module without its weights and makes tensor proxies, on which a traced forward runs.

`on_meta` builds modules without memory; they have shapes and dtypes, and no numbers.
"""

from __future__ import annotations

import inspect
import operator
import random
import types
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.fx.proxy import Proxy, TracerBase
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

#: Modules that only hand their input on to the one they hold.
TRANSPARENT = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "OptimizedModule": "_orig_mod",  # what torch.compile returns
}
#: Methods that fill a tensor with draws, for which torch would load its compiler's symbols there.
_FILLING = {torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.bernoulli_}


@contextmanager
def on_meta() -> Iterator[None]:
    """Let tensors be made on the meta device, and initial values not be drawn."""
    with torch.device("meta"), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    """Leaves tensors as they are where a module would fill them: half a second less, at first."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func in _FILLING or getattr(func, "__module__", None) == "torch.nn.init":
            tensor = args[0] if args else given.get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **given)


def required_arguments(module: nn.Module) -> tuple[list[str], list[str]]:
    """Return the names that the forward must be given, by position and by name, or its first."""
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


class Untraceable(Exception):
    """The forward does what cannot be written down."""


class TensorProxy(Proxy):
    """Stands for a tensor that a call returns."""


class WeightProxy(TensorProxy):
    """Stands for a tensor of the module; its shape and dtype are known."""

    def __init__(self, node: Any, tracer: TracerBase, twin: Tensor) -> None:
        super().__init__(node, tracer)
        self._twin = twin

    @property
    def shape(self) -> torch.Size:
        """As of a tensor."""
        return self._twin.shape

    @property
    def ndim(self) -> int:
        """As of a tensor."""
        return self._twin.ndim

    @property
    def dtype(self) -> torch.dtype:
        """As of a tensor."""
        return self._twin.dtype

    @property
    def requires_grad(self) -> bool:
        """As of a tensor."""
        return self._twin.requires_grad

    def size(self, dim: int | None = None) -> torch.Size | int:
        """As of a tensor."""
        return self._twin.size() if dim is None else self._twin.size(dim)

    def dim(self) -> int:
        """As of a tensor."""
        return self._twin.dim()

    def numel(self) -> int:
        """As of a tensor."""
        return self._twin.numel()


def _in_place(function: Callable[..., object]) -> Callable[[Proxy, object], Proxy]:
    def change(self: Proxy, other: object) -> Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return change


# torch.fx takes `x += y` for `x = x + y`, which hides that other names of x change too.
for _name in ("iadd", "isub", "imul", "itruediv", "ipow"):
    setattr(TensorProxy, f"__{_name}__", _in_place(getattr(operator, _name)))


class _NothingReal(TorchFunctionMode):
    """Lets torch work on stand-ins and on the meta device only."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if any(issubclass(kind, Proxy) for kind in types):
            return func(*args, **kwargs)
        if kwargs.get("device") is not None:
            kwargs["device"] = "meta"
        if getattr(func, "__name__", "") != "__get__" and any(
            isinstance(item, Tensor) and not item.is_meta for item in (*args, *kwargs.values())
        ):
            raise Untraceable("the forward works on a tensor that the module does not own")
        return func(*args, **kwargs)


@contextmanager
def nothing_real() -> Iterator[None]:
    """Let no real tensor be made, read or changed by this thread."""
    with torch.enable_grad(), torch.device("meta"), _NothingReal():
        yield


@contextmanager
def python_generator_kept() -> Iterator[Callable[[], bool]]:
    """Put Python's generator back at the end; yields whether it has been drawn from."""
    state = random.getstate()

    def was_drawn_from() -> bool:
        return random.getstate() != state

    try:
        yield was_drawn_from
    finally:
        if was_drawn_from():
            random.setstate(state)


def torch_modes() -> tuple[bool, ...]:
    """Return the modes that change what a call computes, or whether it has a gradient."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch._C._is_any_autocast_enabled(),
    )


def gradient_codes() -> set[object]:
    """Return the code of the forward of every autograd.Function there is."""
    found: set[object] = set()
    waiting: list[type[object]] = [torch.autograd.Function]
    while waiting:
        subclasses: list[type[object]] = type.__subclasses__(waiting.pop())
        for cls in subclasses:
            waiting.append(cls)
            function = vars(cls).get("forward")
            code = getattr(getattr(function, "__func__", function), "__code__", None)
            if code is not None:
                found.add(code)
    return found


def check_no_own_gradient(codes: Collection[object], until: types.CodeType) -> None:
    """Raise Untraceable inside the forward of an autograd.Function.

    Args:
        codes: as `gradient_codes` returns them.
        until: runs a module's forward; who called it is not looked at.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not until:
        if frame.f_code in codes:
            raise Untraceable("an autograd.Function has a gradient of its own")
        frame = frame.f_back


_HOOKS = frozenset(name for name in vars(nn.Module()) if "_hooks" in name)


class Reports(Protocol):
    """A listener that is told what the copy of a module does."""

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
        """Return the module's tensor that a tensor of the copy replaces, or the tensor itself."""
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
