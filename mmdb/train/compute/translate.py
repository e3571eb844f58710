"""A parent's tensors in the order of its child's columns and classes. No I/O."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mmdb.data.matching import MISSING
from mmdb.graph.ops.capture import results_of
from mmdb.graph.ops.op_graph import (
    BUFFER,
    CONSTANT,
    INPUT,
    PARAMETER,
    Operation,
    OpGraph,
    Value,
)  # fmt: skip
from mmdb.graph.transfer import op_kinds
from mmdb.graph.transfer.axis_terms import CAT, ONE, AxisSpace, find, leaves, parts_of
from mmdb.graph.transfer.computed_axes import axes_of
from mmdb.train.values.warm_spec import Moved, RowMap

Places = NDArray[np.int64]

#: Where an axis ends, each of its elements weighted by its own number, or counted as the others.
_SUMS = (op_kinds.REDUCTIONS - {"argmax", "argmin"}) | frozenset(
    ("linear", "matmul", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention")
)
#: What goes by the order of elements, though their axis stays.
_ORDERED = op_kinds.ALONG - {"softmax", "log_softmax", "_safe_softmax"} | {"triu", "tril"}


class _Apart(Exception):
    """Columns do not keep to themselves in what reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A parent as it would be had it been trained on its child's rows.

    Attributes:
        tensors: by path; those that read nothing that the child has are left out.
        shares: of the elements of tensors that are the parent's, by path, where that is not 1.
        is_resized: whether shapes differ from those of the parent.
        kept: those of the tensors that are as they were.
        doubts: why it does not compute what the parent does.
    """

    tensors: Mapping[str, Tensor]
    shares: Mapping[str, float] = field(default_factory=dict)
    is_resized: bool = False
    kept: Mapping[str, Tensor] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


def translate(rows: RowMap, flow: OpGraph, tensors: Mapping[str, Tensor]) -> Translated:
    """Return a parent that reads the rows of its child, or nothing where that cannot be told.

    A column, or a category, that the parent does not know begins with weights of zero: it changes
    nothing at first. A class that it does not know begins with the mean of those that it does.

    Args:
        flow: the parent's own.
        tensors: the parent's, by path.
    """
    if rows.is_same:
        return Translated(tensors=tensors, doubts=(*rows.doubts, *rows.class_doubts))
    found = _Translation(rows, flow, tensors)
    if found.is_apart:
        return Translated(tensors={}, doubts=("its layers tell columns apart by their places",))
    made = found.tensors()
    return Translated(
        tensors=made,
        shares=found.shares,
        is_resized=any(made[path].shape != tensors[path].shape for path in made),
        kept={path: tensor for path, tensor in made.items() if tensor is tensors[path]},
        doubts=(*rows.doubts, *rows.class_doubts, *found.doubts),
    )


class ByName(nn.Module):
    """A parent as it was trained, which takes its child's rows and puts each number in its place.

    Returns the outputs in the order in which the child has them. With it a claim is verified.
    """

    def __init__(self, module: nn.Module, rows: RowMap) -> None:
        super().__init__()
        self.module, self._rows = module, rows

    def forward(self, *args: Tensor, **kwargs: Tensor) -> object:
        """Return what the parent computes."""
        if self._rows.is_same:
            return self.module(*args, **kwargs)
        moved = self._rows.inputs
        placed = [_placed(x, moved.get("")) for x in args]
        named = {name: _placed(x, moved.get(name) or moved.get("")) for name, x in kwargs.items()}
        found = list(results_of(self.module(*placed, **named)))
        for number, one in self._rows.outputs.items():
            found[number] = found[number][..., list(one.places)]
        return found


def _placed(x: Tensor, moved: Moved | None) -> Tensor:
    if moved is None:
        return x
    found = x.new_zeros(len(x), moved.width)
    known = [place != MISSING for place in moved.places]
    found[:, [place for place in moved.places if place != MISSING]] = x[:, known]
    return found


def resized(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of a module, on the meta device, whose tensors have the shapes of others."""
    module = copy.deepcopy(module).to("meta")
    made: dict[int, nn.Parameter] = {}
    for path, tensor in tensors.items():
        owner_path, _, name = path.rpartition(".")
        owner = module.get_submodule(owner_path)
        own = owner._parameters.get(name)
        if own is not None and own.shape != tensor.shape:
            if id(own) not in made:
                made[id(own)] = nn.Parameter(own.new_empty(tensor.shape), requires_grad=False)
            owner._parameters[name] = made[id(own)]
        own_buffer = owner._buffers.get(name)
        if own_buffer is not None and own_buffer.shape != tensor.shape:
            owner._buffers[name] = own_buffer.new_empty(tensor.shape)
    return module


