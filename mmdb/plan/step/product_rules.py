"""The rules of what multiplies matrices: products, convolutions, attention, recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Literal

from mmdb.graph.ops.op_graph import Operation, Value, values_in
from mmdb.plan.step.counts import (
    Counted,
    KernelWork,
    OperationKind,
    Rule,
    copied_if_strided,
    gradient_sum,
    optional,
    output,
    product,
    read_bytes,
    tensor,
    with_gradient,
)
from mmdb.plan.step.tensor_sizes import TensorSizes, reshaped


def linear(op: Operation, t: TensorSizes) -> Counted:
    """(m, k) by (k, n), m being all axes but the last; the bias comes in the same pass."""
    x, weight, y = tensor(op, "input"), tensor(op, "weight"), output(op)
    n, k = t.shape(weight) if len(t.shape(weight)) == 2 else (1, t.elements(weight))
    m = t.elements(x) // max(1, k)
    copies, copied = copied_if_strided(x, t) if len(t.shape(x)) > 2 else ((), 0)
    backward = _gradients(x, weight, y, (m, n, k), 1, t)
    bias = op.arguments.get("bias")
    if isinstance(bias, Value) and t.needs_gradient(bias):
        backward += gradient_sum(bias, y, t)
    needs = t.needs_gradient(weight)
    return Counted(
        forward=(*copies, product((m, n, k), read_bytes(op, t), t.bytes(y))),
        backward=backward,
        saves=(*((x,) if needs and not copied else ()), weight),
        saved_bytes=copied if needs else 0,
    )


def matmul(op: Operation, t: TensorSizes) -> Counted:
    """(..., m, k) by (..., k, n), once for each index of the leading axes of the result."""
    a, b, y = tensor(op, "self"), tensor(op, "other"), output(op)
    left, right = t.shape(a), t.shape(b)
    k = left[-1] if left else 1
    n = right[-1] if len(right) > 1 else 1
    m = left[-2] if len(left) > 1 else 1
    batch = max(1, t.elements(y) // max(1, m * n))
    if len(right) <= 2 and len(left) > 2:  # the leading axes are rows
        m, batch = m * batch, 1
    copies: list[KernelWork] = []
    copied = 0
    kept: list[Value] = []
    for value, other in ((a, b), (b, a)):
        moves = _is_copied(value, t, is_batch=max(len(left), len(right)) > 3)
        if moves:
            copies.append(KernelWork(kind="copy", read=t.bytes(value), written=t.bytes(value)))
        if t.needs_gradient(other) and moves:
            copied += t.bytes(value)
        elif t.needs_gradient(other):
            kept.append(value)
    return Counted(
        forward=(*copies, product((m, n, k), read_bytes(op, t), t.bytes(y), batch=batch)),
        backward=_gradients(a, b, y, (m, n, k), batch, t),
        saves=tuple(kept),
        saved_bytes=copied,
    )


def _is_copied(value: Value, t: TensorSizes, *, is_batch: bool) -> bool:
    """Whether a factor's leading axes cannot be made one without a copy."""
    shape = t.shape(value)
    if not is_batch or len(shape) < 4:
        return False
    return reshaped(shape, t.strides(value), (prod(shape[:-2]), *shape[-2:])) is None


def addmm(op: Operation, t: TensorSizes) -> Counted:
    """(m, k) by (k, n), or a batch of them, added to what is there."""
    is_batch = op.op == "baddbmm"
    a = tensor(op, "batch1" if is_batch else "mat1")
    b = tensor(op, "batch2" if is_batch else "mat2")
    added, y = tensor(op, "self"), output(op)
    m, k = t.shape(a)[-2:]
    n = t.shape(b)[-1]
    batch = t.shape(a)[0] if is_batch else 1
    backward = _gradients(a, b, y, (m, n, k), batch, t)
    if t.needs_gradient(added):
        backward += gradient_sum(added, y, t)
    return Counted(
        forward=(product((m, n, k), read_bytes(op, t), t.bytes(y), batch=batch),),
        backward=backward,
        saves=tuple(v for v, other in ((a, b), (b, a)) if t.needs_gradient(other)),
    )


def grouped_mm(op: Operation, t: TensorSizes) -> Counted:
    """Each row by the weight of its group: experts."""
    a, b, y = tensor(op, "self"), tensor(op, "mat2"), output(op)
    k, n = t.shape(b)[-2:]
    m = t.elements(a) // max(1, k)
    return Counted(
        forward=(product((m, n, k), read_bytes(op, t), t.bytes(y)),),
        backward=_gradients(a, b, y, (m, n, k), 1, t),
        saves=(a, b),
    )


