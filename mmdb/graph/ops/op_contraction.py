"""Contracts an op graph to its layer skeleton: operations without tensors are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod

from mmdb.graph.ops.op_graph import (
    BUFFER,
    CONSTANT,
    INPUT,
    PARAMETER,
    Operation,
    OpGraph,
    Value,
    values_in,
)
from mmdb.graph.ops.skeleton import (
    ADD,
    CONCAT,
    MODEL_INPUT,
    MULTIPLY,
    NORMS,
    UNREAD,
    LayerSkeleton,
    SkeletonLayer,
    note_attention,
    union,
)

#: Elementwise operations of a layer that is a bare parameter.
SCALES, SHIFTS = frozenset({"mul", "div", "pow"}), frozenset({"add", "sub", "rsub"})
_TABLES = frozenset({"embedding", "embedding_bag", "index", "index_select", "gather", "take"})
_PRODUCTS_OF_WEIGHTS = frozenset({"matmul", "addmm", "baddbmm", "_grouped_mm", "einsum"})
_NAMED = frozenset({"convolution", "linear", "lstm", "gru", "rnn_tanh", "rnn_relu", "prelu"})
_ABSORBING = SCALES | SHIFTS | NORMS | _TABLES | _PRODUCTS_OF_WEIGHTS | _NAMED
#: Arguments that are a layer's tensors under their own names.
_ROLES = frozenset({"weight", "bias", "running_mean", "running_var"})
_RENAMED = {("addmm", "self"): "bias", ("addmm", "mat2"): "weight"}
_BACK = 24  # operations that a norm by hand has at most


def is_layer(op: Operation, weights: Sequence[Value], dynamic: Sequence[Value]) -> bool:
    """Whether the operation and the weights that it reads are a layer.

    Args:
        weights: those of its arguments that follow from parameters alone.
        dynamic: its other arguments.
    """
    if op.op in SCALES | SHIFTS:
        return len(dynamic) == 1 == len(weights)
    if op.op in _TABLES:
        return any(op.arguments.get(name) in weights for name in ("weight", "self"))
    return op.op in _ABSORBING


def kind_of(
    op: Operation, weights: Sequence[Value], flow: OpGraph, is_dynamic: Callable[[int], bool]
) -> str:
    """Return the kind of a layer, of one that `is_layer`."""
    shape = flow.shape_of(weights[0])
    if op.op == "convolution":
        return _convolution(op, flow)
    if op.op in _TABLES:
        return "embedding"
    if op.op in SCALES:
        return _norm_by_hand(op, flow, is_dynamic) if _dims(shape) == 1 else "scale"
    if op.op in SHIFTS:
        return "embedding" if _dims(shape) > 1 else "bias"
    if op.op in ("matmul", "addmm", "baddbmm", "_grouped_mm"):
        return _product(op, weights, flow)
    return op.op


def weight_of(op: Operation, weights: Sequence[Value]) -> Value | None:
    """Return the argument whose shape is the layer's."""
    if op.op in NORMS:
        found = op.arguments.get("weight")
    else:
        found = op.arguments.get("weight", op.arguments.get("mat2"))
    if isinstance(found, Value):
        return found
    return None if op.op in NORMS else weights[0]


def role_of(op: Operation, argument: str, path: str) -> str:
    """Return the role of the tensor at `path` that is an argument itself."""
    if op.op in SCALES:
        return "weight"
    if op.op in SHIFTS:
        return "bias"
    if op.op in _TABLES and argument == "self":
        return "weight"
    argument = _RENAMED.get((op.op, argument), argument)
    return argument if argument in _ROLES else path.rpartition(".")[2]


def _convolution(op: Operation, flow: OpGraph) -> str:
    weight, x, groups = (op.arguments[name] for name in ("weight", "input", "groups"))
    assert isinstance(weight, Value) and isinstance(x, Value)
    n = len(flow.shape_of(weight)) - 2
    if op.arguments["transposed"]:
        return f"conv_transpose{n}d"
    channels = flow.shape_of(x)[1]
    return f"depthwise{n}d" if groups == channels and channels > 1 else f"conv{n}d"


