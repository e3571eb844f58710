"""One forward of a module, operation by operation, with every size and no values.

Names and arguments are those of aten's schemas, all arguments given, with these exceptions, so
that one meaning has one name:

* convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
  every convolution.
* linear(input, weight, bias): also matmul, mm and addmm by a transposed parameter.
* matmul(self, other): also mm, bmm, mv and dot. addmm and baddbmm stay.
* batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps), layer_norm,
  group_norm, instance_norm, rms_norm: whole, whatever kernel computes them.
* scaled_dot_product_attention, softmax, log_softmax, einsum, embedding, embedding_bag, lstm, gru,
  rnn_tanh, rnn_relu: whole.
* view(self, size): also reshape, flatten, unflatten and the like; the size has no -1.
* permute(self, dims): also transpose, t, swapaxes, movedim, .T and .mT; dims are not negative.
* expand(self, size): also expand_as and broadcast_to; the size has no -1.
* split_with_sizes(self, split_sizes, dim): also split, chunk and tensor_split.
* cat, stack, unbind, select, slice (start, end and step are given, end is at most the size),
  squeeze(self, dims): dims are not negative.
* as_strided, as_strided_scatter: strides are those of the argument in row-major order.
* An operation that writes into its argument ("add_") is named as the one that does not ("add"), and
  who reads the argument later reads the result. A write into a part of a tensor becomes
  slice_scatter, select_scatter or as_strided_scatter of the whole.
* What changes no value is left out: clone, contiguous, detach, alias, dropout that is off.
* What depends on no input and no parameter is computed away: its result is a CONSTANT; as the
  factor or divisor of a product, one without axes is the number itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: Ops of operations that nothing computes.
INPUT, PARAMETER, BUFFER, CONSTANT = "input", "parameter", "buffer", "constant"


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor: the output number `output` of an operation."""

    operation: int
    output: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of torch.

    Attributes:
        op: its aten name without overload: "convolution", "addmm", "cat", "view", ...; or INPUT,
            PARAMETER, BUFFER, CONSTANT.
        arguments: as it was called, by the schema's names: tensors are `Value`, lists are tuples,
            the rest is what JSON can hold (dtypes and devices as text). Of what nothing computes:
            "dtype"; of an INPUT its "name"; of a BUFFER whether it is "persistent"; of a CONSTANT
            and of a buffer that is not saved, where the numbers are known: "uniform", the one that
            all elements are, or "digest", the same for the same elements.
        shapes: of its outputs, in order; None for an output that is no tensor.
        path: of the module in whose forward it ran, "" for the root; of a PARAMETER or BUFFER, the
            tensor's path in the state dict.
    """

    ordinal: int
    op: str
    arguments: Mapping[str, object]
    shapes: tuple[tuple[int, ...] | None, ...]
    path: str = ""

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values that the operation reads, in the order of its arguments."""
        return tuple(values_in(tuple(self.arguments.values())))

    def value(self, name: str) -> Value:
        """Return an argument that is a tensor."""
        value = self.arguments[name]
        assert isinstance(value, Value)
        return value

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its first output."""
        return (self.shapes[0] if self.shapes else None) or ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpGraph:
    """The operations in the order in which they ran: what one reads has a lower ordinal.

    Every parameter and buffer of the module is an operation, read or not.

    Attributes:
        outputs: what the forward returned, nested containers flattened.
        ties: paths of tensors that are another one, by path: {"head.weight": "embed.weight"}.
        unread: paths of parameters and buffers that the forward did not read.
    """

    operations: tuple[Operation, ...]
    outputs: tuple[Value, ...]
    ties: Mapping[str, str]
    unread: tuple[str, ...]

    def shape_of(self, value: Value) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self.operations[value.operation].shapes[value.output] or ()


def values_in(argument: object) -> Iterator[Value]:
    """Yield the tensors of an argument, nested lists flattened."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, tuple):
        for item in argument:
            yield from values_in(item)


#: A module of more operations is not followed.
MOST_OPERATIONS = 50_000


class CannotTrace(ValueError):
    """The forward of the module cannot be followed.

    Attributes:
        operation: aten's name of the operation that failed, "forward" where none did.
        path: of the module in whose forward it ran, "" for the root.
        wants_values: it reads the values of a tensor, and there are none on the meta device.
    """

    def __init__(
        self,
        reason: str,
        *,
        operation: str = "forward",
        path: str = "",
        wants_values: bool = False,
    ) -> None:
        where = f"module '{path}'" if path else "the module itself"
        super().__init__(f"cannot follow {operation} in {where}: {reason}")
        self.operation, self.path, self.wants_values = operation, path, wants_values


class TooManyOperations(CannotTrace):
    """The forward has more operations than are followed."""

    def __init__(self, *, operation: str, path: str) -> None:
        reason = f"the forward has more than {MOST_OPERATIONS:,} operations"
        super().__init__(reason, operation=operation, path=path)
