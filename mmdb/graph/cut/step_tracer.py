"""Traces the steps of a forward, so that a part of them can be run by itself.

Only modules that hold a cut are followed; any other is one step, whatever it does inside.
torch.fx's own tracer patches nn.Module for the whole process while it works, and so disturbs other
threads; here the copied modules report their own calls, as in `mmdb.graph.trace.call_tracer`.
"""

from __future__ import annotations

import dis
import enum
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.fx import Graph
from torch.fx.proxy import Proxy, TraceError, TracerBase
from torch.overrides import TorchFunctionMode

from mmdb.errors import stops_the_caller
from mmdb.graph.cut.forward_steps import (
    ForwardStep,
    InputProxy,
    StepTrace,
    TracedInputs,
    input_names,
    replaced,
    row_shapes,
)
from mmdb.graph.trace.call_forms import is_leaf, name_of
from mmdb.graph.trace.stand_ins import (
    TensorProxy,
    Untraceable,
    WeightlessCopy,
    WeightProxy,
    check_no_own_gradient,
    gradient_codes,
    python_generator_kept,
    torch_modes,
)

#: A forward with more steps is taken for one that never ends.
MOST_STEPS = 100_000
_PLAIN = (
    type(None),
    type(...),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    type,
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    types.FunctionType,
    types.BuiltinFunctionType,
)
_DRAWING = frozenset(
    "rand randn randint randperm normal bernoulli multinomial poisson rand_like randn_like "
    "randint_like normal_ uniform_ bernoulli_ random_ exponential_ dropout".split()
)


class CannotTraceSteps(Exception):
    """The forward of a module that holds a cut does what cannot be written down.

    Args:
        path: of the innermost such module; "" is the network itself.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path


def trace_steps(
    module: nn.Module,
    enters: Callable[[nn.Module], bool] | None = None,
    *,
    inputs: TracedInputs = None,
    training: bool = False,
) -> StepTrace:
    """Return the steps of a module's forward; nothing of the module changes.

    Args:
        enters: whether to follow a module inside, the network itself aside; by default every
            module that can be followed is, and one that cannot is one step.
        inputs: which of the forward's arguments are tensors; see Inputs.
        training: the mode that the forward sees.
    Raises:
        NotFollowed: the network, or a module that `enters` asks for, cannot be followed.
    """
    return _StepTracer(module, enters, training=training).run(inputs)


class _StepTracer(TracerBase):
    """Writes down one forward."""

    def __init__(
        self, module: nn.Module, enters: Callable[[nn.Module], bool] | None, *, training: bool
    ) -> None:
        self.graph = Graph()  # Proxy asks it for names
        self._module, self._enters = module, enters
        self._steps: list[ForwardStep] = []
        self._results: list[tuple[str, Any]] = []
        self._rewritten: dict[ForwardStep, ForwardStep] = {}
        self._tensors: dict[str, ForwardStep] = {}
        self._constants: dict[int, tuple[ForwardStep, Tensor]] = {}
        self._copy = WeightlessCopy(module, self, training=training)
        self._gradient_codes = gradient_codes()

    def run(self, inputs: TracedInputs) -> StepTrace:
        """Return what the forward does with these inputs."""
        positional, named = input_names(self._module, inputs)
        shapes = row_shapes((*positional, *named), inputs)
        given = [ForwardStep(kind="input", target=name) for name in (*positional, *named)]
        self._steps += given
        values = [
            InputProxy(cast("Any", step), self, shapes[step.target])
            if step.target in shapes
            else self._value(step)
            for step in given
        ]
        kwargs = dict(zip(named, values[len(positional) :], strict=True))
        root = self._copy.root()
        with python_generator_kept() as was_drawn_from, torch.enable_grad(), _NothingRandom():
            modes = torch_modes()
            output = self._arg(root(*values[: len(positional)], **kwargs))
            if was_drawn_from():
                raise CannotTraceSteps("", "it depends on Python's random numbers")
        return StepTrace(
            inputs=tuple(step.target for step in given),
            steps=self._steps,
            output=output,
            results=self._results,
            modes=modes,
        )

    # -- what stand-ins call ---------------------------------------------------

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *_: object,
        **__: object,
    ) -> Proxy:
        """Write down a function or a method."""
        check_no_own_gradient(self._gradient_codes, _run_forward.__code__)
        if kwargs.get("out") is not None:
            raise Untraceable("a result is written into another tensor")
        name = target if isinstance(target, str) else getattr(target, "__name__", "?")
        is_method = kind == "call_method"
        step = ForwardStep(
            kind="method" if is_method else "function",
            target=target,
            args=self._arg(args),
            kwargs=self._arg(kwargs),
        )
        if name_of(name)[1] or kwargs.get("inplace"):
            step.rewrites = next(step.sources, None)
        return self._value(self._add(step))

    def weight(self, twin: Tensor) -> Proxy:
        """Return the stand-in of a tensor that a copied module holds."""
        return WeightProxy(cast("Any", self._tensor(twin)), self, twin)

    def enter(
        self, module: nn.Module, copy: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        """Write down a module, or follow it; its copy in the tree calls this."""
        check_no_own_gradient(self._gradient_codes, _run_forward.__code__)
        path = self._copy.paths[id(module)]
        if not self._follows(module, args, kwargs):
            return self._opaque(module, path, args, kwargs)
        replaced([*args, *kwargs.values()], _node)  # what is read off others is not taken back
        marks = self._marks()
        try:
            if any(vars(module).get(name) for name in ("_forward_hooks", "_forward_pre_hooks")):
                raise Untraceable("it has hooks")
            result = _run_forward(module, copy, args, kwargs)
            self._results.append((path, self._arg(result)))
            return result
        except BaseException as exc:  # the forward is the user's code
            if stops_the_caller(exc):
                raise
            if self._enters is None and module is not self._module:
                self._back_to(marks)
                return self._opaque(module, path, args, kwargs)
            raise _cannot_trace(path, exc) from exc

    def to_bool(self, obj: Proxy) -> bool:
        """Pass over `assert x.dim() == 3`; nothing else can be decided in a trace."""
        asked = inspect.currentframe()
        for _ in range(2):  # Proxy.__bool__, and who asks it
            asked = asked.f_back if asked is not None else None
        if asked is not None and _asserts(asked):
            return True
        return super().to_bool(obj)

    # -- writing ----------------------------------------------------------------

    def _follows(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        if module is self._module:
            return True
        if self._enters is not None:
            return self._enters(module)
        return not is_leaf(module) or (_is_encoder(module) and len(args) == 1 and not kwargs)

    def _opaque(
        self, module: nn.Module, path: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Proxy:
        step = ForwardStep(
            kind="module", target=path, args=self._arg(tuple(args)), kwargs=self._arg(dict(kwargs))
        )
        if getattr(module, "inplace", False) and is_leaf(module):
            step.rewrites = next(step.sources, None)
        self._add(step)
        self._results.append((path, step))
        return self._value(step)

    def _add(self, step: ForwardStep) -> ForwardStep:
        if len(self._steps) >= MOST_STEPS:
            raise Untraceable(f"its forward takes more than {MOST_STEPS:,} steps")
        step.modes = torch_modes()
        self._steps.append(step)
        if step.rewrites is not None:
            self._rewritten[step.rewrites] = step
        return step

    def _value(self, step: ForwardStep) -> Proxy:
        return TensorProxy(cast("torch.fx.Node", step), self)

    def _arg(self, value: Any) -> Any:
        return replaced(value, self._plain)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Proxy):
            return self._latest(cast("ForwardStep", value.node))
        if isinstance(value, Tensor):
            return self._latest(self._tensor(value))
        if isinstance(value, _PLAIN) or callable(value):
            return value
        raise Untraceable(f"it hands on a {type(value).__name__}")

    def _latest(self, step: ForwardStep) -> ForwardStep:
        """Return the step whose result is now where that of `step` was."""
        while step in self._rewritten:
            step = self._rewritten[step]
        return step

    def _tensor(self, tensor: Tensor) -> ForwardStep:
        path = self._copy.path_of(tensor)
        if path is not None:
            if path not in self._tensors:
                self._tensors[path] = self._add(ForwardStep(kind="tensor", target=path))
            return self._tensors[path]
        if id(tensor) not in self._constants:
            original = self._copy.original(tensor)
            if original.is_meta and not torch.empty(0).is_meta and not self._on_meta():
                raise Untraceable("it computes with a tensor that is no buffer of the module")
            step = self._add(ForwardStep(kind="constant", target=original))
            self._constants[id(tensor)] = (step, tensor)  # the tensor keeps its id taken
        return self._constants[id(tensor)][0]

    def _on_meta(self) -> bool:
        return any(parameter.is_meta for parameter in self._module.parameters())

    def _marks(self) -> tuple[int, ...]:
        kept = (self._steps, self._results, self._rewritten, self._tensors, self._constants)
        return tuple(len(some) for some in kept)

    def _back_to(self, marks: tuple[int, ...]) -> None:
        steps, results, *others = marks
        del self._steps[steps:], self._results[results:]
        grown: tuple[dict[Any, Any], ...] = (self._rewritten, self._tensors, self._constants)
        for some, length in zip(grown, others, strict=True):
            while len(some) > length:
                some.popitem()


class _NothingRandom(TorchFunctionMode):
    """Refuses draws that would become constants."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_followed = any(issubclass(kind, Proxy) for kind in types)
        if not is_followed and getattr(func, "__name__", "") in _DRAWING:
            raise Untraceable("it draws random numbers by itself")
        return func(*args, **(kwargs or {}))