def _product(op: Operation, weights: Sequence[Value], flow: OpGraph) -> str:
    weight = op.arguments.get("mat2") or op.arguments.get("batch2") or op.arguments.get("other")
    if weight not in weights:
        return "matmul_left"
    assert isinstance(weight, Value)
    return "linear_transposed" if len(flow.shape_of(weight)) < 3 else "batched_linear"


def _norm_by_hand(op: Operation, flow: OpGraph, is_dynamic: Callable[[int], bool]) -> str:
    """Return the norm that the scaling ends, "scale" if it ends none.

    A norm by hand divides by a root, in the same module; one that subtracts is a layer_norm.
    """
    waiting = [value.operation for value in op.reads if is_dynamic(value.operation)]
    seen: set[int] = set()
    ops: set[str] = set()
    while waiting and len(seen) < _BACK:
        number = waiting.pop()
        found = flow.operations[number]
        if number in seen or found.path != op.path or found.op in _ABSORBING - SCALES - SHIFTS:
            continue
        seen.add(number)
        ops.add(found.op)
        waiting += [value.operation for value in found.reads if is_dynamic(value.operation)]
    if not ops & {"rsqrt", "sqrt", "std"}:
        return "scale"
    return "layer_norm" if ops & {"sub", "var_mean", "std"} else "rms_norm"


def _dims(shape: Sequence[int]) -> int:
    """Return over how many dimensions a weight differs."""
    return sum(length != 1 for length in shape)


_MEETINGS = {
    "add": ADD, "sub": ADD, "rsub": ADD,
    "mul": MULTIPLY, "div": MULTIPLY,
    "cat": CONCAT, "stack": CONCAT,
}  # fmt: skip
_PRODUCTS = frozenset({"matmul", "baddbmm", "einsum", "scaled_dot_product_attention"})
_SELECTOR = -2  # an input that is no float: tokens and masks
_MOST_SOURCES = 4  # beyond them results meet wherever they do, so that inputs stay few
_Sources = tuple[int, ...]


def skeleton_of(flow: OpGraph) -> LayerSkeleton:
    """Return the layers of an op graph, and what each one reads.

    Every parameter is in a layer, and every persistent buffer. Results that meet in an addition, a
    product elementwise or a concatenation make a layer there, if they come from different layers;
    the parts of an attention do not, their readers read its projections.
    """
    contraction = _OpContraction(flow)
    for op in flow.operations:
        contraction.add(op)
    contraction.add_rest()
    return contraction.outline()


