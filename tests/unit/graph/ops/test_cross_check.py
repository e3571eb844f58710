"""torch.export's second opinion on the op graphs that `capture` returns."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.graph.ops.canonical import name_of
from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.ops.op_graph import BUFFER, PARAMETER, OpGraph
from tests.unit.graph.ops.networks import NETWORKS, Residual, example_inputs

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.export warns of itself

_COMPUTE = {
    "conv1d": "convolution", "conv2d": "convolution", "conv3d": "convolution",
    "conv_transpose1d": "convolution", "conv_transpose2d": "convolution",
    "conv_transpose3d": "convolution", "convolution": "convolution",
    "linear": "product", "matmul": "product", "addmm": "product", "baddbmm": "product",
    "batch_norm": "batch_norm", "layer_norm": "layer_norm", "group_norm": "group_norm",
    "embedding": "embedding", "lstm": "lstm", "gru": "gru",
    "scaled_dot_product_attention": "scaled_dot_product_attention",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheck:
    """The differences between an op graph and torch.export's graph of the same module.

    Attributes:
        only_flow: parameters that only the op graph reads, by path.
        only_export: parameters that only the exported graph reads.
        counts: of each group of compute operations, in the op graph and in the exported graph.
    """

    only_flow: tuple[str, ...]
    only_export: tuple[str, ...]
    counts: Mapping[str, tuple[int, int]]

    @property
    def agrees(self) -> bool:
        """Whether both read the same parameters by as many compute operations."""
        same = all(one == other for one, other in self.counts.values())
        return same and not self.only_flow and not self.only_export


def cross_check(module: nn.Module, flow: OpGraph, inputs: Inputs | None = None) -> CrossCheck:
    """Compare an op graph with what torch.export finds in a copy of the module.

    Args:
        inputs: of the forward that `flow` recorded; by default those of `example_inputs`.
    """
    given = inputs or example_inputs(module)
    with torch.no_grad():
        twin = copy.deepcopy(module).eval()
        args, kwargs = tuple(map(_real, given.args)), {k: _real(v) for k, v in given.kwargs.items()}
        exported = torch.export.export(twin, args, kwargs, strict=False)
    signature = exported.graph_signature
    paths = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    nodes = list(exported.graph.nodes)
    reads = {paths[node.name] for node in nodes if node.name in paths and node.users}
    read = {flow.ties.get(path, path) for path in reads}
    ours = {
        op.path
        for op in flow.operations
        if op.op in (PARAMETER, BUFFER) and op.path not in flow.unread
    }
    names = [_name(node.target) for node in nodes if node.op == "call_function"]
    mine, theirs = _counts(op.op for op in flow.operations), _counts(names)
    return CrossCheck(
        only_flow=tuple(sorted(ours - read)),
        only_export=tuple(sorted(read - ours)),
        counts={group: (mine[group], theirs[group]) for group in sorted({*mine, *theirs})},
    )


def _real(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return torch.zeros(value.shape, dtype=value.dtype) if value.is_meta else value.clone()


def _name(target: object) -> str:
    schema = getattr(target, "_schema", None)
    return "" if schema is None else name_of(schema.name)


def _counts(names: Iterable[str]) -> Counter[str]:
    return Counter(_COMPUTE[name] for name in names if name in _COMPUTE)


@pytest.mark.parametrize("name", ["residual", "packed", "vision"])
def test_torch_export_finds_the_same(name: str) -> None:
    build, shape = NETWORKS[name]
    module = build()
    inputs = example_inputs(module, shape)
    found = cross_check(module, capture(module, inputs), inputs)
    assert found.agrees, found


def test_a_flow_that_misses_an_operation_is_told() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    flow = capture(module, [torch.zeros(2, 4)])
    wrong = replace(flow, operations=flow.operations[:-1], unread=("1.bias",))
    found = cross_check(module, wrong, example_inputs(module, (4,)))
    assert not found.agrees
    assert found.counts["product"] == (1, 2) and found.only_export == ("1.bias",)


def test_the_module_is_left_as_it_was() -> None:
    module = Residual().train()
    inputs = example_inputs(module, (3, 32, 32))
    state = {key: value.clone() for key, value in module.state_dict().items()}
    cross_check(module, capture(module, inputs), inputs)
    assert module.training
    assert all(torch.equal(state[key], value) for key, value in module.state_dict().items())
