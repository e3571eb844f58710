"""From a torch module, or an architecture as the user wrote it, to its structure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import nn

from mmdb.errors import FactoryFailed
from mmdb.graph.build import build, initial_module
from mmdb.graph.calls import Call, reached
from mmdb.graph.describe import spec_of
from mmdb.graph.meta import on_meta
from mmdb.graph.recorder import Recorder, leaves
from mmdb.graph.sizes import Outputs, Shape
from mmdb.graph.structure import Edge, Node, Structure, TensorSpec


def trace(module: nn.Module, inputs: Sequence[str] | None = None) -> Structure:
    """Return the structure of what the module computes when it is evaluated.

    Its forward is followed with stand-ins for tensors; nothing of the module, of torch's
    generators or of other threads changes, and no weight is read. A part that cannot be
    followed (its control flow depends on data, or it has a gradient of its own) becomes its
    layers in the order of the module tree, after a node 'untraced'. Layers that the forward
    does not reach are nodes without edges.

    Args:
        inputs: names of the forward's arguments that are tensors; by default those that must
            be given, or the first.
    """
    recorder = Recorder(module)
    recorder.run(inputs)
    return structure_of_calls(module, recorder.calls)


def structure_of(
    architecture: str | Mapping[str, object],
    arguments: Mapping[str, object],
    input_shape: Shape,
    outputs: Outputs,
    factories: Mapping[str, str],
) -> Structure:
    """Return the structure of an architecture as `build` takes it.

    It is built on the meta device, which allocates nothing, or if its factory does not
    work there, with weights that are thrown away; torch's generator is left as it was.

    Raises:
        ArchitectureError: as `build`.
    """
    try:
        with on_meta():
            return trace(build(architecture, arguments, input_shape, outputs, factories))
    except FactoryFailed:
        pass
    return trace(initial_module(architecture, arguments, input_shape, outputs, factories, seed=0))


def structure_of_calls(module: nn.Module, calls: Sequence[Call]) -> Structure:
    """Return the structure of recorded calls, and of what of the module they do not reach."""
    needed = reached(calls, filter(_stays, calls))
    kept = [call for call in calls if id(call) in needed]
    kept = [*kept[:-1], *_unreached(module, kept), kept[-1]]
    numbers = {id(call): number for number, call in enumerate(kept)}
    owners: dict[int, tuple[int, int]] = {}
    nodes: list[Node] = []
    edges: list[Edge] = []
    for number, call in enumerate(kept):
        node, ties = _node(number, call, owners)
        nodes.append(node)
        edges += [Edge(owner, number, -1 - place) for place, owner in enumerate(ties)]
        edges += [
            Edge(numbers[id(source)], number, place) for place, source in enumerate(call.inputs)
        ]
    return Structure(nodes=tuple(nodes), edges=tuple(edges))


def _stays(call: Call) -> bool:
    return call.op in ("input", "output") or bool(call.tensors)


def _unreached(module: nn.Module, kept: Iterable[Call]) -> list[Call]:
    """Return calls without inputs for the tensors of the state dict that no call reads."""
    read = {id(tensor) for call in kept for _, tensor, _ in call.tensors}
    found = []
    for call in leaves(module, ""):
        tensors = [entry for entry in call.tensors if id(entry[1]) not in read]
        if tensors:
            call.tensors = tensors
            found.append(call)
            read.update(id(tensor) for _, tensor, _ in tensors)
    return found


def _node(number: int, call: Call, owners: dict[int, tuple[int, int]]) -> tuple[Node, list[int]]:
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
    node = Node(
        ordinal=number,
        path=call.path,
        op=call.op,
        attributes=attributes,
        parameters=tuple(specs),
        parameter_bytes=byte_count,
    )
    return node, ties
