"""The outline of an architecture: the layers that hold tensors, where their results meet.

Kinds of layers with tensors: convolutions are "conv2d", "depthwise2d" (a group per input channel)
and "conv_transpose2d" by their number of dimensions; "linear" (weight (out, in)),
"linear_transposed" (weight (in, out)), "batched_linear" (one weight per expert or head),
"matmul_left" (the weight is the left factor), "attention" (a linear whose result is both query and
key); "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", by hand or by torch's
operation; "embedding" (a table that is looked up, a learned position or token); "scale" and "bias"
(a bare parameter that multiplies or is added); "lstm", "gru", "rnn_tanh", "rnn_relu", "prelu",
"einsum"; "unread" (the forward does not read it).
"""

from __future__ import annotations

from dataclasses import dataclass

#: Kinds of layers without tensors: where results meet.
ADD, CONCAT, MULTIPLY = "add", "concat", "multiply"
#: Kind of layers that the forward does not read.
UNREAD = "unread"
#: What `Outline.inputs` has for the model's own input.
MODEL_INPUT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer that holds tensors, or a place where results meet.

    A layer that is called again is a layer again, with the same tensors and 0 parameters.

    Attributes:
        kind: "conv2d", "depthwise2d", "linear", "batch_norm", "layer_norm", "rms_norm",
            "embedding", "attention" (a packed projection), ..., "scale" for a bare parameter; ADD,
            CONCAT, MULTIPLY.
        path: of the module that owns the tensors; of the one in which results meet.
        tensors: (role, path in the state dict): ("weight", "a.weight"), ("running_mean", ...). The
            role is the operation's argument; where that is computed from several tensors (weight_g,
            weight_v), the last part of the path.
        shape: of the weight, () where there is none.
        groups: of a convolution, else 1.
        parameters: elements of the parameters (without buffers) that no earlier layer owns.
    """

    ordinal: int
    kind: str
    path: str = ""
    tensors: tuple[tuple[str, str], ...] = ()
    shape: tuple[int, ...] = ()
    groups: int = 1
    parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Layers in topological order.

    Attributes:
        inputs: for each layer, the layers whose results reach it without passing another one, in
            the order of its arguments, each once; MODEL_INPUT for the model's own input. Learned
            tokens and unread layers have none.
    """

    layers: tuple[Layer, ...]
    inputs: tuple[tuple[int, ...], ...]

    @property
    def parameters(self) -> int:
        """Elements of all parameters, each once."""
        return sum(layer.parameters for layer in self.layers)
