"""The module that runs a part of another one's forward, over its tensors at their paths."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from torch import Tensor, nn

from mmdb.errors import NotACut, stops_the_caller
from mmdb.graph.cut.forward_steps import ForwardStep, replaced, steps_in

#: Where the tensors stand that a forward makes for itself.
_CONSTANT = "_constant"
_Module = TypeVar("_Module", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Ref:
    """Stands for the result of a line, among its successors' arguments."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStep:
    """A step with its place; `frees` are the places whose results nobody reads after it."""

    kind: str
    target: Any
    args: Any
    kwargs: Any
    index: int
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentPlan:
    """What a segment does in one mode; never changed, so that copies of a module share it."""

    inputs: tuple[str, ...]
    lines: tuple[SegmentStep, ...]
    output: Any

    def __deepcopy__(self, memo: object) -> SegmentPlan:
        return self


def segment_plan(
    inputs: Sequence[str],
    given: Sequence[ForwardStep | None],
    steps: Sequence[ForwardStep],
    output: Any,
) -> SegmentPlan:
    """Return the plan that runs `steps` in their order.

    Args:
        given: the step that each input stands for.
        output: an argument of steps, or of `given`.
    """
    places = {step: index for index, step in enumerate(given) if step is not None}
    for index, step in enumerate(steps, start=len(inputs)):
        places[step] = index

    def numbered(value: Any) -> Any:
        return replaced(
            value, lambda one: Ref(places[one]) if isinstance(one, ForwardStep) else one
        )

    last: dict[ForwardStep, ForwardStep] = {}  # each step's last reader
    for step in steps:
        last.update(dict.fromkeys(step.sources, step))
    kept = set(steps_in(output))
    frees: dict[ForwardStep, list[int]] = {}
    for source, reader in last.items():
        if source not in kept:
            frees.setdefault(reader, []).append(places[source])
    lines = [
        SegmentStep(
            kind=step.kind,
            target=step.target,
            args=numbered(step.args),
            kwargs=numbered(step.kwargs),
            index=places[step],
            frees=tuple(frees.get(step, ())),
        )
        for step in steps
    ]
    return SegmentPlan(inputs=tuple(inputs), lines=tuple(lines), output=numbered(output))


class Segment(nn.Module):
    """Runs the plan of its mode. Tensors and modules stand at their paths in the whole network.

    Args:
        plans: by mode, training or not.
        guards: whether to leave the inputs as they are where a step would change them in place.
    """

    def __init__(self, plans: Mapping[bool, SegmentPlan], *, guards: bool) -> None:
        super().__init__()
        self._plans, self._guards = dict(plans), guards
        self._stays: tuple[str, ...] = ()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the plan's output."""
        plan = self._plans[self.training]
        given = _bound(plan.inputs, args, kwargs)
        if self._guards:
            given = [x.clone() if isinstance(x, Tensor) else x for x in given]
        values: list[Any] = [*given, *([None] * len(plan.lines))]
        for line in plan.lines:
            values[line.index] = self._run(line, values)
            for index in line.frees:
                values[index] = None
        return _filled(plan.output, values)

    def _run(self, line: SegmentStep, values: Sequence[Any]) -> Any:
        args, kwargs = _filled(line.args, values), _filled(line.kwargs, values)
        if line.kind == "module":
            return self.get_submodule(line.target)(*args, **kwargs)
        if line.kind == "function":
            return line.target(*args, **kwargs)
        if line.kind == "method":
            return getattr(args[0], line.target)(*args[1:], **kwargs)
        owner, _, name = line.target.rpartition(".")
        return getattr(self.get_submodule(owner), name)


class FrozenSegment(Segment):
    """A segment of which parts stay in eval mode, whatever the mode of the rest.

    `stay` takes their paths; "" is all of it.
    """

    def stay(self, paths: Iterable[str]) -> FrozenSegment:
        """Keep the modules at these paths in eval mode from now on."""
        self._stays = tuple(paths)
        return self.train(self.training)

    def train(self, mode: bool = True) -> FrozenSegment:
        """Set the mode of what does not stay in eval mode."""
        super().train(mode and "" not in self._stays)
        for path in self._stays:
            if path:
                self.get_submodule(path).train(False)
        return self


