"""HDF5 through h5py: one dataset for each tensor, in row-major order, not packed."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

State = dict[str, Tensor]


def save(state: State, path: Path) -> int:
    """Write a state dict, on the disk when it returns; return the file's bytes."""
    with _h5py().File(path, "w") as file:
        for name, tensor in state.items():
            file.create_dataset(name, data=_array(tensor)).attrs["dtype"] = str(tensor.dtype)
    with path.open("rb") as written:
        os.fsync(written.fileno())
    return path.stat().st_size


def load(path: Path) -> State:
    """Read a state dict into memory of its own."""
    with H5File(path) as file:
        return {name: file.tensor(name) for name in file.names()}


class H5File:
    """An open file, from which tensors are read one at a time."""

    def __init__(self, path: Path) -> None:
        self._file = _h5py().File(path, "r")

    def __enter__(self) -> H5File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def names(self) -> list[str]:
        """Return the tensors' names."""
        return list(self._file)

    def tensor(self, name: str, rows: tuple[int, int] | None = None) -> Tensor:
        """Return a tensor or a range of its rows."""
        dataset = self._file[name]
        array = np.asarray(dataset[()] if rows is None else dataset[slice(*rows)])
        kind: torch.dtype = getattr(torch, dataset.attrs["dtype"].removeprefix("torch."))
        return torch.from_numpy(array.reshape(-1)).view(kind).reshape(array.shape)


def _array(tensor: Tensor) -> np.ndarray:
    """Return the bytes as NumPy knows them: bfloat16, which HDF5 has not, as 16-bit integers."""
    whole = tensor.detach().contiguous()
    array: np.ndarray = (
        whole.view(torch.int16) if whole.dtype == torch.bfloat16 else whole
    ).numpy()
    return array


def _h5py() -> Any:
    return importlib.import_module("h5py")
