"""ModelKeeper's transfer, re-implemented from its published artifact, defects included.

Prefix paste, replicas with noise, kernels pasted at the corner, identity layers with absolute
noise, parameters only (no running statistics).

Source: SymbioticLab/ModelKeeper at 9212bc7, modelkeeper/mapper.py and nettransformer.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from tests.bench.warm.modelkeeper_graph import Node, graph_of
from tests.bench.warm.modelkeeper_matching import aligned

NOISE, PADDED_GAP = 0.05, 4


@dataclass(frozen=True, slots=True)
class ModelKeeper:
    """The artifact's matcher and mapper; `integers` as in `aligned`."""

    integers: bool = True
    name: str = "modelkeeper"
    refuses_unlearned: bool = False
    gentle: bool = True

    def initialise(self, child: nn.Module, parent: nn.Module, seed: int, example: Tensor) -> None:
        theirs, ours = graph_of(parent), graph_of(child)
        _, pairs = aligned(theirs, ours, integers=self.integers)
        mapper = Mapper(parent, child, theirs, ours, np.random.default_rng(seed))
        mapper.cascade(pairs)
        mapper.pad()
        with torch.no_grad():
            for path, tensor in child.named_parameters():
                tensor.copy_(torch.from_numpy(mapper.weights[path]))


@dataclass(slots=True)
class Mapper:
    """One transfer: `weights` are the child's by path, changed as it goes on."""

    parent: nn.Module
    child: nn.Module
    theirs: list[Node]
    ours: list[Node]
    draw: np.random.Generator
    weights: dict[str, np.ndarray] = field(init=False)
    mapped: set[str] = field(init=False, default_factory=set)
    _parent_weights: dict[str, np.ndarray] = field(init=False)
    _divided: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.weights = _arrays(self.child)
        self._parent_weights = _arrays(self.parent)

    def cascade(self, pairs: list[tuple[int, int]]) -> None:
        """Paste each matched layer, the last first; then divide the layers that read replicas."""
        for i, j in reversed(pairs):
            parent, child = self.theirs[i], self.ours[j]
            ratios = [a / b for a, b in zip(parent.dims, child.dims, strict=False)]
            if not any(0.3 <= ratio <= 3 for ratio in ratios):
                continue
            with contextlib.suppress(ValueError, IndexError):  # as the original
                width = self._paste(parent.layer, child.layer)
                for layer in self._followers(j):
                    if layer in self.mapped and layer not in self._divided:
                        self._divide(f"{layer}.weight", *width)
                        self._divided.add(layer)
                self.mapped.add(child.layer)

    def pad(self) -> None:
        """Make an identity of each layer without a parent that stands between close mapped ones."""
        forward = self._gaps(lambda node: node.after, lambda node: node.before)
        backward = self._gaps(lambda node: node.before, lambda node: node.after)
        for layer, gap in forward.items():
            if gap + backward.get(layer, 0) < PADDED_GAP and layer not in self.mapped:
                weight = self.weights[f"{layer}.weight"]
                identity = _identity(weight.shape)
                if identity is None:
                    continue
                noise = NOISE * self.draw.standard_normal(weight.shape)
                self.weights[f"{layer}.weight"] = (identity + noise).astype(weight.dtype)
                if f"{layer}.bias" in self.weights:
                    bias = NOISE * self.draw.standard_normal(len(weight))
                    self.weights[f"{layer}.bias"] = bias.astype(weight.dtype)

    def _paste(self, parent: str, child: str) -> tuple[int, int]:
        """Paste the leading corner, replicate what is wider; return the widths of both."""
        width = (0, 0)
        for tensor in ("weight", "bias"):
            theirs = self._parent_weights.get(f"{parent}.{tensor}")
            ours = self.weights.get(f"{child}.{tensor}")
            if theirs is None or ours is None:
                continue
            pasted = np.zeros_like(ours)
            corner = tuple(slice(min(a, b)) for a, b in zip(theirs.shape, ours.shape, strict=True))
            pasted[corner] = theirs[corner]
            width = (len(theirs), len(ours))
            for new in range(*width):
                source = pasted[(new - width[0]) % width[0]]
                noise = self.draw.standard_normal(source.shape) * (NOISE * source.std())
                pasted[new] = source + noise
            self.weights[f"{child}.{tensor}"] = pasted
        return width

    def _divide(self, path: str, old: int, new: int) -> None:
        """Copy the inputs of replicas; divide all inputs of a replicated unit by their number.

        Raises:
            IndexError: the layer has fewer inputs than the wider layer has outputs.
        """
        weight = self.weights[path]
        if new <= old:
            return
        rows = weight if weight.ndim == 1 else weight.swapaxes(0, 1)  # a view: (inputs, ...)
        replicas: dict[int, list[int]] = {}
        for unit in range(old, new):
            source = (unit - old) % old
            replicas.setdefault(source, [source]).append(unit)
            rows[unit] = rows[source]
        if weight.ndim > 1:
            for units in replicas.values():
                rows[units] /= len(units)

    def _followers(self, ordinal: int) -> list[str]:
        """Return the next layers with weights behind an operation."""
        found, seen, stack = [], {ordinal}, list(self.ours[ordinal].after)
        while stack:
            k = stack.pop()
            if k in seen:
                continue
            seen.add(k)
            if self.ours[k].layer:
                found.append(self.ours[k].layer)
            else:
                stack += self.ours[k].after
        return found

    def _gaps(
        self, onward: Callable[[Node], list[int]], behind: Callable[[Node], list[int]]
    ) -> dict[str, int]:
        """Return for each layer how many layers ago the last mapped one was."""
        gaps: dict[str, int] = {}
        stack = [(k, 0) for k, node in enumerate(self.ours) if not behind(node)]
        seen: set[int] = set()
        while stack:
            k, depth = stack.pop()
            if k in seen:
                continue
            seen.add(k)
            layer = self.ours[k].layer
            if layer:
                depth = 0 if layer in self.mapped else depth + 1
                gaps[layer] = max(depth, gaps.get(layer, 0))
            stack += [(to, depth) for to in reversed(onward(self.ours[k]))]
        return gaps


def _arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {path: tensor.detach().numpy().copy() for path, tensor in module.named_parameters()}


def _identity(shape: tuple[int, ...]) -> np.ndarray | None:
    """Return the weight of `deepen`, None where the original fails."""
    if len(shape) == 1:
        return np.ones(shape)
    if len(shape) == 2:
        return np.eye(shape[0]) if shape[0] == shape[1] else None
    if shape[1] > shape[0]:
        return None
    weight = np.zeros(shape)
    for unit in range(shape[1]):
        weight[(unit, unit, *(side // 2 for side in shape[2:]))] = 1
    return weight
