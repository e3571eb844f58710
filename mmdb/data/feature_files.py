"""Features of partitions, written into the node's cache as partitions of their own.

A partition of features has x.npy, float32 (n, *shape), and the labels of the rows that the features
were computed from, which are the same files: hard links, or copies where there can be none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mmdb.data import arrays, node_cache
from mmdb.data.decoded import Labels
from mmdb.data.feature_codec import Deviation, Shape, coded


class FeatureWriter:
    """Takes the features of a partition, some rows at a time and in order.

    Attributes:
        rows: written so far.
        byte_count: of them in the node's cache.
        deviation: of what was written from what was computed.
    """

    def __init__(self, write: Callable[[np.ndarray], None], shape: Shape, storage: str) -> None:
        self._write = write
        self._shape = shape
        self._storage = storage
        self.rows = 0
        self.byte_count = 0
        self.deviation = Deviation()

    def add(self, features: np.ndarray) -> None:
        """Write what is left of these features once they are stored.

        Args:
            features: float32 (n, *shape).
        Raises:
            NotANumber: see `mmdb.data.feature_codec.encode`.
            ValueError: they have another shape, or another type.
        """
        if features.shape[1:] != self._shape or features.dtype != np.float32:
            raise ValueError(f"Features are {features.dtype} {features.shape[1:]} a row.")
        decoded = coded(features, self._storage)
        self.deviation.add(features, decoded)
        self._write(decoded)
        self.rows += len(decoded)
        self.byte_count += decoded.nbytes


@contextmanager
def writing_features(
    key: bytes, source: bytes, shape: Shape, storage: str = "float32"
) -> Iterator[FeatureWriter]:
    """Make the features of a partition; they are in the cache once the block ends without an error.

    Several can be made at once. Features that were decoded before are written with "float32".

    Args:
        key: of the features.
        source: key of a partition in the cache that has the same rows: raw, or other features.
        shape: of the features of a row.
    Raises:
        NotCached: the source is not in the cache (any more).
        ValueError: not as many rows were written as the source has.
    """
    labels = node_cache.map(source).labels
    with node_cache.placing(key) as folder:
        rows = _share_labels(folder, source, labels)
        with arrays.writing_array(folder / "x.npy", "<f4", (rows, *shape)) as write:
            writer = FeatureWriter(write, shape, storage)
            yield writer
        if writer.rows != rows:
            raise ValueError(f"{writer.rows} rows of features were written of {rows}.")


def _share_labels(folder: Path, source: bytes, labels: Labels) -> int:
    """Put the labels of a partition into a folder, too; return how many rows they are of."""
    count = len(labels) if isinstance(labels, tuple) else None
    arrays.write_form(folder, None, count)
    found = labels if isinstance(labels, tuple) else (labels,)
    for name, array in zip(arrays.label_files(count), found, strict=True):
        try:
            os.link(node_cache.path_of(source, name), folder / name)
        except OSError:  # another process made room, or the file system has no links
            with arrays.writing_array(folder / name, array.dtype.str, array.shape) as write:
                write(array)
    return len(found[0])
