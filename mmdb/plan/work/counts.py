"""What one operation of a flow does, at the batch size at which it was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from mmdb.graph.ops.op_graph import Value

#: "pointwise" is a convolution of single places, without strides. "copy" moves numbers as they
#: are; "view" moves none. Of "unknown" operations only bytes count.
Kind = Literal[
    "matmul",
    "convolution",
    "pointwise",
    "depthwise",
    "attention",
    "recurrent",
    "elementwise",
    "transcendental",
    "normalisation",
    "pooling",
    "reduction",
    "embedding",
    "random",
    "copy",
    "view",
    "unknown",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: Of a backward, "input" and "weight" are the gradients of a product's first and second factor.
Way = Literal["forward", "backward", "input", "weight"]
WAYS: tuple[Way, ...] = get_args(Way)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one kernel does.

    Attributes:
        flops: a multiplication and an addition are two; an elementwise function is one for each
            element, whatever it is: its kind says whether that is cheap.
        read, written: bytes of memory.
        calls: how often a kernel is started.
        sides: m, n and k of the product, (m, k) by (k, n), that it is or amounts to; of each one
            of a batch. A convolution's are places, output channels and weights of one of them,
            all of a group. Of a norm they are how often it is taken and of how many elements, of
            a pool its results and its window. Empty for what has none.
        window: places that a convolution's kernel covers, or of an image that a norm is taken over.
        gradient: of which factor the product is the gradient, if it is one.
    """

    kind: Kind
    flops: int = 0
    read: int = 0
    written: int = 0
    calls: int = 1
    sides: tuple[int, ...] = ()
    window: int = 0
    gradient: Literal["", "input", "weight"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What an operation does forward and backward, and what it keeps in between.

    Attributes:
        saves: tensors that its backward reads: arguments, or its own outputs.
        saved_bytes: of what its backward reads beside them: masks, indices, statistics.
        workspace: bytes that it takes while it runs, beside arguments and results.
    """

    forward: tuple[Part, ...] = ()
    backward: tuple[Part, ...] = ()
    saves: tuple[Value, ...] = ()
    saved_bytes: int = 0
    workspace: int = 0
