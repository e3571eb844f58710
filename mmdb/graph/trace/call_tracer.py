"""Traces a module: its forward runs on stand-ins for tensors, and its calls are written down.

The forward runs on a copy of the module tree that holds no weights. torch.fx's own
tracer patches nn.Module for the whole process while it works, and so
disturbs other threads; here each copied module reports its own calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.fx import Graph
from torch.fx.proxy import Proxy, TracerBase
from torch.nn.parameter import is_lazy

from mmdb.errors import stops_the_caller
from mmdb.graph.trace import call_forms as forms
from mmdb.graph.trace.call_forms import (
    ForwardCall,
    attributes_of,
    encode,
    is_leaf,
    op_of,
    spec_of,
    tensors_of,
)
from mmdb.graph.trace.stand_ins import (
    TRANSPARENT,
    TensorProxy,
    Untraceable,
    WeightlessCopy,
    WeightProxy,
    check_no_own_gradient,
    gradient_codes,
    nothing_real,
    python_generator_kept,
    required_arguments,
    torch_modes,
)
from mmdb.graph.trace.structure import UNTRACED, GraphEdge, GraphNode, NetworkGraph, TensorSpec

#: A forward with more calls is taken for one that never ends.
MOST_CALLS = 200_000


class CallTracer(TracerBase):
    """Records one forward of a module, which is not changed.

    Args:
        training: the mode that the forward sees, whatever the module's is.

    After `run`, `calls` are in the order in which they ran, `failures` say why modules
    could not be followed, innermost first, and `is_random` whether the forward drew from
    Python's generator, so that it might have gone another way.
    """

    def __init__(self, module: nn.Module, *, training: bool = False) -> None:
        self.graph = Graph()  # Proxy asks it for names
        self.calls: list[ForwardCall] = []
        self.failures: list[str] = []
        self.is_random = False
        self._module = module
        self._copy = WeightlessCopy(module, self, training=training)
        # Both only grow while a module is followed, so that its calls can be taken back.
        self._rewritten: dict[ForwardCall, ForwardCall] = {}
        self._constants: dict[int, tuple[ForwardCall, Tensor]] = {}  # the tensor keeps its id taken
        self._gradient_codes = gradient_codes()
        self._modes = torch_modes()

    def run(self, inputs: Sequence[str] | None = None) -> None:
        """Record from input to output.

        Args:
            inputs: which arguments of the forward are tensors; by default those that
                must be given, or the first.
        """
        positional, named = 0, list(inputs or ())
        if inputs is None:
            by_position, named = required_arguments(self._module)
            positional = len(by_position)
        for index in range(positional + len(named)):
            self.calls.append(ForwardCall(op="input", attributes={"index": index}))
        given = [self._value(call) for call in self.calls]
        mark = self._mark()
        kwargs = dict(zip(named, given[positional:], strict=True))
        with python_generator_kept() as was_drawn_from:
            try:
                root = self._copy.root()
                with nothing_real():
                    self._modes = torch_modes()
                    result = self._arg(root(*given[:positional], **kwargs))
                output = forms.of_function("output", [result], {})
            except BaseException as exc:  # the forward is the user's code
                if stops_the_caller(exc):
                    raise
                self._back_to(mark, exc)
                output = ForwardCall(
                    op="output", inputs=[self._chain(self._module, "", self.calls)]
                )
            self.is_random = was_drawn_from()
        self.calls.append(output)

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
        """Record a function or a method."""
        check_no_own_gradient(self._gradient_codes, _run_forward.__code__)
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        if not name:
            raise Untraceable(f"{target} has no name")
        found = cast("list[object]", self._arg(args))
        named = cast("dict[str, object]", self._arg(kwargs))
        return self._value(self._add(forms.of_function(name, found, named)))

    def weight(self, twin: Tensor) -> Proxy:
        """Return the stand-in of a tensor that a copied module holds."""
        return WeightProxy(self._tensor(twin), self, twin)

    def _value(self, call: ForwardCall) -> Proxy:
        return TensorProxy(cast("torch.fx.Node", call), self)

    def _arg(self, value: object) -> object:
        """Return an argument with calls in place of tensors."""
        if isinstance(value, Proxy):
            return self._latest(cast("ForwardCall", value.node))
        if isinstance(value, Tensor):
            return self._latest(self._tensor(value))
        if isinstance(value, tuple | list):
            return [self._arg(item) for item in value]
        if isinstance(value, dict):
            return {key: self._arg(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(*(self._arg(end) for end in (value.start, value.stop, value.step)))
        return value

    def _latest(self, call: ForwardCall) -> ForwardCall:
        """Return the call whose result is now where that of `call` was."""
        while call in self._rewritten:
            call = self._rewritten[call]
        return call

    def _tensor(self, tensor: Tensor) -> ForwardCall:
        """Return the call that stands for a tensor of the module, or for a constant."""
        if id(tensor) in self._constants:
            return self._constants[id(tensor)][0]
        if (place := self._copy.place_of(tensor)) is not None:
            path, *named = place
            call = ForwardCall(op="parameter", path=path, tensors=[cast("Any", tuple(named))])
        else:
            shape = [] if is_lazy(tensor) else list(tensor.shape)
            attributes = {"dtype": encode(tensor.dtype), "shape": encode(shape)}
            call = ForwardCall(op="constant", attributes=attributes)
        self._constants[id(tensor)] = (call, tensor)
        self.calls.append(call)
        return call

    def _add(self, call: ForwardCall) -> ForwardCall:
        if len(self.calls) >= MOST_CALLS:
            raise Untraceable(f"its forward makes more than {MOST_CALLS:,} calls")
        call.is_plain = torch_modes() == self._modes
        self.calls.append(call)
        if call.rewrites is not None:
            self._rewritten[call.rewrites] = call
        return call

    def _mark(self) -> tuple[int, int, int]:
        return len(self.calls), len(self._rewritten), len(self._constants)

    def _back_to(self, mark: tuple[int, int, int], exc: BaseException) -> None:
        calls, rewritten, constants = mark
        del self.calls[calls:]
        while len(self._rewritten) > rewritten:
            self._rewritten.popitem()
        while len(self._constants) > constants:
            self._constants.popitem()
        self.failures.append(f"{type(exc).__name__}: {exc}"[:300])

    # -- modules --------------------------------------------------------------

    def enter(
        self, module: nn.Module, copy: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        """Record the call of a module; its copy in the tree calls this."""
        check_no_own_gradient(self._gradient_codes, _run_forward.__code__)
        path = self._copy.paths[id(module)]
        if type(module) is nn.TransformerEncoder and len(args) == 1 and not kwargs:
            return _run_encoder(copy, args[0])
        held = TRANSPARENT.get(type(module).__name__, "")
        if held in module._modules:
            return copy.get_submodule(held)(*args, **kwargs)
        is_script = isinstance(module, torch.jit.ScriptModule)
        if is_script or (is_leaf(module) and "forward" not in vars(module)):
            return self._leaf(module, path, args, kwargs)
        if module is self._module:
            return _run_forward(copy, args, kwargs)
        self._arg([*args, *kwargs.values()])  # what is read off others is not taken back
        mark = self._mark()
        try:
            return _run_forward(copy, args, kwargs)
        except BaseException as exc:  # the forward is the user's code
            if stops_the_caller(exc):
                raise
            self._back_to(mark, exc)
            found = [self._arg(arg) for arg in (*args, *kwargs.values())]
            inputs = [call for call in found if isinstance(call, ForwardCall)]
            return self._value(self._chain(module, path, inputs))

    def _leaf(
        self, module: nn.Module, path: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Proxy:
        found = cast("list[object]", self._arg(list(args)))
        named = cast("dict[str, object]", self._arg(dict(kwargs)))
        call = forms.of_module(op_of(module), attributes_of(module), found, named)
        call.module, call.path, call.tensors = module, path, list(tensors_of(module))
        if getattr(module, "inplace", False) and call.inputs:
            call.rewrites = call.inputs[0]
        return self._value(self._add(call))

    def _chain(self, module: nn.Module, path: str, inputs: Sequence[ForwardCall]) -> ForwardCall:
        """Record a module that cannot be followed: its leaves, one after the other."""
        name: dict[str, object] = {"class": op_of(module)}
        last = self._add(ForwardCall(op=UNTRACED, path=path, inputs=list(inputs), attributes=name))
        for call in leaf_calls(module, path):
            call.inputs = [last]
            last = self._add(call)
        return last


def leaf_calls(module: nn.Module, path: str) -> Iterator[ForwardCall]:
    """Yield a call without inputs for each part that is a leaf, ends the tree or owns tensors."""
    if is_leaf(module):
        tensors = list(tensors_of(module))
        yield ForwardCall(
            op=op_of(module),
            path=path,
            attributes=attributes_of(module),
            tensors=tensors,
            module=module,
        )
        return
    own = list(tensors_of(module, below=False))
    if own or not module._modules:
        yield ForwardCall(op=op_of(module), path=path, tensors=own)
    for name, part in module._modules.items():
        if part is not None:
            yield from leaf_calls(part, f"{path}.{name}" if path else name)


def _run_forward(copy: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    return copy.forward(*args, **kwargs)


def _run_encoder(copy: nn.Module, x: object) -> object:
    """Run nn.TransformerEncoder as it does without masks: layer by layer."""
    encoder = cast("nn.TransformerEncoder", copy)
    for layer in encoder.layers:
        x = layer(x)
    return x if encoder.norm is None else encoder.norm(x)


def trace(module: nn.Module, inputs: Sequence[str] | None = None) -> NetworkGraph:
    """Return the architecture of what the module computes when it is evaluated.

    Its forward is followed with stand-ins for tensors; nothing of the module, of torch's
    generators or of other threads changes, and no weight is read. A part that cannot be
    followed (its control flow depends on data, or it has a gradient of its own) becomes its
    layers in the order of the module tree, after a node 'untraced'. Layers that the forward
    does not reach are nodes without edges.

    Args:
        inputs: names of the forward's arguments that are tensors; by default those that must
            be given, or the first.
    """
    recorder = CallTracer(module)
    recorder.run(inputs)
    return architecture_of_calls(module, recorder.calls)


def architecture_of_calls(module: nn.Module, calls: Sequence[ForwardCall]) -> NetworkGraph:
    """Return the architecture of a module: its recorded calls, and the parts that none reaches."""
    needed = reached(calls, filter(_stays, calls))
    kept = [call for call in calls if id(call) in needed]
    kept = [*kept[:-1], *_unreached(module, kept), kept[-1]]
    numbers = {id(call): number for number, call in enumerate(kept)}
    owners: dict[int, tuple[int, int]] = {}
    nodes: list[GraphNode] = []
    edges: list[GraphEdge] = []
    for number, call in enumerate(kept):
        node, ties = _node(number, call, owners)
        nodes.append(node)
        edges += [GraphEdge(owner, number, -1 - place) for place, owner in enumerate(ties)]
        edges += [
            GraphEdge(numbers[id(source)], number, place)
            for place, source in enumerate(call.inputs)
        ]
    return NetworkGraph(nodes=tuple(nodes), edges=tuple(edges))


def _stays(call: ForwardCall) -> bool:
    return call.op in ("input", "output") or bool(call.tensors)


def _unreached(module: nn.Module, kept: Iterable[ForwardCall]) -> list[ForwardCall]:
    """Return calls without inputs for the tensors of the state dict that no call reads."""
    read = {id(tensor) for call in kept for _, tensor, _ in call.tensors}
    found = []
    for call in leaf_calls(module, ""):
        tensors = [entry for entry in call.tensors if id(entry[1]) not in read]
        if tensors:
            call.tensors = tensors
            found.append(call)
            read.update(id(tensor) for _, tensor, _ in tensors)
    return found


def _node(
    number: int, call: ForwardCall, owners: dict[int, tuple[int, int]]
) -> tuple[GraphNode, list[int]]:
    """Return the node, and the nodes that own tensors which it reads."""
    attributes = dict(call.attributes)
    specs: list[TensorSpec] = []
    ties: list[int] = []
    tied: list[list[int]] = []
    byte_count = 0
    for index, (name, tensor, is_buffer) in enumerate(call.tensors):
        specs.append(spec_of(name, tensor, is_buffer))
        owner, place = owners.setdefault(id(tensor), (number, index))
        if owner == number and place == index:
            byte_count += specs[-1].byte_count
            continue
        if owner != number and owner not in ties:
            ties.append(owner)
        position = -1 - ties.index(owner) if owner != number else 0
        tied.append([index, position, place])
    if tied:
        attributes["tied"] = tied
    node = GraphNode(
        ordinal=number,
        path=call.path,
        op=call.op,
        attributes=attributes,
        parameters=tuple(specs),
        parameter_bytes=byte_count,
    )
    return node, ties


def reached(calls: Iterable[ForwardCall], ends: Iterable[ForwardCall]) -> set[int]:
    """Return the ids of the calls that any of `ends` depends on; `calls` are in order."""
    needed = {id(call) for call in ends}
    for call in reversed(list(calls)):
        if id(call) in needed:
            needed.update(id(source) for source in call.inputs)
    return needed
