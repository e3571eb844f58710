"""A layer graph in JSON -> torch.nn.Module, with no code executed (docs/architectures.md).

The graph is read, its placeholders are filled, and each layer is built and run
on the meta device, which allocates nothing: sizes left out are read off its
input, and whatever does not fit is refused before the real weights exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.errors import InvalidLayerGraph
from mmdb.graph.trace.stand_ins import on_meta
from mmdb.graph.vocabulary import OPS, Op, Placeholders
from mmdb.memory import require
from mmdb.messages import explain, show

RESERVED = frozenset(dir(nn.Module())) | {"input"}  # what no layer may be called
_MAX_DEPTH = 100  # parts of a path


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLayer:
    """One node of a layer graph; `inputs` are names of layers before it, or "input"."""

    name: str
    op: str
    args: Mapping[str, object]
    inputs: tuple[str, ...]

    def error(self, reason: str, hint: str = "") -> InvalidLayerGraph:
        """Return the error that names this layer."""
        return InvalidLayerGraph(f"layer {self.name!r} ({self.op}): {reason}", hint=hint)


class LayerGraph(nn.Module):
    """Runs its layers in order; a layer's tensors are at `<path>.<tensor>`.

    Args:
        paths: (path, layer), in the order of the module tree; other layers have their
            name as path. Layers with one path are one module.
    """

    def __init__(
        self,
        layers: Iterable[tuple[GraphLayer, nn.Module]],
        output: str,
        paths: Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__()
        self._wiring: list[tuple[str, str, tuple[str, ...]]] = []
        self._output = output
        made = [(layer, module) for layer, module in layers]
        modules = {layer.name: module for layer, module in made}
        path_of: dict[str, str] = {}
        for path, name in paths:
            self._place(path, modules[name])
            path_of.setdefault(name, path)
        for layer, module in made:
            if layer.name not in path_of:
                self._place(layer.name, module)
            self._wiring.append((layer.name, path_of.get(layer.name, layer.name), layer.inputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output layer's tensor for a batch (n, *input_shape)."""
        values = {"input": x}
        for name, path, inputs in self._wiring:
            values[name] = self.get_submodule(path)(*[values[i] for i in inputs])
        return values[self._output]

    def _place(self, path: str, module: nn.Module) -> None:
        """Add the module at the path, unless another stands there already."""
        *above, name = path.split(".")
        parent: nn.Module = self
        for part in above:
            if part not in parent._modules:
                parent.add_module(part, nn.Module())
            parent = parent.get_submodule(part)
        if name not in parent._modules:
            parent.add_module(name, module)


def read_paths(
    graph: Mapping[str, object], layers: Mapping[str, GraphLayer]
) -> list[tuple[str, str]]:
    """Return (path, layer) in the order of the module tree; no module stands inside another."""
    items = graph.get("paths", [])
    if not isinstance(items, list | tuple):
        raise InvalidLayerGraph(f"'paths' must be a list of [path, layer], not {show(items)}")
    at: dict[str, GraphLayer] = {}
    paths: list[tuple[str, str]] = []
    for item in items:
        path, layer = _read_path(item, layers)
        first = at.setdefault(path, layer)
        if (first.op, first.args) != (layer.op, layer.args):
            raise layer.error(f"has the path of {first.name!r}, which is another layer")
        paths.append((path, layer.name))
    named = {name for _, name in paths}
    leaves = {*at, *(name for name in layers if name not in named)}
    if len(leaves) != len(at) + len(layers) - len(named):
        raise InvalidLayerGraph("a path in 'paths' is the name of a layer that has none")
    for path in leaves:
        parts = path.split(".")
        for length in range(1, len(parts)):
            if ".".join(parts[:length]) in leaves:
                raise InvalidLayerGraph(f"the path {show(path)} lies inside another layer")
    return paths


def _read_path(item: object, layers: Mapping[str, GraphLayer]) -> tuple[str, GraphLayer]:
    if not isinstance(item, list | tuple) or len(item) != 2:
        raise InvalidLayerGraph(f"'paths' holds {show(item)}, which is not [path, layer]")
    path, name = item
    if not isinstance(name, str) or name not in layers:
        raise InvalidLayerGraph(f"'paths' names {show(name)}, which is no layer")
    parts = path.split(".") if isinstance(path, str) else []
    if not 1 <= len(parts) <= _MAX_DEPTH or not all(0 < len(part) <= 100 for part in parts):
        raise layers[name].error(f"cannot have the path {show(path)}")
    if any(part in RESERVED - {"input"} for part in parts) or parts[0] in ("_wiring", "_output"):
        raise layers[name].error(f"cannot have the path {show(path)}: a part of it is reserved")
    return path, layers[name]


