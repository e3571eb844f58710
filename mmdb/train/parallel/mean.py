"""The mean of named tensors, weighted, and added up one set at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from mmdb.errors import StatesDiffer


class WeightedMean:
    """The mean of sets of tensors that have the same names, element by element.

    Floats are summed in float64 in the order in which they are added, and cast back. Integers
    count something and take the maximum, as does each tensor that `counts` names. A tensor that is
    equal in all sets stays as it is, to the bit. In memory: the sum of what differs, in float64,
    and one set.
    """

    def __init__(self, counts: Callable[[str], bool] = lambda name: False) -> None:
        self._counts = counts
        self._entries: dict[str, _Entry] = {}

    def add(self, tensors: Mapping[str, Tensor], weight: int) -> None:
        """Add a set; a name that other sets lack is averaged over those that have it.

        Args:
            weight: at least 1, for example a number of rows.
        Raises:
            StatesDiffer: a tensor has another shape or dtype than in the sets before.
        """
        for name, tensor in tensors.items():
            entry = self._entries.get(name)
            if entry is None:
                self._entries[name] = _Entry(tensor, weight, self._counts(name))
            elif not entry.fits(tensor):
                raise StatesDiffer(
                    f"{name} is {tensor.dtype} {tuple(tensor.shape)} in one state and "
                    f"{entry.value.dtype} {tuple(entry.value.shape)} in another."
                )
            else:
                entry.add(tensor, weight)

    def result(self) -> dict[str, Tensor]:
        """Return the mean of what was added."""
        return {name: entry.mean() for name, entry in self._entries.items()}


class _Entry:
    """One tensor's mean."""

    def __init__(self, value: Tensor, weight: int, counts: bool) -> None:
        self.value = value  # equal in all sets so far, or the maximum
        self._sum: Tensor | None = None  # once two have differed
        self._weight = weight
        self._maximum = counts or not (value.is_floating_point() or value.is_complex())

    def fits(self, tensor: Tensor) -> bool:
        return tensor.shape == self.value.shape and tensor.dtype == self.value.dtype

    def add(self, tensor: Tensor, weight: int) -> None:
        if self._maximum:
            self.value = torch.maximum(self.value, tensor)
            return
        if self._sum is None and not torch.equal(self.value, tensor):
            self._sum = _weighted(self.value, self._weight)
            self.value = torch.empty_like(self.value, device="meta")  # its shape and dtype
        if self._sum is not None:
            self._sum += _weighted(tensor, weight)
        self._weight += weight

    def mean(self) -> Tensor:
        if self._sum is None:
            return self.value
        return (self._sum / self._weight).to(self.value.dtype)


def _weighted(tensor: Tensor, weight: int) -> Tensor:
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.to(wide, copy=True).mul_(weight)