class _OpContraction:
    def __init__(self, flow: OpGraph) -> None:
        self._flow = flow
        self._layers: list[SkeletonLayer] = []
        self._inputs: list[_Sources] = []
        self._sources: dict[int, _Sources] = {}  # of operations that the input reaches
        self._weights: dict[int, tuple[int, ...]] = {}  # of others: the tensors they follow from
        self._alone: dict[int, int] = {}  # layers of weights that no operation takes in
        self._made: dict[int, int] = {}  # the layer that an operation is
        self._owned: set[int] = set()
        self._concatenations: dict[tuple[tuple[Value, ...], object], Value] = {}
        self._readers = Counter(one.operation for op in flow.operations for one in op.reads)

    def outline(self) -> LayerSkeleton:
        return LayerSkeleton(layers=tuple(self._layers), inputs=tuple(self._inputs))

    def add(self, op: Operation) -> None:
        """Take in the next operation."""
        if op.op == INPUT:
            is_float = "float" in str(op.arguments.get("dtype", "float"))
            self._sources[op.ordinal] = (MODEL_INPUT if is_float else _SELECTOR,)
        elif op.op in (PARAMETER, BUFFER):
            self._weights[op.ordinal] = (op.ordinal,)
        elif op.op == CONSTANT:
            self._weights[op.ordinal] = ()
        elif all(value.operation in self._weights for value in op.reads):
            self._weights[op.ordinal] = union(self._weights[one.operation] for one in op.reads)
        else:
            self._sources[op.ordinal] = self._add_dynamic(op)

    def _add_dynamic(self, op: Operation) -> _Sources:
        weights = [value for value in op.reads if self._is_weight(value)]
        dynamic = [value for value in op.reads if value.operation in self._sources]
        if weights and (joined := self._join_bias(op, weights, dynamic)):
            return joined
        if weights and is_layer(op, weights, dynamic):
            return (self._add_layer(op, weights, dynamic),)
        found: list[_Sources] = []
        for value in self._operands(op):
            if value in weights:
                found.append((self._layer_of(value),))
            elif value.operation in self._sources:
                found.append(self._sources[value.operation])
        return self._meet(op, found)

    def _operands(self, op: Operation) -> tuple[Value, ...]:
        """Return what an operation reads, a concatenation that is part of it in place of its parts.

        A dense block concatenates all that came before, again and again.
        """
        reads = op.reads
        if op.op == "cat":
            self._concatenations[reads, op.arguments["dim"]] = Value(op.ordinal)
            earlier = self._concatenations.get((reads[:-1], op.arguments["dim"]))
            if earlier is not None:
                return (earlier, reads[-1])
        return reads

    def _is_weight(self, value: Value) -> bool:
        """Whether a value is a parameter's, or a buffer's that is worth a layer."""
        tensors = [self._flow.operations[one] for one in self._weights.get(value.operation, ())]
        return any(
            one.op == PARAMETER
            or (one.arguments.get("persistent") and "float" in str(one.arguments["dtype"]))
            for one in tensors
        )

    # -- where results meet --------------------------------------------------------

    def _meet(self, op: Operation, found: list[_Sources]) -> _Sources:
        found = [one for one in found if one != (_SELECTOR,)] or found[:1]
        whole = union(found)
        if op.op in _PRODUCTS:
            note_attention(self._layers, self._inputs, found)
        kind = _MEETINGS.get(op.op)
        if kind is None and len(whole) > _MOST_SOURCES:
            kind = MULTIPLY if op.op in _PRODUCTS else ADD
        if kind is None or len({frozenset(one) for one in found}) < 2:
            return whole
        return (self._append(SkeletonLayer(ordinal=0, kind=kind, path=op.path), whole),)

    # -- layers --------------------------------------------------------------------

    def _append(self, layer: SkeletonLayer, sources: _Sources) -> int:
        number = len(self._layers)
        self._layers.append(replace(layer, ordinal=number))
        self._inputs.append(union([tuple(max(one, MODEL_INPUT) for one in sources)]))
        return number

    def _add_layer(self, op: Operation, weights: Sequence[Value], dynamic: Sequence[Value]) -> int:
        weight = weight_of(op, weights)
        tensors, parameters = self._take(self._roles(op, weights))
        layer = SkeletonLayer(
            ordinal=0,
            kind=kind_of(op, weights, self._flow, self._sources.__contains__),
            path=_owner(tensors[0][1]),
            tensors=tensors,
            shape=() if weight is None else self._flow.shape_of(weight),
            groups=op.arguments["groups"] if op.op == "convolution" else 1,  # type: ignore[arg-type]
            parameters=parameters,
        )
        found = union(self._sources[value.operation] for value in dynamic)
        self._made[op.ordinal] = number = self._append(layer, found)
        return number

    def _layer_of(self, value: Value) -> int:
        """Return the layer of weights that an operation does not take in, a learned token."""
        if value.operation not in self._alone:
            tensors, parameters = self._take(self._named(self._weights[value.operation]))
            shape = self._flow.operations[self._weights[value.operation][0]].shape
            layer = SkeletonLayer(
                ordinal=0,
                kind="embedding" if len(shape) > 1 else "scale",
                path=_owner(tensors[0][1]),
                tensors=tensors,
                shape=shape,
                parameters=parameters,
            )
            self._alone[value.operation] = self._append(layer, ())
        return self._alone[value.operation]

    def _join_bias(
        self, op: Operation, weights: Sequence[Value], dynamic: Sequence[Value]
    ) -> _Sources:
        """Add the bias of a layer that the same module computed just before to that layer."""
        if op.op not in SHIFTS or len(dynamic) != 1 or len(weights) != 1:
            return ()
        number = self._made.get(dynamic[0].operation)
        tensors = self._weights[weights[0].operation]
        if number is None or self._readers[dynamic[0].operation] > 1 or len(tensors) > 1:
            return ()
        layer, bias = self._layers[number], self._flow.operations[tensors[0]]
        if layer.kind == "bias" or _owner(bias.path) != layer.path or len(bias.shape) > 1:
            return ()
        taken, parameters = self._take([("bias", tensors[0])])
        self._layers[number] = replace(
            layer, tensors=layer.tensors + taken, parameters=layer.parameters + parameters
        )
        return (number,)

    def _roles(self, op: Operation, weights: Sequence[Value]) -> list[tuple[str, int]]:
        """Return roles and tensors of a layer, in the order of its arguments."""
        found: list[tuple[str, int]] = []
        for name, argument in op.arguments.items():
            for value in values_in(argument):
                if value not in weights:
                    continue
                named = self._named(self._weights[value.operation])
                if len(named) == 1:
                    tensor = named[0][1]
                    path = self._flow.operations[tensor].path
                    named = [(role_of(op, name, path), tensor)]
                found += named
        return found

    def _named(self, tensors: Iterable[int]) -> list[tuple[str, int]]:
        """Return tensors by the last part of their paths, without buffers that are not saved."""
        found = [self._flow.operations[one] for one in tensors]
        kept = [one for one in found if one.op == PARAMETER or one.arguments["persistent"]]
        return [(one.path.rpartition(".")[2], one.ordinal) for one in kept]

    def _take(self, tensors: Iterable[tuple[str, int]]) -> tuple[tuple[tuple[str, str], ...], int]:
        """Return roles and paths, and the elements of parameters that no layer owned before."""
        entries = list(dict.fromkeys(tensors))
        fresh = {one for _, one in entries} - self._owned
        self._owned |= fresh
        operations = self._flow.operations
        count = sum(prod(operations[i].shape) for i in fresh if operations[i].op == PARAMETER)
        return tuple((role, operations[one].path) for role, one in entries), count

    # -- what no layer has taken in ------------------------------------------------

    def add_rest(self) -> None:
        """Add the parameters and saved buffers that no layer owns yet."""
        by_path: dict[str, int] = {}
        for layer in self._layers:
            if layer.tensors:
                by_path.setdefault(layer.path, layer.ordinal)
        rest: dict[str, list[int]] = {}
        for op in self._flow.operations:
            is_saved = op.op == PARAMETER or (op.op == BUFFER and op.arguments["persistent"])
            if not is_saved or op.ordinal in self._owned:
                continue
            number = by_path.get(_owner(op.path))
            if op.op == BUFFER and number is not None:
                taken, _ = self._take(self._named([op.ordinal]))
                layer = self._layers[number]
                self._layers[number] = replace(layer, tensors=layer.tensors + taken)
            else:
                rest.setdefault(_owner(op.path), []).append(op.ordinal)
        for path, found in rest.items():
            shape = self._flow.operations[found[0]].shape
            tensors, count = self._take(self._named(found))
            layer = SkeletonLayer(
                ordinal=0, kind=UNREAD, path=path, tensors=tensors, shape=shape, parameters=count
            )
            self._append(layer, ())


def _owner(path: str) -> str:
    return path.rpartition(".")[0]