MAX_LAYERS = 10_000
MAX_VALUES_PER_ROW = 2**27  # outputs of all layers for one row: 512 MiB of float32
GRAPH_KEYS = ("layers", "output", "defaults", "paths")
_LAYER_KEYS = ("name", "op", "args", "inputs")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
_META_ROWS = 2
_PARAMETER_BYTES = 4  # of float32

# What torch raises for arguments or shapes that do not fit (AssertionError: MultiheadAttention).
_TORCH_ERRORS = (
    RuntimeError,
    ValueError,
    TypeError,
    AssertionError,
    LookupError,
    ArithmeticError,
    MemoryError,
)


def build_layers(
    graph: Mapping[str, object],
    arguments: Mapping[str, object],
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    max_parameters: int = 1_000_000_000,
) -> nn.Module:
    """Return the module that the layer graph describes, with weights from torch's generator.

    Args:
        graph: {"layers": [...], "output": name, "defaults": {...}}, from JSON.
        arguments: values for the placeholders "$name"; each must be used.
        input_shape: of one row, without the batch.
        outputs: the value of "$outputs".
        max_parameters: refuse a graph with more weights than this.
    Raises:
        InvalidLayerGraph: anything that is wrong with the graph; it names the layer.
    """
    layers, output = read_layers(graph)
    placeholders = Placeholders.of(graph.get("defaults", {}), arguments, input_shape, outputs)
    filled = [
        GraphLayer(name=at.name, op=at.op, args=placeholders.fill(at), inputs=at.inputs)
        for at in layers
    ]
    placeholders.check_all_used()
    sized = _infer_sizes(filled, input_shape, max_parameters)
    paths = read_paths(graph, {layer.name: layer for layer in sized})
    return LayerGraph([(layer, _make(layer, OPS[layer.op])) for layer in sized], output, paths)


def build_sized_layers(
    graph: Mapping[str, object], *, max_parameters: int = 1_000_000_000
) -> nn.Module:
    """Return the module of a layer graph in which every size is written, whatever it reads.

    Nothing is run, so that no input's shape is needed; `to_layer_graph` writes such graphs.

    Raises:
        InvalidLayerGraph: a size is missing, or anything is wrong with the graph.
    """
    layers, output = read_layers(graph)
    nothing = Placeholders(built_in={}, given={})
    sized = [
        GraphLayer(name=at.name, op=at.op, args=nothing.fill(at), inputs=at.inputs) for at in layers
    ]
    parameters = 0
    made: list[tuple[GraphLayer, nn.Module]] = []
    for layer in sized:
        for name in OPS[layer.op].inferred:
            if name not in layer.args:
                raise layer.error(f"{name} is missing", "Write every size, or give the input's.")
        with on_meta():
            made.append((layer, _make(layer, OPS[layer.op])))
        parameters += sum(p.numel() for p in made[-1][1].parameters())
        _check_bounds(layer, parameters, max_parameters, 0)
    paths = read_paths(graph, {layer.name: layer for layer in sized})
    if not torch.empty(0).is_meta:
        made = [(layer, _make(layer, OPS[layer.op])) for layer in sized]
    return LayerGraph(made, output, paths)


def empty_like(module: nn.Module, made: dict[int, nn.Module] | None = None) -> nn.Module:
    """Return a module like a layer graph that is on the meta device, in a tenth of the time.

    `made` are those made so far, by the id of what they are like: one may stand at two paths.
    """
    made = {} if made is None else made
    if id(module) in made:
        return made[id(module)]
    found = made[id(module)] = object.__new__(type(module))
    own: dict[str, Any] = {
        key: value.copy() if isinstance(value, dict | list | set) else value
        for key, value in vars(module).items()
    }
    for tensors in (own["_parameters"], own["_buffers"]):
        for name, tensor in tensors.items():
            if tensor is not None:  # torch.empty_like takes seven times as long on this device
                empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
                is_parameter = isinstance(tensor, nn.Parameter)
                tensors[name] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
    for name, part in module._modules.items():
        own["_modules"][name] = None if part is None else empty_like(part, made)
    found.__dict__.update(own)
    return found


