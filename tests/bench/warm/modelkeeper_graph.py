"""A module as ModelKeeper sees it: operations, the dims of their weights, edges.

ModelKeeper reads ONNX exports; here torch.fx gives the same operations. What ONNX has no node for
(identities, attributes, sizes) is passed over. A linear layer keeps its weight's name, which an
export of a transformer would lose: the baseline is stronger here than its original.

Source: SymbioticLab/ModelKeeper at 9212bc7, modelkeeper/matcher.py.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch.fx
from torch import Tensor, nn

SILENT = {getattr, operator.getitem, "size", "dim"}


@dataclass(slots=True)
class Node:
    """An operation; `layer` is the module's path where it has a weight, and `dims` its shape."""

    op: str
    layer: str = ""
    dims: tuple[int, ...] = ()
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)


class BufferTracer(torch.fx.Tracer):
    """Follows buffers too: a slice of one may depend on the input's size."""

    proxy_buffer_attributes = True


def graph_of(module: nn.Module) -> list[Node]:
    """Return the operations in the order in which they run."""
    modules, parameters = dict(module.named_modules()), dict(module.named_parameters())
    nodes: list[Node] = []
    sources: dict[torch.fx.Node, list[int]] = {}
    for each in BufferTracer().trace(module).nodes:
        reads = list(dict.fromkeys(k for n in each.all_input_nodes for k in sources[n]))
        node = _node(each, modules, parameters)
        if node is None:
            sources[each] = reads
            continue
        node.before = reads
        for k in reads:
            nodes[k].after.append(len(nodes))
        sources[each] = [len(nodes)]
        nodes.append(node)
    return nodes


def sorted_for_matching(nodes: list[Node]) -> list[int]:
    """Return a topological order that follows a chain as long as it can (`topological_sorting`)."""
    order: list[int] = []
    waiting = [len(node.before) for node in nodes]
    for start in [k for k, count in enumerate(waiting) if not count]:
        stack = [start]
        while stack:
            vertex = stack.pop()
            order.append(vertex)
            for to in nodes[vertex].after:
                waiting[to] -= 1
                if not waiting[to]:
                    stack.append(to)
    return order


def _node(
    each: torch.fx.Node, modules: dict[str, nn.Module], parameters: Mapping[str, Tensor]
) -> Node | None:
    if each.op == "call_module":
        path = str(each.target)
        if isinstance(modules[path], nn.Identity):
            return None
        kind = type(modules[path]).__name__
        suffix = next((w for w in ("key", "query", "value") if w in path.lower()), "")
        weight = parameters.get(f"{path}.weight")
        if weight is None:
            return Node(kind)
        return Node(kind + suffix, path, tuple(weight.shape))
    if each.op in ("call_function", "call_method") and each.target not in SILENT:
        return Node(each.target if isinstance(each.target, str) else each.target.__name__)
    return None
