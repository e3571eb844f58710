"""Pictures on the disk, as a data set that MMLib can make again from the folder it stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset


class PictureFolder(Dataset[tuple[Tensor, Tensor]]):
    """Pictures and labels out of x.npy and y.npy."""

    def __init__(self, root: str) -> None:
        self._x = torch.from_numpy(np.load(Path(root) / "x.npy"))  # (n, C, H, W)
        self._y = torch.from_numpy(np.load(Path(root) / "y.npy"))  # (n,)

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._x[index], self._y[index]
