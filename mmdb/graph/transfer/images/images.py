"""Where each element of a child's tensor comes from: index and factor along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.flow.flow import Operation, Value
from mmdb.graph.transfer.axes.axes import Axes
from mmdb.graph.transfer.axes.spaces import FIXED, OUTPUT, leaves
from mmdb.graph.transfer.counterparts.indices import Factor, Index, Indices, spread
from mmdb.graph.transfer.counterparts.operations import per_axis
from mmdb.graph.transfer.images import arrays
from mmdb.graph.transfer.images.shares import Shares

Mask: TypeAlias = NDArray[np.bool_]


@dataclass(slots=True)
class Image:
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
class Identity:
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


class Images:
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
        shares: Shares,
    ) -> None:
        self.child, self.parent, self.indices = child, parent, indices
        self.parameters, self.shares = parameters, shares
        self.of: dict[Value, Image] = {}
        self.refused: dict[Value, str] = {}
        self.local: dict[Value, str] = {}

    def image(self, parameter: Value) -> Image | None:
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
        image = self.of[parameter] = Image(
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
            array = arrays.placed_at(factor, own, len(image.factors))
            for op, output in chain:
                array = arrays.forward(op, array, self._shape_before(op), output)
            if array.shape[axis] == size and (size > 1 or own == axis):
                found = found * arrays.along(array, axis, size)
                is_met = True
        return found if is_met and not np.isnan(found).any() else None

    def settle(self, value: Value, factor: Factor, axis: int, free: Mask | None = None) -> bool:
        """Set factors along an axis of a parameter, or of a part of one; return whether they agree.

        Those that are set stay. `free` elements are the child's own.
        """
        size = self.child[value][axis].size
        ndim = len(self.child[value])
        wide = arrays.placed_at(np.broadcast_to(factor, (size,)), axis, ndim)
        parameter, chain = self._chain(value)
        image = self.image(parameter)
        if image is None:
            return True
        agrees = _set(image, self._pulled(wide, chain))
        if free is not None and free.any():
            array = arrays.placed_at(free.astype(np.float64), axis, ndim)
            array = self._pulled(array, chain)
            for own, mask in enumerate(image.free):
                if array.shape[own] == len(mask) > 1:
                    mask |= np.nan_to_num(arrays.along(array, own, len(mask))) > 0
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
            if not arrays.same(before[both], own[both]):
                return False
            if not np.isnan(before).any():
                return True
            array = np.where(np.isnan(before), own, np.nan)
        image.whole = arrays.merged(image.whole, array)
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
            array = arrays.backward(op, array, self._shape_before(op), output)
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


def _set(image: Image, array: Factor) -> bool:
    """Set factors that are not set yet; return whether the others agree."""
    wide = [axis for axis, size in enumerate(array.shape) if size > 1]
    if len(wide) > 1:
        image.joint.append(np.nan_to_num(array, nan=1.0))
        return True
    axis = wide[0] if wide else 0
    own = arrays.along(array, axis, len(image.factors[axis])) if array.ndim else array
    if not array.ndim:
        image.joint.append(array)
        return True
    before = image.factors[axis]
    both = ~np.isnan(before) & ~np.isnan(own)
    agrees = arrays.same(before[both], own[both])
    image.factors[axis] = np.where(np.isnan(before), own, before)
    return agrees


def _centred(size: int, other: int) -> Index:
    taps = np.arange(size) + (other - size) // 2 if size <= other else (
        np.arange(size) - (size - other) // 2
    )  # fmt: skip
    return np.where((taps >= 0) & (taps < other), taps, -1)
