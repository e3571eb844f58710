"""Hooks that write down what goes through a module's layers, or through the parts asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import Node, get_gradient_edge
from torch.utils.hooks import RemovableHandle

from mmdb.errors import InvalidOption
from mmdb.probe.digests import Digests, tensors_in
from mmdb.probe.observations import ProbeRecord


def watched(module: nn.Module, layers: Sequence[str] | None) -> dict[nn.Module, str]:
    """Return the modules to write down and their paths."""
    found = {part: path for path, part in module.named_modules()}
    if layers is None:
        return {part: path for part, path in found.items() if not path or _is_layer(part)}
    for pattern in layers:
        if not any(fnmatchcase(path, pattern) for path in found.values()):
            raise InvalidOption(
                f"layers has {pattern!r}, which fits no path of the module.",
                hint="Paths are those of module.named_modules(), such as 'layer1.0.conv1'.",
            )
    return {
        part: path
        for part, path in found.items()
        if not path or any(fnmatchcase(path, pattern) for pattern in layers)
    }


def _is_layer(module: nn.Module) -> bool:
    own = module._parameters or module._buffers
    return bool(own) or next(module.children(), None) is None


def named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield parameters by path, tied ones under each of their layers: a copy may untie them."""
    for path, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                yield f"{path}.{name}".lstrip("."), parameter


def named_buffers(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield buffers by path, those that a state dict leaves out as well."""
    for path, part in module.named_modules():
        for name, buffer in part._buffers.items():
            if buffer is not None:
                yield f"{path}.{name}".lstrip("."), buffer


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return all parameters and buffers by path."""
    return dict(named_parameters(module)) | dict(named_buffers(module))


#: Where a gradient flows to: a node of the graph, and which of its outputs in the forward pass.
Edge = tuple[Node, int]


@dataclass(slots=True, kw_only=True)
class _Call:
    """A call of a layer that is being written down."""

    path: str
    module: nn.Module
    call: int
    started: int
    finished: int = -1
    #: where the gradient of an input flows to -> the input's name, its first if it has several
    edges: dict[Edge, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    backward: list[int] = field(default_factory=list)  # ticks
    outputs: dict[str, str] = field(default_factory=dict)
    grad_outputs: dict[str, str] = field(default_factory=dict)
    grad_inputs: dict[str, str] = field(default_factory=dict)

    def record(self) -> ProbeRecord:
        names = ("path", "call", "started", "finished")
        hashes = ("inputs", "outputs", "grad_outputs", "grad_inputs")
        return ProbeRecord(
            kind=type(self.module).__name__,
            backward_started=min(self.backward, default=None),
            backward_finished=max(self.backward, default=None),
            **{name: getattr(self, name) for name in (*names, *hashes)},
        )


class Tracer:
    """Writes down one pass of the layers `paths`."""

    def __init__(self, paths: Mapping[nn.Module, str], digests: Digests) -> None:
        self._paths = paths
        self._digests = digests
        self._calls: list[_Call] = []
        self._open: list[_Call] = []  # begun and not ended, outermost first
        self._left: dict[Node, int] = {}  # node of an output -> tick at which its layer ended
        self._counts: dict[str, int] = {}
        self._tick = 0
        self._handles: list[RemovableHandle] = []

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Hold the hooks in place for the block."""
        try:
            for module in self._paths:
                self._handles += (
                    module.register_forward_pre_hook(self._begin, with_kwargs=True),
                    module.register_forward_hook(self._end, with_kwargs=True),
                )
            yield
        finally:
            for handle in self._handles:
                handle.remove()

    def records(self) -> tuple[ProbeRecord, ...]:
        """Return the calls that ended, in the order in which they did."""
        return tuple(call.record() for call in self._calls)

    def where(self) -> str:
        """Return where the pass is now, for a message."""
        if not self._open:
            return " after its forward pass" if self._calls else ""
        call = self._open[-1]
        return f" in layer {call.path!r} ({type(call.module).__name__})" if call.path else ""

    def _next(self) -> int:
        self._tick += 1
        return self._tick

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path = self._paths[module]
        number = self._counts[path] = self._counts.get(path, -1) + 1
        inputs = dict(tensors_in(list(args))) | dict(tensors_in(kwargs))
        call = _Call(path=path, module=module, call=number, started=self._next())
        self._open.append(call)
        for name, tensor in inputs.items():
            if _learns(tensor):
                call.edges.setdefault(_edge(tensor), name)
        call.inputs = self._digests.add_all(inputs)

    def _end(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        while (call := self._open.pop()).module is not module:
            pass  # one that raised, and the module around it went on
        outputs = dict(tensors_in(output))
        call.outputs = self._digests.add_all(outputs)
        call.finished = self._next()
        self._calls.append(call)
        learning = {name: t for name, t in outputs.items() if _learns(t)}
        for name, tensor in learning.items():
            hook = partial(self._write, call, call.grad_outputs, name)
            self._handles.append(tensor.register_hook(hook))
        edges = [_edge(tensor) for tensor in learning.values()]
        self._watch_inputs(call, edges)
        self._left.update((node, call.finished) for node, _ in edges)

    def _write(self, call: _Call, found: dict[str, str], name: str, grad: torch.Tensor) -> None:
        call.backward.append(self._next())
        found[name] = self._digests.add(grad)

    def _watch_inputs(self, call: _Call, outputs: Sequence[Edge]) -> None:
        """Hook the nodes of a call's graph that hand a gradient on to the call's inputs.

        A hook of the input itself would see the sum over all layers that read it.
        """
        uses: dict[str, int] = {}
        for node, position, input_name in self._boundary(call, outputs):
            use = uses[input_name] = uses.get(input_name, -1) + 1
            name = f"{input_name}/{use}" if use else input_name
            write = partial(self._write, call, call.grad_inputs, name)
            self._handles.append(node.register_hook(_picking(position, write)))

    def _boundary(self, call: _Call, outputs: Sequence[Edge]) -> Iterator[tuple[Node, int, str]]:
        """Yield each node of a call's graph next to an input, which of its edges, and the input."""
        if not call.edges:
            return
        # An output that is an input: no node of the call's own stands between.
        todo = [node for node, number in outputs if (node, number) not in call.edges]
        seen = set(todo)
        while todo:
            node = todo.pop()
            for position, (before, number) in enumerate(node.next_functions):
                if before is None:
                    continue
                if (before, number) in call.edges:
                    yield node, position, call.edges[before, number]
                elif before not in seen and self._left.get(before, call.started) >= call.started:
                    seen.add(before)  # a node from before the call is not gone into
                    todo.append(before)


def _picking(
    position: int, write: Callable[[torch.Tensor], None]
) -> Callable[[Sequence[torch.Tensor | None], Sequence[torch.Tensor | None]], None]:
    """Return a hook of a node that writes one of the gradients that the node computed."""

    def hook(computed: Sequence[torch.Tensor | None], given: Sequence[torch.Tensor | None]) -> None:
        grad = computed[position]
        if grad is not None:
            write(grad)

    return hook


def _learns(tensor: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and tensor.requires_grad


def _edge(tensor: torch.Tensor) -> Edge:
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr
