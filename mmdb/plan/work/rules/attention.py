"""Attention that torch computes as one operation."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mmdb.graph.ops.op_graph import Operation
from mmdb.plan.work.counts import Counted, Part
from mmdb.plan.work.rules.parts import (
    Rule,
    optional,
    output,
    product,
    read_bytes,
    tensor,
    with_gradient,
)
from mmdb.plan.work.tensors import Tensors

_FLOAT = 4


def attention(op: Operation, t: Tensors) -> Counted:
    """Scores (T, D) by (D, S), their softmax, and (T, S) by (S, E); masks save no work.

    The fused kernel keeps no scores: its backward computes them again, five products in all. With
    dropout, or where the mask is learned, torch computes the products one by one and keeps them.
    """
    query, key, value, y = tensor(op, "query"), tensor(op, "key"), tensor(op, "value"), output(op)
    *leading, rows, width = t.shape(query)
    columns, out = t.shape(key)[-2], t.shape(value)[-1]
    batch = prod(leading)
    scores = batch * rows * columns
    mask = optional(op, "attn_mask")
    rate = op.arguments.get("dropout_p")
    drops = isinstance(rate, int | float) and rate > 0
    if drops or len(leading) != 2 or out != width or (mask and t.needs_gradient(mask)):
        return _in_steps(op, t, drops=drops)
    flops = 2 * scores * (width + out)
    sides = (rows, columns, width)
    again = 2 * scores * (3 * width + 2 * out)
    read = read_bytes(op, t)
    forward = Part(kind="attention", flops=flops, read=read, written=t.bytes(y), sides=sides)
    gradients = with_gradient((query, key, value), t)
    backward = Part(
        kind="attention", flops=again, read=read + 2 * t.bytes(y), sides=sides,
        written=sum(t.bytes(one) for one in gradients),
    )  # fmt: skip
    return Counted(
        forward=(forward,),
        backward=(backward,) if gradients else (),
        saves=(query, key, value, y, *((mask,) if mask else ())),
        saved_bytes=batch * rows * _FLOAT,  # log of the sums of exponentials
    )


def _in_steps(op: Operation, t: Tensors, *, drops: bool) -> Counted:
    query, key, value, y = tensor(op, "query"), tensor(op, "key"), tensor(op, "value"), output(op)
    *leading, rows, width = t.shape(query)
    columns, out = t.shape(key)[-2], t.shape(value)[-1]
    batch = prod(leading)
    scores = batch * rows * columns
    size = scores * _FLOAT
    q, k, v = t.bytes(query), t.bytes(key), t.bytes(value)
    scaled = [
        Part(kind="elementwise", flops=t.elements(one), read=t.bytes(one), written=t.bytes(one))
        for one in (query, key)
    ]
    forward = [
        *scaled,
        product((rows, columns, width), q + k, size, batch=batch),
        Part(kind="transcendental", flops=scores, read=size, written=size),
        product((rows, out, columns), size + v, t.bytes(y), batch=batch),
    ]
    softmax = Part(kind="elementwise", flops=4 * scores, read=2 * size, written=size)
    backward = [
        product((rows, columns, out), t.bytes(y) + v, size, batch=batch, gradient="input"),
        product((columns, out, rows), t.bytes(y) + size, v, batch=batch, gradient="weight"),
        softmax,
        product((rows, width, columns), size + k, q, batch=batch, gradient="input"),
        product((columns, width, rows), size + q, k, batch=batch, gradient="weight"),
        *scaled,
    ]
    mask = optional(op, "attn_mask")
    if mask is not None:
        read = size + t.bytes(mask)
        forward.insert(3, Part(kind="elementwise", flops=scores, read=read, written=size))
    kept = q + k + size  # the scaled factors and the softmax
    if drops:
        forward.insert(-1, Part(kind="random", flops=scores, written=size, calls=3))
        forward.insert(-1, Part(kind="elementwise", flops=scores, read=2 * size, written=size))
        backward.insert(2, Part(kind="elementwise", flops=scores, read=2 * size, written=size))
        kept += 2 * size  # what was drawn, and the product with it
    gradients = with_gradient((query, key, value), t)
    return Counted(
        forward=tuple(forward),
        backward=tuple(backward) if gradients else (),
        saves=(value,),
        saved_bytes=kept,
    )


RULES: Mapping[str, Rule] = {"scaled_dot_product_attention": attention}