# -- reading ------------------------------------------------------------------


def read_layers(graph: Mapping[str, object]) -> tuple[list[GraphLayer], str]:
    """Return the layers in order and the output's name; names and wiring are checked."""
    _check_keys("the layer graph", graph, GRAPH_KEYS)
    items = graph.get("layers")
    if not isinstance(items, list | tuple) or not 1 <= len(items) <= MAX_LAYERS:
        raise InvalidLayerGraph(f"'layers' must be a list of 1 to {MAX_LAYERS} layers")
    layers: list[GraphLayer] = []
    declared = _declared_names(items)
    seen = {"input"}
    for number, item in enumerate(items):
        layer = _read_layer(number, item, layers[-1].name if layers else "input")
        if layer.name in seen:
            raise layer.error("the name is used twice", "Give each layer a name of its own.")
        _check_inputs(layer, seen, declared)
        seen.add(layer.name)
        layers.append(layer)
    output = graph.get("output", layers[-1].name)
    if not isinstance(output, str) or output not in seen - {"input"}:
        raise InvalidLayerGraph(f"'output' names no layer: {show(output)}")
    _check_no_dead_ends(layers, output)
    return layers, output


def _declared_names(items: Iterable[object]) -> set[object]:
    names = (item.get("name") for item in items if isinstance(item, Mapping))
    return {name for name in names if isinstance(name, str)}


def _read_layer(number: int, item: object, previous: str) -> GraphLayer:
    where = f"layer {number + 1}"
    if not isinstance(item, Mapping):
        raise InvalidLayerGraph(f"{where} must be an object, not {show(item)}")
    name, op, args = item.get("name"), item.get("op"), item.get("args", {})
    inputs = item.get("inputs", [previous])
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidLayerGraph(
            f"{where} has no usable name: {show(name)}",
            hint="A name is 1 to 100 letters, digits and '_', and does not begin with a digit.",
        )
    if name in RESERVED or name.startswith("_"):
        raise InvalidLayerGraph(f"{where}: the name {name!r} is reserved; choose another")
    _check_keys(f"layer {name!r}", item, _LAYER_KEYS)
    if not isinstance(op, str) or op not in OPS:
        raise InvalidLayerGraph(f"layer {name!r}: unknown op {show(op)}", hint=_close_ops(op))
    if not isinstance(args, Mapping):
        raise InvalidLayerGraph(f"layer {name!r}: 'args' must be an object, not {show(args)}")
    if isinstance(inputs, str):
        inputs = [inputs]
    if not isinstance(inputs, list | tuple) or not all(isinstance(i, str) for i in inputs):
        raise InvalidLayerGraph(f"layer {name!r}: 'inputs' must be a list of names")
    return GraphLayer(name=name, op=op, args=args, inputs=tuple(inputs))


def _close_ops(op: object) -> str:
    close = get_close_matches(op[:100], OPS, n=3) if isinstance(op, str) else []
    return f"Did you mean {' or '.join(close)}?" if close else ""


def _check_keys(what: str, item: Mapping[str, object], known: tuple[str, ...]) -> None:
    for key in item:
        if key not in known:
            raise InvalidLayerGraph(
                f"{what} has an unknown key {show(key)}", hint=f"Known keys: {', '.join(known)}."
            )


def _check_inputs(layer: GraphLayer, seen: set[str], declared: set[object]) -> None:
    least, most = (2, OPS[layer.op].max_inputs) if OPS[layer.op].max_inputs > 1 else (1, 1)
    if not least <= len(layer.inputs) <= most:
        needs = "1 input" if most == 1 else f"{least} to {most} inputs"
        raise layer.error(f"takes {needs}, not {len(layer.inputs)}")
    for name in layer.inputs:
        if name == layer.name:
            raise layer.error("reads itself", "A layer graph has no cycles.")
        if name not in seen and name in declared:
            raise layer.error(
                f"reads {name!r}, which comes after it",
                "List layers in the order in which they run; a layer graph has no cycles.",
            )
        if name not in seen:
            raise layer.error(f"reads {show(name)}, which is no layer")


