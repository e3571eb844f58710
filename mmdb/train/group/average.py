"""The mean of a candidate's states: the merge that ends an epoch of `model_average`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from mmdb.errors import StatesDiffer
from mmdb.train.compute.encoding import decode


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


_GENERATOR = "generator"
_OPTIMIZER = "optimizer."


def average(states: Iterable[bytes], weights: Sequence[int]) -> bytes:
    """Return the mean of a candidate's encoded states, encoded as they are.

    Weights, float buffers and the floats of the optimizer's state are means, weighted, summed in
    float64 in the order given and cast back; what is equal in all states stays as it is. Integers
    and the optimizer's counts of steps take the maximum. Hyper-parameters of the optimizer's
    groups, the schedule, the scaler and the generator are those of the first state. An entry that
    the optimizer made in some of the passes only is averaged over those. In memory: one state, and
    a sum of twice its size.

    Args:
        states: at least one, in the order of their partitions; taken one by one.
        weights: rows of each state's partition, each at least 1.
    Raises:
        StatesDiffer: the states are not of one candidate.
    Source: McDonald, Hall and Mann, Distributed Training Strategies for the Structured Perceptron,
        NAACL 2010 (iterative parameter mixing).
    """
    mean = WeightedMean(counts=_counts_steps)
    first: tuple[set[str], Tensor, dict[str, Any]] | None = None
    for state, weight in zip(states, weights, strict=True):
        tensors, header = decode(state)
        generator = tensors.pop(_GENERATOR)
        names = {name for name in tensors if not name.startswith(_OPTIMIZER)}
        if first is None:
            first = names, generator, header
        elif names != first[0] or header["aliases"] != first[2]["aliases"]:
            raise StatesDiffer("The states to be averaged are of modules with other tensors.")
        mean.add(tensors, weight)
    if first is None:
        raise StatesDiffer("There is no state to be averaged.")
    metadata = {"mmdb": json.dumps(first[2], sort_keys=True)}
    return safetensors.torch.save(mean.result() | {_GENERATOR: first[1]}, metadata)


def _counts_steps(name: str) -> bool:
    """Return whether a tensor counts an optimizer's steps, which torch keeps as a float."""
    return name.startswith(_OPTIMIZER) and name.endswith(".step")
