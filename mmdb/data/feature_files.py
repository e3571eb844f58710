"""Features as the bytes of blocks, and as files in the node's cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from mmdb.data import arrays, node_cache
from mmdb.data.arrays import Labels
from mmdb.data.pack import BLOCK_BYTES, digest
from mmdb.errors import FeatureCorrupt, NotANumber

#: Shape of the features of a row.
Shape = tuple[int, ...]

#: Values of a group, at least; a row with fewer is one group.
_GROUP = 32
#: Smaller magnitudes count as zero, larger ones as infinite: between them no scale is rounded off.
_SMALL, _LARGE = np.float32(2.0**-100), np.float32(3e38)
_FLOAT16_MAX = np.float32(65504)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFeatures:
    """The features of some rows, as the database keeps them.

    Attributes:
        ordinal: from 0, in the order of the partition's rows.
        digest: BLAKE3-256 of `data`.
    """

    ordinal: int
    row_count: int
    digest: bytes
    data: bytes


def row_bytes(shape: Shape, storage: str) -> int:
    """Return the bytes of a row: a partition takes as many times its rows, without anything else.

    >>> [row_bytes((512,), storage) for storage in ("float32", "float16", "int8")]
    [2048, 1024, 517]
    """
    return _record(shape, storage).itemsize


def rows_per_block(shape: Shape, storage: str) -> int:
    """Return how many rows fill a block."""
    return max(1, BLOCK_BYTES // row_bytes(shape, storage))


def pack_features(features: np.ndarray, storage: str) -> Iterator[PackedFeatures]:
    """Yield the blocks of a partition.

    Args:
        features: float32 (n, *shape).
    Raises:
        NotANumber: see `encode`.
    """
    step = rows_per_block(features.shape[1:], storage)
    for ordinal, start in enumerate(range(0, len(features), step)):
        rows = features[start : start + step]
        data = encode(rows, storage)
        yield PackedFeatures(ordinal=ordinal, row_count=len(rows), digest=digest(data), data=data)


def unpack_features(block: PackedFeatures, shape: Shape, storage: str) -> np.ndarray:
    """Return the features of a block, float32 (n, *shape).

    Raises:
        FeatureCorrupt: the bytes do not match the digest, or are not those rows.
    """
    if digest(block.data) != block.digest:
        raise FeatureCorrupt(f"Block {block.ordinal} of stored features does not match its digest.")
    features = decode(block.data, shape, storage)
    if len(features) != block.row_count:
        raise FeatureCorrupt(f"Block {block.ordinal} of stored features lost rows.")
    return features


def encode(features: np.ndarray, storage: str) -> bytes:
    """Return rows as bytes.

    Args:
        features: float32 (n, *shape).
        storage: "float32", "float16" or "int8". Beyond 65504, float16 holds 65504.
    Raises:
        NotANumber: int8 holds no NaN, no infinity and nothing above 3e38.
    """
    if storage == "float32":
        return np.ascontiguousarray(features, "<f4").tobytes()
    if storage == "float16":
        return _halved(features).tobytes()
    return _quantized(features).tobytes()


def decode(data: bytes, shape: Shape, storage: str) -> np.ndarray:
    """Return the rows that `encode` wrote, float32 (n, *shape).

    Raises:
        FeatureCorrupt: the bytes are not whole rows.
    """
    record = _record(shape, storage)
    if len(data) % record.itemsize:
        raise FeatureCorrupt("A block of stored features does not hold whole rows.")
    rows = np.frombuffer(data, record)
    if storage == "int8":
        return _restored(rows).reshape(-1, *shape)
    return rows["values"].astype(np.float32).reshape(-1, *shape)


def coded(features: np.ndarray, storage: str) -> np.ndarray:
    """Return features as they are after they were stored; float32 as they are.

    Raises:
        NotANumber: see `encode`.
    """
    if storage == "float32":
        return features
    if storage == "float16":
        return _halved(features).astype(np.float32)
    return _restored(_quantized(features)).reshape(features.shape)


class Deviation:
    """How far decoded features are from those that were computed, over many rows."""

    def __init__(self) -> None:
        self._largest = self._sum = self._magnitude = 0.0
        self._count = 0

    def add(self, computed: np.ndarray, decoded: np.ndarray) -> None:
        """Count these rows, too; a value that is not finite counts as kept, which it is."""
        self._count += computed.size
        if computed is decoded or not computed.size:
            return
        finite = np.isfinite(computed)
        apart = np.abs(np.subtract(computed, decoded, where=finite, out=np.zeros_like(computed)))
        self._largest = max(self._largest, float(apart.max()))
        self._sum += float(apart.sum(dtype=np.float64))
        self._magnitude = max(self._magnitude, float(np.abs(computed).max(where=finite, initial=0)))

    @property
    def max_error(self) -> float:
        """The largest difference, as a share of the largest magnitude of a feature."""
        return self._largest / self._magnitude if self._magnitude else 0.0

    @property
    def mean_error(self) -> float:
        """The mean difference, as a share of the largest magnitude of a feature."""
        return self._sum / self._count / self._magnitude if self._magnitude else 0.0


# -- records ------------------------------------------------------------------------


def _record(shape: Shape, storage: str) -> np.dtype[np.void]:
    count = prod(shape)
    if storage != "int8":
        return np.dtype([("values", {"float32": "<f4", "float16": "<f2"}[storage], (count,))])
    groups = _groups(shape)
    return np.dtype(
        [
            ("values", "u1", (groups, count // groups)),
            ("scales", "<f4", (groups,)),
            ("zeros", "u1", (groups,)),
        ]
    )


def _groups(shape: Shape) -> int:
    """Return into how many groups the values of a row fall.

    Those of a map's channel, of a sequence's position, of a vector: what lies along the axes after
    the first, where that is enough for a scale to be a small part of them.
    """
    groups = shape[0] if len(shape) > 1 else 1
    return groups if prod(shape) >= _GROUP * groups else 1


def _halved(features: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        halved = features.astype("<f2")
    over = np.isinf(halved) & np.isfinite(features)
    if over.any():
        halved[over] = np.copysign(_FLOAT16_MAX, features[over])
    return halved


def _quantized(features: np.ndarray) -> np.ndarray:
    """Return records of 8-bit numbers.

    A group without negative values, such as what leaves a ReLU, uses all 255 steps above zero;
    any other 127 on either side. Its largest magnitude is a whole number of steps.
    """
    rows = np.zeros(len(features), _record(features.shape[1:], "int8"))
    values = features.reshape(rows["values"].shape)
    low, high = values.min(axis=2), values.max(axis=2)
    peak = np.maximum(np.abs(low), high)  # (n, groups)
    if not (peak < _LARGE).all():
        raise NotANumber(
            "The frozen layers returned NaN, infinite or out-of-range features.",
            hint="Look at the rows and the frozen tensors; int8 holds finite numbers only.",
        )
    peak[peak < _SMALL] = 0
    signed = np.rint(np.divide(low, _scale(peak, 127), where=peak > 0, out=np.zeros_like(low))) < 0
    scale = np.where(signed, _scale(peak, 127), _scale(peak, 255))
    rows["scales"] = scale
    rows["zeros"] = np.where(signed, 128, 0)
    scale[scale == 0] = np.inf  # a group of zeros
    steps = np.rint(values / scale[:, :, None])
    steps += rows["zeros"][:, :, None]
    rows["values"] = np.clip(steps, 0, 255, out=steps)
    return rows


def _scale(peak: np.ndarray, steps: int) -> np.ndarray:
    """Return the size of a step, rounded up to 15 bits: then each multiple of it is exact."""
    exact = (peak / np.float32(steps)).view(np.uint32)
    return ((exact + np.uint32(0x1FF)) & np.uint32(0xFFFFFE00)).view(np.float32)


def _restored(rows: np.ndarray) -> np.ndarray:
    """Return the values of records, float32 (n, groups, size)."""
    steps = rows["values"].astype(np.float32)
    steps -= rows["zeros"][:, :, None]
    steps *= rows["scales"][:, :, None]
    return steps


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
            NotANumber: see `mmdb.data.feature_files.encode`.
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