class _Translation:
    """Which axes of which tensors are columns, or classes, and where these are."""

    def __init__(self, rows: RowMap, flow: OpGraph, tensors: Mapping[str, Tensor]) -> None:
        self._tensors, self._flow, self._axes = tensors, flow, axes_of(flow)
        self.doubts: list[str] = []
        self.is_apart = False
        self.shares: dict[str, float] = {}
        self._of: dict[AxisSpace, Places] = {}
        self._lost: set[AxisSpace] = (
            set()
        )  # columns, or classes, that the child's cannot be told from
        self._outputs: set[AxisSpace] = set()
        given = [op for op in flow.operations if op.op == INPUT]
        for name, moved in rows.inputs.items():
            named = [op for op in given if op.arguments["name"] == name or not name]
            space = self._last([Value(op.ordinal) for op in named])
            self._place(space, moved)
            if any(there != n for n, there in enumerate(moved.places[: moved.width])):
                self.is_apart |= space is not None and self._tells_apart(set(leaves(space)))
        for number, moved in rows.outputs.items():
            space = self._last(flow.outputs[number : number + 1])
            self._outputs.update(leaves(space) if space is not None else ())
            self._place(space, moved)

    def _last(self, values: Sequence[Value]) -> AxisSpace | None:
        """Return the axis of the numbers of a row, None unless there is one array of such rows."""
        if len(values) != 1 or len(self._axes[values[0]]) != 2:
            return None
        return self._axes[values[0]][-1]

    def _tells_apart(self, columns: set[AxisSpace]) -> bool:
        """Return whether an operation goes by the places of columns."""
        for op in self._flow.operations:
            made = self._leaves(*(Value(op.ordinal, number) for number in range(len(op.shapes))))
            lost = columns & self._leaves(*op.reads) - made
            is_kept = op.op == CONSTANT and "uniform" not in op.arguments
            is_kept |= op.op == BUFFER and op.path not in self._tensors
            if (lost and op.op not in _SUMS) or (columns & made and (is_kept or op.op in _ORDERED)):
                return True
        return False

    def _leaves(self, *values: Value) -> set[AxisSpace]:
        return {leaf for value in values for space in self._axes[value] for leaf in leaves(space)}

    def _place(self, space: AxisSpace | None, moved: Moved) -> None:
        if space is None or space is ONE or space.size != moved.width:
            self.doubts.append("the parent does not take, or give, rows as its dataset has them")
            return
        if max(moved.places) == MISSING:
            self._lost.update(leaves(space))
            return
        try:
            self._spread(space, np.array(moved.places, np.int64))
        except _Apart:
            self._lost.update(leaves(space))
            self.doubts.append("the parent's layers read parts of a row")

    def _spread(self, space: AxisSpace, places: Places) -> None:
        """Set the places of a space, and of the parts that it is cut into."""
        space = find(space)
        if space.form is None:
            self._of[space] = places
        elif space.form == CAT and len(places) == space.size:
            start = 0
            for part in parts_of(space):
                own = places[start : start + part.size] - start
                if own.min() < 0 or own.max() >= part.size:
                    raise _Apart
                self._spread(part, own)
                start += part.size
        else:
            raise _Apart

    def tensors(self) -> dict[str, Tensor]:
        """Return the parent's tensors by the child's columns and classes."""
        operations = self._flow.operations
        firsts = {op.path: op for op in operations if op.op in (PARAMETER, BUFFER)}
        made: dict[str, Tensor] = {}
        for path, tensor in self._tensors.items():
            first = self._flow.ties.get(path, path)
            if first in made and first != path:
                made[path] = made[first]
                continue
            own = self._one(path, tensor, firsts.get(first))
            if own is not None:
                made[path] = own
        return made

    def _one(self, path: str, tensor: Tensor, op: Operation | None) -> Tensor | None:
        spaces = self._axes[Value(op.ordinal)] if op is not None else ()
        if len(spaces) != tensor.ndim:
            return tensor
        if any(leaf in self._lost for space in spaces for leaf in leaves(space)):
            return None
        for axis, space in enumerate(spaces):
            places = self._places_of(space)
            if places is None:
                continue
            is_output = any(leaf in self._outputs for leaf in leaves(space))
            share = float((places != MISSING).mean())
            if share < 1:
                self.shares[path] = self.shares.get(path, 1.0) * share
            tensor = taken(tensor, axis, places, with_mean=is_output or tensor.ndim < 2)
        return tensor

    def _places_of(self, space: AxisSpace) -> Places | None:
        """Return the places of an axis, None where each element is in its own."""
        space = find(space)
        if space in self._of:
            return self._of[space]
        parts = parts_of(space)
        found = [self._places_of(part) for part in parts]
        if all(one is None for one in found):
            return None
        own = [
            np.arange(part.size) if one is None else one
            for part, one in zip(parts, found, strict=True)
        ]
        if space.form == CAT:
            starts = np.cumsum([0, *(part.size for part in parts[:-1])])
            moved = [
                np.where(one == MISSING, MISSING, one + start)
                for one, start in zip(own, starts, strict=True)
            ]
            return np.concatenate(moved)
        whole = np.zeros(1, np.int64)
        for part, one in zip(parts, own, strict=True):
            is_new = (whole[:, None] == MISSING) | (one[None, :] == MISSING)
            wide = whole[:, None] * part.size + one[None, :]
            whole = np.where(is_new, MISSING, wide).reshape(-1)
        return whole


def taken(tensor: Tensor, axis: int, places: Places, *, with_mean: bool) -> Tensor:
    """Return elements by their places along an axis; the mean, or 0, where there is none."""
    found = tensor.index_select(axis, torch.from_numpy(np.maximum(places, 0)).to(tensor.device))
    new = torch.from_numpy(places == MISSING).to(tensor.device)
    if not new.any():
        return found
    shape = [1] * tensor.ndim
    shape[axis] = -1
    filler = torch.zeros((), dtype=tensor.dtype, device=tensor.device)
    if with_mean and tensor.is_floating_point():
        filler = tensor.double().mean(axis, keepdim=True).to(tensor.dtype)
    return torch.where(new.reshape(shape), filler, found)