def make_segment(
    module: nn.Module,
    plans: Mapping[bool, SegmentPlan],
    *,
    extra: Mapping[str, nn.Module] | None = None,
    stays: Sequence[str] = (),
    guards: bool = False,
    frozen: Callable[[Tensor], bool] = lambda tensor: False,
) -> Segment:
    """Return a segment with copies of the modules that the plans run; tensors are shared.

    Args:
        module: the whole network.
        extra: modules of the plans that are not the network's, by path.
        stays: see FrozenSegment.
        guards: see Segment.
        frozen: whether a parameter is not to be trained there.
    Raises:
        NotACut: a module cannot be copied.
    """
    lines = [line for plan in plans.values() for line in plan.lines]
    plans, constants = _with_constants(plans)
    cls = FrozenSegment if stays else Segment
    segment = signed(cls, next(iter(plans.values())).inputs)(plans, guards=guards)
    memo = _shared(module, frozen)
    wanted = {line.target for line in lines if line.kind == "module"}
    tensors = {line.target for line in lines if line.kind == "tensor"}
    for path, part in module.named_modules():
        if path in wanted:
            _place(segment, path, _copied(part, memo, path))
        for name in (*part._parameters, *part._buffers):
            full = f"{path}.{name}" if path else name
            if full in tensors:
                _place_tensor(segment, part, path, name, memo)
    for path, part in (extra or {}).items():
        segment.add_module(path, part)
    for name, tensor in constants.items():
        segment.register_buffer(name, tensor, persistent=False)
    for part in segment.modules():
        if isinstance(part, Segment) or type(part) is nn.Module:
            part.training = module.training
    return segment.stay(stays) if isinstance(segment, FrozenSegment) else segment


def _with_constants(
    plans: Mapping[bool, SegmentPlan],
) -> tuple[dict[bool, SegmentPlan], dict[str, Tensor]]:
    """Return the plans with the names of buffers in place of constants, and those buffers."""
    constants: dict[str, Tensor] = {}
    named: dict[bool, SegmentPlan] = {}
    for mode, plan in plans.items():
        lines = []
        for line in plan.lines:
            if line.kind == "constant":
                name = f"{_CONSTANT}{len(constants)}"
                constants[name] = line.target.detach()
                line = SegmentStep(
                    kind="tensor", target=name, args=(), kwargs={}, index=line.index,
                    frees=line.frees,
                )  # fmt: skip
            lines.append(line)
        named[mode] = SegmentPlan(inputs=plan.inputs, lines=tuple(lines), output=plan.output)
    return named, constants


def _shared(module: nn.Module, frozen: Callable[[Tensor], bool]) -> dict[int, Any]:
    """Return what `copy.deepcopy` puts in place of the tensors: themselves, or frozen twins."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = (
            nn.Parameter(parameter.detach(), requires_grad=False)
            if frozen(parameter)
            else parameter
        )
    memo.update((id(buffer), buffer) for buffer in module.buffers())
    return memo


def _copied(part: nn.Module, memo: dict[int, Any], path: str) -> nn.Module:
    try:
        return copy.deepcopy(part, memo)
    except Exception as exc:  # the module's own code, or a tensor with a history
        if stops_the_caller(exc):
            raise
        raise NotACut(
            f"{path} cannot be copied: {type(exc).__name__}: {exc}",
            hint="Let copy.deepcopy make a copy of that module, or freeze up to another one.",
        ) from exc


def _place(root: nn.Module, path: str, part: nn.Module) -> None:
    """Add a module at its path; where one stands already, it is that one."""
    above, _, name = path.rpartition(".")
    parent = _container(root, above)
    if name not in parent._modules:
        parent.add_module(name, part)


def _place_tensor(
    root: nn.Module, owner: nn.Module, path: str, name: str, memo: Mapping[int, Any]
) -> None:
    parent = _container(root, path)
    if name in owner._parameters and name not in parent._parameters:
        parent.register_parameter(name, memo[id(owner._parameters[name])])
    elif name in owner._buffers and name not in parent._buffers:
        persistent = name not in owner._non_persistent_buffers_set
        parent.register_buffer(name, owner._buffers[name], persistent=persistent)


def _container(root: nn.Module, path: str) -> nn.Module:
    for name in path.split(".") if path else ():
        if name not in root._modules:
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    return root


def input_names_of(module: nn.Module) -> tuple[str, ...]:
    """Return the names of what a module's forward takes."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(module.forward).parameters.values()
    return tuple(p.name for p in parameters if p.kind in named) or ("input",)


@lru_cache(maxsize=256)
def signed(cls: type[_Module], names: tuple[str, ...]) -> type[_Module]:
    """Return the class with a forward that names its inputs, as tracing asks for them."""

    def forward(self: _Module, *args: Any, **kwargs: Any) -> Any:
        return cls.forward(self, *args, **kwargs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *names)]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    body = {"forward": forward, "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), body)


def _bound(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the inputs in their order, however they were given."""
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if len(args) > len(names) or given.keys() != set(names):
        raise TypeError(f"forward takes {', '.join(names)}, not {', '.join(given) or 'nothing'}")
    return [given[name] for name in names]


def _filled(value: Any, values: Sequence[Any]) -> Any:
    if type(value) is Ref:
        return values[value.index]
    if isinstance(value, tuple | list | dict | slice):
        return replaced(value, lambda one: values[one.index] if type(one) is Ref else one)
    return value