def _check_no_dead_ends(layers: list[GraphLayer], output: str) -> None:
    needed = {output}
    for layer in reversed(layers):
        if layer.name not in needed:
            raise layer.error(
                "its result reaches the output by no path", "Remove the layer, or use it."
            )
        needed.update(layer.inputs)


# -- sizes, on the meta device ------------------------------------------------


def _infer_sizes(
    layers: list[GraphLayer], input_shape: tuple[int, ...], max_parameters: int
) -> list[GraphLayer]:
    """Return the layers with every size filled in, after a run that allocates nothing."""
    sized: list[GraphLayer] = []
    parameters = values = 0
    with on_meta(), torch.no_grad():
        tensors = {"input": torch.empty(_META_ROWS, *input_shape)}
        for layer in layers:
            inputs = [tensors[name] for name in layer.inputs]
            layer = _with_sizes(layer, [tuple(x.shape) for x in inputs])
            module = _make(layer, OPS[layer.op]).eval()
            tensors[layer.name] = _run(layer, module, inputs)
            parameters += sum(p.numel() for p in module.parameters())
            values += tensors[layer.name].numel() // _META_ROWS
            _check_bounds(layer, parameters, max_parameters, values)
            sized.append(layer)
    return sized


def _with_sizes(layer: GraphLayer, shapes: list[tuple[int, ...]]) -> GraphLayer:
    op, shape = OPS[layer.op], shapes[0]
    if any(len(other) != len(shape) for other in shapes):
        raise layer.error(f"its inputs differ in rank: {_rows(*shapes)}")
    if len(shape) < 2 or (op.ndims and len(shape) not in op.ndims):
        allowed = " or ".join(str(n - 1) for n in op.ndims) or "1 or more"
        raise layer.error(
            f"needs rows of {allowed} dimensions, not of shape {_rows(shape)}",
            'Put a {"op": "reshape", "args": {"shape": [...]}} before it.',
        )
    args = dict(layer.args)
    for name, infer in op.inferred.items():
        if args.setdefault(name, infer(shape)) != infer(shape):
            raise layer.error(f"{name} is {args[name]}, but its input has {infer(shape)}")
    for name in op.axes:
        _check_axes(layer, name, args.get(name, 1), len(shape))
    return GraphLayer(name=layer.name, op=layer.op, args=args, inputs=layer.inputs)


def _check_axes(layer: GraphLayer, name: str, value: object, ndim: int) -> None:
    for axis in value if isinstance(value, tuple) else (value,):
        if axis not in (*range(1, ndim), *range(1 - ndim, 0)):
            raise layer.error(
                f"{name} {axis} is not a dimension of its rows",
                f"Use 1 to {ndim - 1}, or -1 for the last; 0 is the batch.",
            )


def _make(layer: GraphLayer, op: Op) -> nn.Module:
    try:
        return op.make(**layer.args)
    except _TORCH_ERRORS as exc:
        raise layer.error(explain(exc).splitlines()[0]) from exc


def _run(layer: GraphLayer, module: nn.Module, inputs: list[Tensor]) -> Tensor:
    try:
        result: Tensor = module(*inputs)
    except _TORCH_ERRORS as exc:
        shapes = _rows(*(tuple(x.shape) for x in inputs))
        raise layer.error(
            f"does not fit an input of shape {shapes}: {explain(exc).splitlines()[0]}"
        ) from exc
    if 0 in result.shape:
        raise layer.error(f"its result is empty, of shape {_rows(tuple(result.shape))}")
    return result


def _check_bounds(layer: GraphLayer, parameters: int, max_parameters: int, values: int) -> None:
    if parameters > max_parameters:
        raise layer.error(
            f"brings the model to {parameters:,} parameters; the limit is {max_parameters:,}",
            "Make the layers smaller.",
        )
    require(_PARAMETER_BYTES * parameters, "The layer graph")
    if values > MAX_VALUES_PER_ROW:
        raise layer.error(
            f"brings the results of one row to {values:,} numbers; "
            f"the limit is {MAX_VALUES_PER_ROW:,}",
            "Make the layers smaller, or pool the input first.",
        )


def _rows(*shapes: tuple[int, ...]) -> str:
    return ", ".join("x".join(str(side) for side in shape[1:]) or "()" for shape in shapes)
