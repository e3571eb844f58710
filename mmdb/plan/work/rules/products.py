"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.plan.work.counts import Counted, Part
from mmdb.plan.work.rules.parts import (
    Rule,
    copied_if_strided,
    gradient_sum,
    output,
    product,
    read_bytes,
    tensor,
)
from mmdb.plan.work.strides import reshaped
from mmdb.plan.work.tensors import Tensors


def linear(op: Operation, t: Tensors) -> Counted:
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


def matmul(op: Operation, t: Tensors) -> Counted:
    """(..., m, k) by (..., k, n), once for each index of the leading axes of the result."""
    a, b, y = tensor(op, "self"), tensor(op, "other"), output(op)
    left, right = t.shape(a), t.shape(b)
    k = left[-1] if left else 1
    n = right[-1] if len(right) > 1 else 1
    m = left[-2] if len(left) > 1 else 1
    batch = max(1, t.elements(y) // max(1, m * n))
    if len(right) <= 2 and len(left) > 2:  # the leading axes are rows
        m, batch = m * batch, 1
    copies: list[Part] = []
    copied = 0
    kept: list[Value] = []
    for value, other in ((a, b), (b, a)):
        moves = _is_copied(value, t, is_batch=max(len(left), len(right)) > 3)
        if moves:
            copies.append(Part(kind="copy", read=t.bytes(value), written=t.bytes(value)))
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


def _is_copied(value: Value, t: Tensors, *, is_batch: bool) -> bool:
    """Whether a factor's leading axes cannot be made one without a copy."""
    shape = t.shape(value)
    if not is_batch or len(shape) < 4:
        return False
    return reshaped(shape, t.strides(value), (prod(shape[:-2]), *shape[-2:])) is None


def addmm(op: Operation, t: Tensors) -> Counted:
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


def grouped_mm(op: Operation, t: Tensors) -> Counted:
    """Each row by the weight of its group: experts."""
    a, b, y = tensor(op, "self"), tensor(op, "mat2"), output(op)
    k, n = t.shape(b)[-2:]
    m = t.elements(a) // max(1, k)
    return Counted(
        forward=(product((m, n, k), read_bytes(op, t), t.bytes(y)),),
        backward=_gradients(a, b, y, (m, n, k), 1, t),
        saves=(a, b),
    )


def einsum(op: Operation, t: Tensors) -> Counted:
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
    a: Value, b: Value, y: Value, sides: tuple[int, int, int], batch: int, t: Tensors
) -> tuple[Part, ...]:
    """Return the products of the gradient with the other factor, where one is needed."""
    m, n, k = sides
    found: tuple[Part, ...] = ()
    if t.needs_gradient(a):
        read = t.bytes(y) + t.bytes(b)
        found += (product((m, k, n), read, t.bytes(a), batch=batch, gradient="input"),)
    if t.needs_gradient(b):
        read = t.bytes(y) + t.bytes(a)
        found += (product((k, n, m), read, t.bytes(b), batch=batch, gradient="weight"),)
    return found


RULES: Mapping[str, Rule] = {
    "linear": linear,
    "matmul": matmul,
    "addmm": addmm,
    "baddbmm": addmm,
    "_grouped_mm": grouped_mm,
    "einsum": einsum,
}