def _node(value: object) -> object:
    """Let an attribute of a tensor be written down now: torch.fx does it when it is first used."""
    return value.node if isinstance(value, Proxy) else value


def _asserts(frame: types.FrameType) -> bool:
    """Return whether what a frame does with the truth it asks for is an assertion."""
    instructions = [i for i in dis.get_instructions(frame.f_code) if i.offset >= frame.f_lasti]
    names = [i.opname for i in instructions[:3] if i.opname != "TO_BOOL"]
    return len(names) > 1 and "IF_TRUE" in names[0] and names[1] == "LOAD_ASSERTION_ERROR"


def _run_forward(
    module: nn.Module, copy: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> object:
    if _is_encoder(module):
        if len(args) != 1 or kwargs:
            raise Untraceable("nn.TransformerEncoder is given a mask")
        return _run_encoder(cast("nn.TransformerEncoder", copy), args[0])
    return copy.forward(*args, **kwargs)


def _is_encoder(module: nn.Module) -> bool:
    return type(module) is nn.TransformerEncoder


def _run_encoder(encoder: nn.TransformerEncoder, x: object) -> object:
    """Run nn.TransformerEncoder as it does without masks: layer by layer."""
    for layer in encoder.layers:
        x = layer(x)
    return x if encoder.norm is None else encoder.norm(cast("Tensor", x))


def _cannot_trace(path: str, exc: BaseException) -> CannotTraceSteps:
    if isinstance(exc, CannotTraceSteps):
        return exc
    if isinstance(exc, TraceError):
        return CannotTraceSteps(path, "what it does depends on the numbers or sizes of its tensors")
    what = (str(exc).splitlines() or [""])[0]
    known = isinstance(exc, Untraceable)
    return CannotTraceSteps(path, what if known else f"{type(exc).__name__}: {what}"[:300])