def einsum(op: Operation, t: TensorSizes) -> Counted:
    """A sum over all indices that the equation names; several factors from left to right."""
    equation = str(op.arguments["equation"]).replace(" ", "")
    factors = [one for one in op.reads]
    terms = equation.split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, value in zip(terms, factors, strict=False):
        names, shape = _letters(term, len(t.shape(value))), t.shape(value)
        for letter, size in zip(names, shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    result = equation.split("->")[1] if "->" in equation else ""
    kept = {letter for letter in sizes if letter in result or letter.isdigit()}
    outer = prod(sizes[letter] for letter in kept)
    inner = prod(size for letter, size in sizes.items() if letter not in kept)
    steps = max(1, len(factors) - 1)
    y = output(op)
    forward = product((outer, 1, inner), read_bytes(op, t), t.bytes(y), calls=steps)
    gradients = [one for one in factors if t.needs_gradient(one)]
    backward = tuple(
        product((outer, 1, inner), read_bytes(op, t) - t.bytes(one) + t.bytes(y), t.bytes(one))
        for one in gradients
    )
    saves = tuple(one for one in factors if any(other != one for other in gradients))
    return Counted(forward=(forward,), backward=backward, saves=saves)


def _letters(term: str, axes: int) -> list[str]:
    """Return the index of each axis; those of an ellipsis are digits, counted from the right."""
    if "..." not in term:
        return list(term)
    before, after = term.split("...")
    count = axes - len(before) - len(after)
    return [*before, *(str(i) for i in reversed(range(count))), *after]


def _gradients(
    a: Value, b: Value, y: Value, sides: tuple[int, int, int], batch: int, t: TensorSizes
) -> tuple[KernelWork, ...]:
    """Return the products of the gradient with the other factor, where one is needed."""
    m, n, k = sides
    found: tuple[KernelWork, ...] = ()
    if t.needs_gradient(a):
        read = t.bytes(y) + t.bytes(b)
        found += (product((m, k, n), read, t.bytes(a), batch=batch, gradient="input"),)
    if t.needs_gradient(b):
        read = t.bytes(y) + t.bytes(a)
        found += (product((k, n, m), read, t.bytes(b), batch=batch, gradient="weight"),)
    return found


PRODUCT_RULES: Mapping[str, Rule] = {
    "linear": linear,
    "matmul": matmul,
    "addmm": addmm,
    "baddbmm": addmm,
    "_grouped_mm": grouped_mm,
    "einsum": einsum,
}


def convolution(op: Operation, t: TensorSizes) -> Counted:
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
    kind: OperationKind = "convolution"
    if groups == channels and channels > 1:
        kind = "depthwise"
    elif kernel == 1 and m == images * prod(t.shape(x)[-axes:]):
        kind = "pointwise"

    def one(
        sides: tuple[int, int, int], read: int, written: int, of: Literal["", "input", "weight"]
    ) -> KernelWork:
        part = product(sides, read, written, batch=groups, kind=kind, gradient=of)
        return replace(part, window=kernel)

    bias = op.arguments.get("bias")
    sizes = t.bytes(x), t.bytes(weight), t.bytes(y)
    more = t.bytes(bias) if isinstance(bias, Value) else 0
    backward: tuple[KernelWork, ...] = ()
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


CONVOLUTION_RULES: Mapping[str, Rule] = {"convolution": convolution}


_FLOAT = 4


def attention(op: Operation, t: TensorSizes) -> Counted:
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
    forward = KernelWork(kind="attention", flops=flops, read=read, written=t.bytes(y), sides=sides)
    gradients = with_gradient((query, key, value), t)
    backward = KernelWork(
        kind="attention", flops=again, read=read + 2 * t.bytes(y), sides=sides,
        written=sum(t.bytes(one) for one in gradients),
    )  # fmt: skip
    return Counted(
        forward=(forward,),
        backward=(backward,) if gradients else (),
        saves=(query, key, value, y, *((mask,) if mask else ())),
        saved_bytes=batch * rows * _FLOAT,  # log of the sums of exponentials
    )


def _in_steps(op: Operation, t: TensorSizes, *, drops: bool) -> Counted:
    query, key, value, y = tensor(op, "query"), tensor(op, "key"), tensor(op, "value"), output(op)
    *leading, rows, width = t.shape(query)
    columns, out = t.shape(key)[-2], t.shape(value)[-1]
    batch = prod(leading)
    scores = batch * rows * columns
    size = scores * _FLOAT
    q, k, v = t.bytes(query), t.bytes(key), t.bytes(value)
    scaled = [
        KernelWork(
            kind="elementwise", flops=t.elements(one), read=t.bytes(one), written=t.bytes(one)
        )
        for one in (query, key)
    ]
    forward = [
        *scaled,
        product((rows, columns, width), q + k, size, batch=batch),
        KernelWork(kind="transcendental", flops=scores, read=size, written=size),
        product((rows, out, columns), size + v, t.bytes(y), batch=batch),
    ]
    softmax = KernelWork(kind="elementwise", flops=4 * scores, read=2 * size, written=size)
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
        forward.insert(3, KernelWork(kind="elementwise", flops=scores, read=read, written=size))
    kept = q + k + size  # the scaled factors and the softmax
    if drops:
        forward.insert(-1, KernelWork(kind="random", flops=scores, written=size, calls=3))
        forward.insert(
            -1, KernelWork(kind="elementwise", flops=scores, read=2 * size, written=size)
        )
        backward.insert(
            2, KernelWork(kind="elementwise", flops=scores, read=2 * size, written=size)
        )
        kept += 2 * size  # what was drawn, and the product with it
    gradients = with_gradient((query, key, value), t)
    return Counted(
        forward=tuple(forward),
        backward=tuple(backward) if gradients else (),
        saves=(value,),
        saved_bytes=kept,
    )


ATTENTION_RULES: Mapping[str, Rule] = {"scaled_dot_product_attention": attention}


#: Gates, functions of each unit and step, and numbers that are kept of each unit and step; of an
#: lstm what oneDNN keeps, as measured, with its buffers' rounding to pages.
_CELLS = {"lstm": (4, 5, 16), "gru": (3, 3, 7), "rnn_tanh": (1, 1, 1), "rnn_relu": (1, 1, 1)}
_PAGES = 6 * 4096
#: Kernels of a layer and direction, forward and backward; of all but lstm for each step.
_CALLS = {"lstm": (10, 16), "gru": (14, 24), "rnn_tanh": (4, 10), "rnn_relu": (4, 10)}


def recurrent(op: Operation, t: TensorSizes) -> Counted:
    """For each layer and direction: (steps x rows, inputs) at once, then (rows, units) by step."""
    gates, functions, kept = _CELLS[op.op]
    x = next(iter(op.reads))
    params = op.arguments.get("params")
    weights = [one for one in values_in(params) if len(t.shape(one)) == 2]
    small = sum(t.bytes(one) for one in values_in(params))
    inputs, hidden = _pairs(weights, t)
    batch, steps = _sizes(op, t, x)
    forward: list[KernelWork] = []
    backward: list[KernelWork] = []
    saved = 0
    calls = [count * (1 if op.op == "lstm" else steps) for count in _CALLS[op.op]]
    for first, second in zip(inputs, hidden, strict=True):
        (rows, width), units = t.shape(first), t.shape(second)[1]
        flops = 2 * batch * steps * rows * (width + units)
        moved = batch * steps * (width + 2 * rows) * _FLOAT
        cells = batch * steps * units
        read = moved + steps * t.bytes(second) + t.bytes(first)
        part = KernelWork(
            kind="recurrent", flops=flops, read=read, written=batch * steps * rows * _FLOAT,
            calls=calls[0], sides=(batch, rows, units),
        )  # fmt: skip
        gate = KernelWork(
            kind="transcendental", flops=functions * cells, read=gates * cells * _FLOAT,
            written=kept * cells * _FLOAT, calls=0,
        )  # fmt: skip
        forward += [part, gate]
        backward += [
            KernelWork(
                kind="recurrent", flops=2 * flops, read=2 * read, written=moved + small,
                calls=calls[1], sides=(batch, rows, units),
            ),
            gate,
        ]  # fmt: skip
        saved += kept * cells * _FLOAT
        if op.op == "lstm":
            saved += _PAGES + 4 * batch * units * _FLOAT  # and the states before and after
        if op.op != "lstm" or first in inputs[:1]:  # an lstm's own outputs are among what it keeps
            saved += batch * steps * width * _FLOAT
    needed = any(t.needs_gradient(one) for one in op.reads)
    return Counted(
        forward=tuple(forward),
        backward=tuple(backward) if needed else (),
        saved_bytes=saved if needed else 0,
    )


def _pairs(weights: list[Value], t: TensorSizes) -> tuple[list[Value], list[Value]]:
    """Return the weights of inputs, and those of the hidden state; projections are left out."""
    units = {t.shape(one)[0] for one in weights}
    largest = max(units, default=0)
    gates = [one for one in weights if t.shape(one)[0] == largest]
    return gates[::2], gates[1::2]


def _sizes(op: Operation, t: TensorSizes, x: Value) -> tuple[int, int]:
    """Return rows of a batch and steps; packed rows are one step each."""
    shape = t.shape(x)
    if len(shape) < 3:
        return 1, shape[0] if shape else 1
    first = bool(op.arguments.get("batch_first", False))
    return (shape[0], shape[1]) if first else (shape[1], shape[0])


RECURRENT_RULES: Mapping[str, Rule] = dict.fromkeys(_CELLS, recurrent)
