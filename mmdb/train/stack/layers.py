"""Layers of several networks of one shape at once, and those of rows and numbers among them.

Each member's numbers are those that it has in any other stack, alone included: a product is one of
a batch, whatever else is in the batch, and each draws from its own generator. So that no member's
numbers lie otherwise in the processor's registers than another's, every width is filled up to a
multiple of WIDTH by zeros, which all layers leave as they are, or there are rows of zeros more; of
1 where the company is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from mmdb.graph import vocabulary
from mmdb.graph.mean import MeanOf
from mmdb.graph.spec.layer_graph import LayerGraph
from mmdb.train.stack.flow import Flow, Form, Layer, Step, by_numbers, by_rows, fill


def in_turn(layer: Layer) -> Step:
    """Return the step of a sequence of layers."""
    steps = [layer.child(name).step() for name, _ in layer.modules[0].named_children()]

    def run(flow: Flow) -> Flow:
        for step in steps:
            flow = step(flow)
        return flow

    return run


def linear(layer: Layer) -> Step:
    """Return the step of a linear layer of the last dimension."""
    first = cast(nn.Linear, layer.modules[0])
    weight = layer.tensor("weight")
    bias = None if first.bias is None else layer.tensor("bias")
    return lambda flow: product(flow, weight, bias, first.out_features, layer.unit)


def product(flow: Flow, weight: Tensor, bias: Tensor | None, width: int, unit: int) -> Flow:
    """Return the product with matrices, (members, before, after), each filled up."""
    x = flow.wide(unit).x
    rows = x.flatten(1, -2)
    y = torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias[:, None], rows, weight)
    return Flow(y.view(*x.shape[:-1], -1), width)


def dropout(layer: Layer) -> Step:
    """Return the step of dropout: each member draws from its own generator."""
    shares = [cast(nn.Dropout, module).p for module in layer.modules]

    def run(flow: Flow) -> Flow:
        if not any(shares):
            return flow
        return replace(flow, x=flow.x * kept(layer, shares, flow.x.shape))

    return run


def kept(layer: Layer, shares: Sequence[float], shape: Sequence[int]) -> Tensor:
    """Return what numbers count: 0 for those that are dropped, and more than 1 for the others."""
    found = torch.empty(*shape)
    for mask, share, generator in zip(found.chunk(len(shares)), shares, layer.draws, strict=True):
        if share:
            mask.bernoulli_(1 - share, generator=generator).div_(1 - share)
        else:
            mask.fill_(1.0)
    return found


def layer_norm(layer: Layer) -> Step:
    """Return the step of layer norm of the last dimension."""
    first = cast(nn.LayerNorm, layer.modules[0])
    layer.needs(len(first.normalized_shape) == 1)
    weight = None if first.weight is None else layer.tensor("weight")
    bias = None if first.bias is None else layer.tensor("bias")

    def run(flow: Flow) -> Flow:
        x = flow.plain()
        x = functional.layer_norm(x, first.normalized_shape, None, None, first.eps)
        rows = fill(x, layer.unit).flatten(1, -2)
        rows = rows if weight is None else rows * weight[:, None]
        rows = rows if bias is None else rows + bias[:, None]
        return Flow(rows.view(*x.shape[:-1], -1), x.shape[-1])

    return run


def embedding(layer: Layer) -> Step:
    """Return the step of an embedding: a row of its table for each code."""
    first = cast(nn.Embedding, layer.modules[0])
    layer.needs(first.padding_idx is None and first.max_norm is None)
    layer.needs(not (first.scale_grad_by_freq or first.sparse))
    table = layer.tensor("weight")

    def run(flow: Flow) -> Flow:
        return Flow(looked_up(table, flow.plain()))

    return run


def looked_up(table: Tensor, codes: Tensor) -> Tensor:
    """Return a member's row of its table (members, codes, width) for each code (members, ...)."""
    who = torch.arange(len(table)).view(-1, *(1,) * (codes.ndim - 1))
    return table[who, codes.long()]


def graph(layer: Layer) -> Step:
    """Return the step of a layer graph."""
    first = cast(LayerGraph, layer.modules[0])
    steps = {path: layer.child(path).step() for _, path, _ in first._wiring}

    def run(flow: Flow) -> Flow:
        values = {"input": flow}
        for name, path, inputs in first._wiring:
            values[name] = steps[path](*[values[one] for one in inputs])
        return values[first._output]

    return run


def mean(layer: Layer) -> Step:
    """Return the step of a mean of networks, which learn each for itself."""
    steps = [layer.child(name).step() for name, _ in layer.modules[0].named_children()]

    def run(flow: Flow) -> Flow:
        found = [step(flow).plain() for step in steps]
        return Flow(torch.cat([y if y.ndim == 4 else y[:, :, None] for y in found], 2))

    return run


def _flatten(layer: Layer) -> Step:
    first = cast(nn.Flatten, layer.modules[0])
    if (first.start_dim, first.end_dim) != (1, -1):
        return by_rows(exact=True)(layer)
    return lambda flow: Flow(flow.plain().flatten(2))


def _of_module(name: str, function: Any, *, keeps_zero: bool = True) -> Form:
    """Return the form of an activation with an argument that its module has."""

    def form(layer: Layer) -> Step:
        argument = {name: getattr(layer.modules[0], name)}
        return by_numbers(partial(function, **argument), keeps_zero=keeps_zero)(layer)

    return form


#: Of networks that `mmdb.graph.factories.mlp` and `linear` make.
PLAIN: dict[type[nn.Module], Form] = {
    nn.Sequential: in_turn,
    nn.Flatten: _flatten,
    nn.Identity: lambda layer: lambda flow: flow,
    nn.Linear: linear,
    nn.Dropout: dropout,
    nn.ReLU: by_numbers(torch.relu),
    nn.SiLU: by_numbers(functional.silu),
    nn.Tanh: by_numbers(torch.tanh),
    nn.GELU: _of_module("approximate", functional.gelu),
}
FORMS: dict[type[nn.Module], Form] = {
    NonDynamicallyQuantizableLinear: linear,
    nn.LayerNorm: layer_norm,
    nn.Embedding: embedding,
    vocabulary.Embedding: embedding,
    nn.ReLU6: by_numbers(functional.relu6),
    nn.Hardswish: by_numbers(functional.hardswish),
    nn.Hardsigmoid: by_numbers(functional.hardsigmoid, keeps_zero=False),
    nn.Sigmoid: by_numbers(torch.sigmoid, keeps_zero=False),
    nn.ELU: _of_module("alpha", functional.elu),
    nn.LeakyReLU: _of_module("negative_slope", functional.leaky_relu),
    nn.Softmax: by_rows(),
    nn.Unflatten: by_rows(exact=True),
    vocabulary.Reshape: by_rows(exact=True),
    vocabulary.Transpose: by_rows(exact=True),
    vocabulary.Concat: by_rows(exact=True),
    vocabulary.Add: by_rows(exact=True),
    vocabulary.Multiply: by_rows(exact=True),
    vocabulary.Mean: by_rows(),
    LayerGraph: graph,
    MeanOf: mean,
}
