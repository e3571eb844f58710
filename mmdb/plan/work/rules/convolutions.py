"""Convolutions of any number of axes, transposed ones included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Literal

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.plan.work.counts import Counted, Kind, Part
from mmdb.plan.work.rules.parts import Rule, gradient_sum, output, product, tensor
from mmdb.plan.work.tensors import Tensors


def convolution(op: Operation, t: Tensors) -> Counted:
    """A product of places by weights, in each group.

    m is places x images, n the channels of a group's output, k the weights of one of them. A
    transposed convolution is the gradient of one: its places are the input's.
    """
    x, weight, y = tensor(op, "input"), tensor(op, "weight"), output(op)
    groups = op.arguments["groups"]
    assert isinstance(groups, int)
    axes = len(t.shape(weight)) - 2
    kernel = prod(t.shape(weight)[2:])
    first, second = t.shape(weight)[:2]
    whole = t.shape(x) if op.arguments["transposed"] else t.shape(y)
    images = t.elements(x) // max(1, prod(t.shape(x)[-axes - 1 :]))
    m = images * prod(whole[-axes:])
    if op.arguments["transposed"]:  # the weight is (input channels, output channels of a group)
        n, k = second, first // groups * kernel
    else:
        n, k = first // groups, second * kernel
    channels = t.shape(x)[-axes - 1]
    kind: Kind = "convolution"
    if groups == channels and channels > 1:
        kind = "depthwise"
    elif kernel == 1 and m == images * prod(t.shape(x)[-axes:]):
        kind = "pointwise"

    def one(
        sides: tuple[int, int, int], read: int, written: int, of: Literal["", "input", "weight"]
    ) -> Part:
        part = product(sides, read, written, batch=groups, kind=kind, gradient=of)
        return replace(part, window=kernel)

    bias = op.arguments.get("bias")
    sizes = t.bytes(x), t.bytes(weight), t.bytes(y)
    more = t.bytes(bias) if isinstance(bias, Value) else 0
    backward: tuple[Part, ...] = ()
    if t.needs_gradient(x):
        backward += (one((m, k, n), sizes[2] + sizes[1], sizes[0], "input"),)
    if t.needs_gradient(weight):
        backward += (one((k, n, m), sizes[2] + sizes[0], sizes[1], "weight"),)
    if isinstance(bias, Value) and t.needs_gradient(bias):
        backward += gradient_sum(bias, y, t)
    return Counted(
        forward=(one((m, n, k), sizes[0] + sizes[1] + more, sizes[2], ""),),
        backward=backward,
        saves=(x, weight),
        # In the layout that oneDNN works in; of the result, and of its gradient, it holds two.
        workspace=sum(sizes) + sizes[2],
    )


RULES: Mapping[str, Rule] = {"convolution": convolution}
