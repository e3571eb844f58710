"""The mean of a candidate's encoded states: the merge that ends an epoch of `model_average`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import safetensors.torch
from torch import Tensor

from mmdb.errors import StatesDiffer
from mmdb.train.compute.encoding import decode
from mmdb.train.parallel.mean import WeightedMean

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
