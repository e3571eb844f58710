"""The module that a layer graph becomes, and where in it each layer stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from mmdb.errors import InvalidLayerGraph
from mmdb.messages import show

RESERVED = frozenset(dir(nn.Module())) | {"input"}  # what no layer may be called
_MAX_DEPTH = 100  # parts of a path


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
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
        layers: Iterable[tuple[Layer, nn.Module]],
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


def read_paths(graph: Mapping[str, object], layers: Mapping[str, Layer]) -> list[tuple[str, str]]:
    """Return (path, layer) in the order of the module tree; no module stands inside another."""
    items = graph.get("paths", [])
    if not isinstance(items, list | tuple):
        raise InvalidLayerGraph(f"'paths' must be a list of [path, layer], not {show(items)}")
    at: dict[str, Layer] = {}
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


def _read_path(item: object, layers: Mapping[str, Layer]) -> tuple[str, Layer]:
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
