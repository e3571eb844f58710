"""A partition, or some rows of it, as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: float32 or int64 (n, *shape): one input's, or those of several by name.
Inputs = np.ndarray | dict[str, np.ndarray]
#: (n,) or (n, size), see `mmdb.data.target.Target`: one target's, or those of several in order.
Labels = np.ndarray | tuple[np.ndarray, ...]


class Decoded(NamedTuple):
    """Rows as a model takes them; one input and one target are plain arrays."""

    inputs: Inputs
    labels: Labels

    @property
    def plain(self) -> tuple[np.ndarray, np.ndarray]:
        """The arrays of the only input and the only target."""
        assert isinstance(self.inputs, np.ndarray)
        assert isinstance(self.labels, np.ndarray)
        return self.inputs, self.labels

    @property
    def input_arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays of the inputs in their order, however many there are."""
        return tuple(self.inputs.values()) if isinstance(self.inputs, dict) else (self.inputs,)

    @property
    def label_arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays of the labels in the targets' order, however many there are."""
        return self.labels if isinstance(self.labels, tuple) else (self.labels,)
