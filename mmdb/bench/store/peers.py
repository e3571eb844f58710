"""The ways to keep a model in a file that need nothing beside what mmdb needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

State = dict[str, Tensor]
Save = Callable[[State, Path], int]
Load = Callable[[Path], State]


def torch_save(state: State, path: Path) -> int:
    """Write a state dict with torch.save, on the disk when it returns; return the file's bytes."""
    with path.open("wb") as file:
        torch.save(state, file)
        _commit(file.fileno())
    _commit_folder(path)
    return path.stat().st_size


def safetensors_save(state: State, path: Path) -> int:
    """Write a state dict as safetensors, on the disk when it returns; return the file's bytes."""
    save_file(state, path)
    with path.open("rb") as file:
        _commit(file.fileno())
    _commit_folder(path)
    return path.stat().st_size


def torch_load(path: Path) -> State:
    """Read a state dict into memory of its own."""
    state: State = torch.load(path, weights_only=True)
    return state


def safetensors_load(path: Path) -> State:
    """Read a state dict into memory of its own, as a model that is to be trained needs it.

    `load_file` alone maps the file: its tensors are read when they are first used.
    """
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def _commit(descriptor: int) -> None:
    os.fsync(descriptor)


def _commit_folder(path: Path) -> None:
    """Make the file's name durable too."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        _commit(descriptor)
    finally:
        os.close(descriptor)
