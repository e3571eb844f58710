"""Sums, means, extremes and orders along axes."""

from __future__ import annotations

from collections.abc import Mapping

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.plan.work.counts import Counted, Part
from mmdb.plan.work.rules.parts import Rule, output, read_bytes, written_bytes
from mmdb.plan.work.tensors import Tensors

#: The gradient is repeated: a view.
_SUMS = frozenset({"sum", "trace"})
#: The gradient is repeated and scaled; nothing is kept.
_MEANS = frozenset({"mean"})
#: Operations an element forward, and what the backward reads.
_KEPT = {
    "var": (4, "input"), "std": (4, "both"), "var_mean": (4, "input"), "std_mean": (4, "both"),
    "norm": (2, "both"), "linalg_vector_norm": (2, "both"), "prod": (1, "both"),
    "logsumexp": (2, "both"), "amax": (1, "both"), "amin": (1, "both"), "cumprod": (1, "both"),
    "mse_loss": (3, "input"), "l1_loss": (2, "input"), "smooth_l1_loss": (4, "input"),
    "huber_loss": (4, "input"), "binary_cross_entropy": (6, "input"), "dist": (3, "both"),
    "binary_cross_entropy_with_logits": (8, "input"), "kl_div": (4, "input"),
    "cosine_similarity": (6, "both"),
}  # fmt: skip
#: Their backward puts the gradient to the places of the results, which are kept.
_PLACED = frozenset({"max", "min", "topk", "sort", "kthvalue", "median", "mode", "aminmax"})
_ORDERS = frozenset({"argmax", "argmin", "argsort", "any", "all", "nonzero", "count_nonzero"})


def reduction(op: Operation, t: Tensors) -> Counted:
    """A sum or mean: one addition for each element that is read."""
    x = next(iter(op.reads))
    y = output(op)
    backward: tuple[Part, ...] = ()
    if t.needs_gradient(x) and op.op in _MEANS:
        n = t.elements(x)
        backward = (Part(kind="elementwise", flops=n, read=t.bytes(y), written=t.bytes(x)),)
    elif t.needs_gradient(x):
        backward = (Part(kind="view"),)
    return Counted(forward=(_forward(op, t, 1),), backward=backward)


def kept(op: Operation, t: Tensors) -> Counted:
    """A reduction whose backward reads its argument, and mostly its result."""
    flops, what = _KEPT[op.op]
    reads, y = list(op.reads), output(op)
    gradients = [one for one in reads if t.needs_gradient(one)]
    saves: tuple[Value, ...] = (*reads, y) if what == "both" else tuple(reads)
    read = sum(t.bytes(one) for one in saves) + t.bytes(y)
    backward = tuple(
        Part(kind="elementwise", flops=2 * t.elements(one), read=read, written=t.bytes(one))
        for one in gradients
    )
    return Counted(
        forward=(_forward(op, t, flops),), backward=backward, saves=saves if gradients else ()
    )


def placed(op: Operation, t: Tensors) -> Counted:
    """The largest elements, or all in order: their places are kept."""
    reads = list(op.reads)
    if len(reads) > 1:  # the larger of two tensors, element by element
        return Counted(forward=(_forward(op, t, 1),))
    x, y = reads[0], output(op)
    places = output(op, 1) if len(op.shapes) > 1 else None
    if not t.needs_gradient(x):
        return Counted(forward=(_forward(op, t, 1),))
    read = t.bytes(y) + (0 if places is None else t.bytes(places))
    back = Part(kind="copy", read=read, written=t.bytes(x) + t.bytes(y), calls=2)
    saves = (x, y) if places is None else (places,)
    return Counted(forward=(_forward(op, t, 1),), backward=(back,), saves=saves)


def order(op: Operation, t: Tensors) -> Counted:
    """Places of elements: no gradient."""
    return Counted(forward=(_forward(op, t, 1),))


def running(op: Operation, t: Tensors) -> Counted:
    """A running sum: its gradient is one from the other end."""
    x = next(iter(op.reads))
    n = t.elements(x)
    one = Part(kind="reduction", flops=n, read=t.bytes(x), written=t.bytes(output(op)))
    turned = Part(kind="copy", read=2 * t.bytes(x), written=2 * t.bytes(x), calls=2)
    return Counted(forward=(one,), backward=(turned, one) if t.needs_gradient(x) else ())


def negative_log_likelihood(op: Operation, t: Tensors) -> Counted:
    """The log-probability of each row's class, averaged."""
    x, y = next(iter(op.reads)), output(op)
    rows = t.elements(x) // max(1, t.shape(x)[1] if len(t.shape(x)) > 1 else 1)
    read = read_bytes(op, t)
    forward = Part(kind="reduction", flops=rows, read=read, written=t.bytes(y))
    back = Part(kind="elementwise", flops=rows, read=read, written=t.bytes(x))
    return Counted(
        forward=(forward,), backward=(back,) if t.needs_gradient(x) else (), saves=tuple(op.reads)
    )


def _forward(op: Operation, t: Tensors, each: int) -> Part:
    n = sum(t.elements(one) for one in op.reads)
    return Part(
        kind="reduction", flops=each * n, read=read_bytes(op, t), written=written_bytes(op, t)
    )


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_SUMS | _MEANS, reduction),
    **dict.fromkeys(_KEPT, kept),
    **dict.fromkeys(_PLACED, placed),
    **dict.fromkeys(_ORDERS, order),
    **dict.fromkeys(("cumsum", "logcumsumexp"), running),
    **dict.fromkeys(
        ("nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward"), negative_log_likelihood
    ),
}
