"""Augmentation: registered functions that change a batch before the module sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mmdb.errors import FunctionFailed
from mmdb.train.batch import Inputs
from mmdb.train.candidate.choices import Choice
from mmdb.train.candidate.functions import Functions, function_of


class Augmentation:
    """Augmentations in their order. Each is `callable(x, generator, **arguments) -> x`."""

    def __init__(self, choices: Sequence[Choice], functions: Functions) -> None:
        """Raises: FunctionNotFound, FunctionFailed"""
        self._names = tuple(choice.name for choice in choices)
        self._functions = tuple(function_of(functions, "augmentation", c) for c in choices)

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self._functions)

    def __call__(self, x: Inputs, generator: torch.Generator) -> Inputs:
        """Return the batch as the functions make it.

        Raises:
            FunctionFailed: one returned something else than inputs of as many rows and that dtype.
        """
        for name, function in zip(self._names, self._functions, strict=True):
            x = _checked(name, function, x, generator)
        return x


def _checked(
    name: str, function: Callable[..., object], x: Inputs, generator: torch.Generator
) -> Inputs:
    found = function(x, generator)
    if isinstance(x, Tensor):
        if isinstance(found, Tensor) and _alike(found, x):
            return found
    elif isinstance(found, dict) and found.keys() == x.keys():
        if all(isinstance(found[key], Tensor) and _alike(found[key], x[key]) for key in x):
            return found
    raise FunctionFailed(
        f"Augmentation {name!r} returned something else than its batch.",
        hint="It returns as many rows, of the same dtype; inputs by name stay inputs by name.",
    )


def _alike(found: Tensor, x: Tensor) -> bool:
    return len(found) == len(x) and found.dtype == x.dtype


def augmentation_generator(seed: int, device: torch.device) -> torch.Generator:
    """Return the generator of a hop's augmentations: a stream of its own, apart from dropout's."""
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8, person=b"mmdb.augment").digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "little") >> 1)
