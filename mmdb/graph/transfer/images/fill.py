"""From images to tensors, in float64."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mmdb.graph.transfer.counterparts.indices import MEAN, NEW, Factor, Index
from mmdb.graph.transfer.images.images import Identity, Image, Mask


def developed(image: Image, parent: Tensor, own: Tensor) -> tuple[Tensor, float]:
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


def identity(given: Identity, own: Tensor) -> Tensor:
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


def operator_of(image: Image, parent: Tensor, own: Tensor) -> str:
    """Return "narrow", "widen", "kernel" or "copy": the first that holds of a tensor."""
    pairs = list(zip(own.shape, parent.shape, strict=True))
    if any(size < other for size, other in pairs):
        return "narrow"
    if any(size > other for size, other in pairs[:2]):
        return "widen"
    if any(size > other for size, other in pairs[2:]):
        return "kernel" if image.is_kernel else "widen"
    return "copy"


def _is_copy(image: Image, parent: Tensor, own: Tensor) -> bool:
    return (
        parent.shape == own.shape
        and not image.joint
        and all(np.array_equal(index, np.arange(len(index))) for index in image.index)
        and all(bool((np.isnan(one) | (one == 1)).all()) for one in image.factors)
        and not any(mask.any() for mask in image.free)
    )


def _computes(image: Image) -> bool:
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
