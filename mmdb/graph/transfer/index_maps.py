"""Where each element of a child's tensor comes from: index and factor along each axis.

`developed` makes tensors of the maps, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.graph.transfer import index_arrays
from mmdb.graph.transfer.axis_terms import FIXED, OUTPUT, leaves
from mmdb.graph.transfer.index_arrays import MEAN, NEW, Factor, Index, Indices, spread
from mmdb.graph.transfer.op_traits import per_axis
from mmdb.graph.transfer.required_scale import SplitWeights
from mmdb.graph.transfer.tensor_axes import Axes

Mask: TypeAlias = NDArray[np.bool_]


@dataclass(slots=True)
class IndexMap:
    """A child's tensor in terms of its parent's.

    Element (i, j, ...) is the parent's at (index[0][i], index[1][j], ...), multiplied by
    factors[0][i], factors[1][j], ... and `joint`; along an axis, MEAN is the mean of the parent's.
    Where `free` says so, and where a row is NEW, the child's own element stays.

    Attributes:
        factors: by axis; NaN where nothing is said, which counts as 1.
        joint: factors that depend on several axes.
        whole: what is asked of a parameter that is used as it is, without axes that do not matter.
        is_kernel: the weight of a convolution.
    """

    parent: Value
    index: list[Index]
    factors: list[Factor]
    free: list[Mask]
    joint: list[Factor] = field(default_factory=list)
    whole: Factor | None = None
    is_kernel: bool = False


@dataclass(frozen=True, slots=True)
class IdentityWeight:
    """The weight of a new layer that hands on what it gets.

    Attributes:
        rows: index and factor of what it gives.
        columns: index and factor of what it reads.
        size: of the parent's axis.
        centre: the tap, of a convolution.
    """

    rows: tuple[Index, Factor]
    columns: tuple[Index, Factor]
    size: int
    centre: tuple[int, ...] = ()
    groups: int = 1


class IndexMaps:
    """Images by parameter.

    Args:
        parameters: the parent's parameter, by the child's.

    Attributes:
        of: the images that there are.
        refused: why there is none, by parameter.
    """

    def __init__(
        self,
        child: Axes,
        parent: Axes,
        indices: Indices,
        parameters: dict[Value, Value],
        shares: SplitWeights,
    ) -> None:
        self.child, self.parent, self.indices = child, parent, indices
        self.parameters, self.shares = parameters, shares
        self.of: dict[Value, IndexMap] = {}
        self.refused: dict[Value, str] = {}
        self.local: dict[Value, str] = {}

    def image(self, parameter: Value) -> IndexMap | None:
        """Return the image of a parameter, None if it has no counterpart."""
        if parameter in self.of:
            return self.of[parameter]
        if parameter in self.refused or parameter not in self.parameters:
            return None
        other = self.parameters[parameter]
        one, another = self.child[parameter], self.parent[other]
        if len(one) != len(another):
            self.refused[parameter] = f"{len(one)} axes, the parent's has {len(another)}"
            return None
        found: list[Index] = []
        for axis, (a, b) in enumerate(zip(one, another, strict=True)):
            index = self.indices.index(a, b)
            if axis > 1 and parameter in self.child.kernels:
                index = np.maximum(_centred(a.size, b.size), 0)
            if index is None:
                traits = {t for leaf in (*leaves(a), *leaves(b)) for t in leaf.traits}
                if a.size != b.size and traits & {FIXED, OUTPUT}:
                    reason = f"axis {axis} has {a.size} elements, the parent's {b.size}"
                    self.refused[parameter] = reason
                    return None
                self.local[parameter] = f"axis {axis} stands for another one of the parent's"
                index = spread(a.size, b.size)
            found.append(index)
        sizes = [space.size for space in one]
        image = self.of[parameter] = IndexMap(
            other,
            found,
            [np.full(size, np.nan) for size in sizes],
            [np.zeros(size, np.bool_) for size in sizes],
            is_kernel=parameter in self.child.kernels,
        )
        if image.is_kernel:
            for axis in range(2, len(one)):
                taps = _centred(one[axis].size, another[axis].size)
                image.factors[axis] = (taps >= 0).astype(np.float64)
        return image

    def known(self, value: Value, axis: int) -> Factor | None:
        """Return the factors that are set along an axis of a parameter, or of a part of one.

        None if some are not set.
        """
        parameter, chain = self._chain(value)
        image = self.of.get(parameter)
        if image is None:
            return None
        size = self.child[value][axis].size
        found = np.ones(size)
        is_met = False
        for own, factor in enumerate(image.factors):
            array = index_arrays.placed_at(factor, own, len(image.factors))
            for op, output in chain:
                array = index_arrays.forward(op, array, self._shape_before(op), output)
            if array.shape[axis] == size and (size > 1 or own == axis):
                found = found * index_arrays.along(array, axis, size)
                is_met = True
        return found if is_met and not np.isnan(found).any() else None

    def settle(self, value: Value, factor: Factor, axis: int, free: Mask | None = None) -> bool:
        """Set factors along an axis of a parameter, or of a part of one; return whether they agree.

        Those that are set stay. `free` elements are the child's own.
        """
        size = self.child[value][axis].size
        ndim = len(self.child[value])
        wide = index_arrays.placed_at(np.broadcast_to(factor, (size,)), axis, ndim)
        parameter, chain = self._chain(value)
        image = self.image(parameter)
        if image is None:
            return True
        agrees = _set(image, self._pulled(wide, chain))
        if free is not None and free.any():
            array = index_arrays.placed_at(free.astype(np.float64), axis, ndim)
            array = self._pulled(array, chain)
            for own, mask in enumerate(image.free):
                if array.shape[own] == len(mask) > 1:
                    mask |= np.nan_to_num(index_arrays.along(array, own, len(mask))) > 0
        return agrees

    def settle_array(self, value: Value, array: Factor) -> bool:
        """Set factors of a parameter that is used as it is, or of a part of one.

        Return whether they agree with what other such uses have set, which stays.

        Args:
            array: as `arrays` has them.
        """
        parameter, chain = self._chain(value)
        image = self.image(parameter)
        if image is None:
            return True
        array = self._pulled(array, chain)
        if image.whole is not None:
            before, own = np.broadcast_arrays(image.whole, array)
            both = ~np.isnan(before) & ~np.isnan(own)
            if not index_arrays.same(before[both], own[both]):
                return False
            if not np.isnan(before).any():
                return True
            array = np.where(np.isnan(before), own, np.nan)
        image.whole = index_arrays.merged(image.whole, array)
        return _set(image, array)

    def set_taps(self, parameter: Value, op: Operation, other: Operation) -> bool:
        """Set the index of a kernel's taps; return whether all of the parent's have their place.

        A tap at t sees the input at t * dilation - padding from its result.
        """
        image = self.image(parameter)
        if image is None:
            return False
        sizes = self.child.flow.shape_of(parameter)[2:]
        others = self.parent.flow.shape_of(image.parent)[2:]
        count = len(sizes)
        is_exact = True
        for axis in range(count):
            pads = per_axis(op, "padding", count)[axis], per_axis(other, "padding", count)[axis]
            steps = per_axis(op, "dilation", count)[axis], per_axis(other, "dilation", count)[axis]
            taps = taps_of(sizes[axis], others[axis], pads, steps)
            if taps is None:
                is_exact = False
                taps = _centred(sizes[axis], others[axis])
            image.index[2 + axis] = np.maximum(taps, 0)
            image.factors[2 + axis] = (taps >= 0).astype(np.float64)
        return is_exact

    def _chain(self, value: Value) -> tuple[Value, list[tuple[Operation, int]]]:
        """Return the parameter and the operations from it to a part of it."""
        chain: list[tuple[Operation, int]] = []
        parameter = self.child.parameter_of(value)
        while parameter is not None and value != parameter:
            op = self.child.flow.operations[value.operation]
            chain.insert(0, (op, value.output))
            value = op.reads[0]
        return value, chain

    def _pulled(self, array: Factor, chain: Sequence[tuple[Operation, int]]) -> Factor:
        for op, output in reversed(chain):
            array = index_arrays.backward(op, array, self._shape_before(op), output)
        return array

    def _shape_before(self, op: Operation) -> tuple[int, ...]:
        return self.child.flow.shape_of(op.reads[0])


def taps_of(size: int, other: int, pads: tuple[int, int], steps: tuple[int, int]) -> Index | None:
    """Return which of the parent's taps each tap is, -1 for none; None if one has no place.

    Args:
        pads, steps: padding and dilation of the child and of the parent.
    """
    taps = np.full(size, -1)
    for tap in range(other):
        place, rest = divmod(tap * steps[1] + pads[0] - pads[1], steps[0])
        if rest or not 0 <= place < size:
            return None
        taps[place] = tap
    return taps


def _set(image: IndexMap, array: Factor) -> bool:
    """Set factors that are not set yet; return whether the others agree."""
    wide = [axis for axis, size in enumerate(array.shape) if size > 1]
    if len(wide) > 1:
        image.joint.append(np.nan_to_num(array, nan=1.0))
        return True
    axis = wide[0] if wide else 0
    own = index_arrays.along(array, axis, len(image.factors[axis])) if array.ndim else array
    if not array.ndim:
        image.joint.append(array)
        return True
    before = image.factors[axis]
    both = ~np.isnan(before) & ~np.isnan(own)
    agrees = index_arrays.same(before[both], own[both])
    image.factors[axis] = np.where(np.isnan(before), own, before)
    return agrees


def _centred(size: int, other: int) -> Index:
    taps = np.arange(size) + (other - size) // 2 if size <= other else (
        np.arange(size) - (size - other) // 2
    )  # fmt: skip
    return np.where((taps >= 0) & (taps < other), taps, -1)


def developed(image: IndexMap, parent: Tensor, own: Tensor) -> tuple[Tensor, float]:
    """Return the child's tensor, and the fraction of its elements that come from the parent's.

    Args:
        own: the child's own initial tensor, whose shape and dtype the result has.
    """
    if _is_copy(image, parent, own):
        return parent.detach().to(own.device, own.dtype).clone(), 1.0
    work = _wide(parent) if _computes(image) else parent.detach().cpu()
    for axis, index in enumerate(image.index):
        work = _indexed(work, axis, index)
    taken = [np.ones(len(index)) for index in image.index]
    keeps = torch.zeros(own.shape, dtype=torch.bool)
    for axis, factor in enumerate(image.factors):
        factor = np.nan_to_num(factor, nan=1.0)
        kept = image.free[axis] | ((image.index[axis] == NEW) & (factor != 0))
        taken[axis] = ~kept & (factor != 0)
        if not (factor == 1).all() and work.dtype in (torch.float64, torch.complex128):
            work *= _shaped(factor, axis, own.ndim)
        if kept.any():
            keeps |= _shaped(kept, axis, own.ndim)
    for factors in image.joint:
        work = work * torch.from_numpy(np.ascontiguousarray(factors)).reshape(factors.shape)
    result = work.to(own.device, own.dtype)
    if keeps.any():
        result = torch.where(keeps.to(own.device), own.detach(), result)
    fraction = float(np.prod([part.mean() if part.size else 1.0 for part in taken]))
    return result, fraction


def identity(given: IdentityWeight, own: Tensor) -> Tensor:
    """Return the weight, of a linear layer or a convolution, that hands on what it reads."""
    (rows, made), (columns, factors) = given.rows, given.columns
    matrix = (rows[:, None] == columns[None, :]) & (rows[:, None] >= 0)
    weights = np.where(matrix, made[:, None] * factors[None, :], 0.0)
    means = rows == MEAN
    weights[means] = made[means][:, None] * factors[None, :] / given.size
    width = len(columns) // given.groups
    if given.groups > 1:
        group = np.arange(len(rows)) // (len(rows) // given.groups)
        places = group[:, None] * width + np.arange(width)[None, :]
        weights = np.take_along_axis(weights, places, axis=1)
    result = torch.zeros(own.shape, dtype=torch.float64)
    at_centre = result
    for tap in reversed(given.centre):
        at_centre = at_centre[..., tap]
    at_centre.copy_(torch.from_numpy(weights))
    return result.to(own.device, own.dtype)


def operator_of(image: IndexMap, parent: Tensor, own: Tensor) -> str:
    """Return "narrow", "widen", "kernel" or "copy": the first that holds of a tensor."""
    pairs = list(zip(own.shape, parent.shape, strict=True))
    if any(size < other for size, other in pairs):
        return "narrow"
    if any(size > other for size, other in pairs[:2]):
        return "widen"
    if any(size > other for size, other in pairs[2:]):
        return "kernel" if image.is_kernel else "widen"
    return "copy"


def _is_copy(image: IndexMap, parent: Tensor, own: Tensor) -> bool:
    return (
        parent.shape == own.shape
        and not image.joint
        and all(np.array_equal(index, np.arange(len(index))) for index in image.index)
        and all(bool((np.isnan(one) | (one == 1)).all()) for one in image.factors)
        and not any(mask.any() for mask in image.free)
    )


def _computes(image: IndexMap) -> bool:
    return (
        bool(image.joint)
        or any((index == MEAN).any() for index in image.index)
        or any(not (np.isnan(one) | (one == 1)).all() for one in image.factors)
    )


def _wide(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().cpu()
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _indexed(work: Tensor, axis: int, index: Index) -> Tensor:
    places = np.where(index < 0, 0, index)
    if (index == MEAN).any():
        places = np.where(index == MEAN, work.shape[axis], places)
        work = torch.cat((work, work.mean(axis, keepdim=True)), axis)
    return work.index_select(axis, torch.from_numpy(places))


def _shaped(numbers: Factor | Mask, axis: int, ndim: int) -> Tensor:
    shape = [1] * ndim
    shape[axis] = -1
    return torch.from_numpy(np.ascontiguousarray(numbers)).reshape(shape)
