"""What a tensor is: dtype, shape, bytes and the hash that names them, and how it is cut. Pure.

Large tensors are cut into chunks of rows, small ones go into one pack per model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import blake3
import numpy as np
import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from mmdb.errors import UnsupportedTensor

#: Below this BLAKE3 gains nothing from a second thread.
_PARALLEL_BYTES = 64 << 20
#: Bytes of one step of the statistics: what stays in the processor's cache.
_STEP_BYTES = 1 << 20
#: float32 holds the squares of these, and their sum over one step, without much loss.
_SQUARED_IN_FLOAT32 = (1e-12, 1e15)
#: float64 holds the squares of these, and their sum.
_SQUARED_IN_FLOAT64 = (1e-140, 1e140)

#: Every dtype whose bytes can be kept, by name: "float32" -> torch.float32.
DTYPES: dict[str, torch.dtype] = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype) and not str(value).startswith("torch.q")
}

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name that the column `dtype` holds."""
    return str(dtype).removeprefix("torch.")


def word_bytes(dtype: torch.dtype) -> int:
    """Return the bytes of the words that the codecs work on: a complex number is two."""
    return dtype.itemsize // (2 if dtype.is_complex else 1)


def check_supported(tensor: torch.Tensor) -> None:
    """Raise where a tensor's bytes cannot be kept.

    Raises:
        UnsupportedTensor: it is sparse, quantized, made of other tensors, or has no memory.
    """
    what = ""
    if is_lazy(tensor):
        what = "not initialized"
    elif tensor.is_nested or tensor.layout is torch.jagged:
        what = "nested"
    elif tensor.layout is not torch.strided:
        what = str(tensor.layout).removeprefix("torch.")
    elif tensor.is_quantized:
        what = "quantized"
    elif dtype_name(tensor.dtype) not in DTYPES:
        what = f"of dtype {dtype_name(tensor.dtype)}"
    elif _is_wrapper(tensor):
        what = f"a {type(tensor).__name__}"
    elif tensor.is_meta or not _has_memory(tensor):
        what = "without memory"
    if what:
        raise UnsupportedTensor(f"A tensor that is {what} cannot be kept.")


def _is_wrapper(tensor: object) -> bool:
    """Return whether a tensor is computed with by another class: its own memory says nothing."""
    dispatch = getattr(type(tensor), "__torch_dispatch__", None)
    return is_traceable_wrapper_subclass(tensor) or dispatch is not torch.Tensor.__torch_dispatch__


def _has_memory(tensor: torch.Tensor) -> bool:
    """Return whether there is memory for every element: it may have been freed, or taken away."""
    if not tensor.numel():
        return True
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (int(tensor.storage_offset()) + reach + 1) * tensor.element_size()
    try:
        storage = tensor.untyped_storage()
        return storage.nbytes() >= needed and storage.data_ptr() != 0
    except RuntimeError:  # a functional tensor's
        return False


def raw_bytes(tensor: torch.Tensor) -> np.ndarray:
    """Return the elements as uint8 (bytes,), little-endian and row-major.

    A contiguous tensor on the CPU is not copied: the array is a view of its memory.

    Raises:
        UnsupportedTensor: see `check_supported`.
    """
    check_supported(tensor)
    flat = _flat(tensor)
    if not flat.numel():
        return np.empty(0, np.uint8)
    found: np.ndarray = flat.view(torch.uint8).numpy()
    return found


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements (n,) in row-major order on the CPU; a view where they lie so."""
    found = tensor.detach().resolve_conj().resolve_neg().cpu()
    if found.is_contiguous() or found.dtype == torch.complex128:
        # Not reshape: one element is contiguous whatever its stride, and keeps it.
        return found.contiguous().as_strided((found.numel(),), (1,))
    # There are dtypes that torch cannot copy element by element; it can copy integers.
    words = found.view(_INTEGERS[found.element_size()])
    return words.contiguous().reshape(-1).view(found.dtype)


def tensor_hash(dtype: str, shape: Sequence[int], data: np.ndarray | bytes) -> bytes:
    """Return a tensor's name: BLAKE3-256 over dtype, shape and bytes, 32 bytes."""
    head = json.dumps([dtype, list(shape)]).encode()
    threads = blake3.blake3.AUTO if len(data) > _PARALLEL_BYTES else 1
    hasher = blake3.blake3(len(head).to_bytes(8, "little") + head, max_threads=threads)
    return hasher.update(memoryview(cast("bytes", data))).digest()


def hash_of(tensor: torch.Tensor) -> bytes:
    """Return the name of a tensor."""
    return tensor_hash(dtype_name(tensor.dtype), tensor.shape, raw_bytes(tensor))


@dataclass(frozen=True, slots=True)
class Statistics:
    """Columns of `mmdb.tensor`; NaNs count in `nans` alone."""

    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    deviation: float | None = None
    zeros: int | None = None
    nans: int | None = None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Statistics:
        """Return the statistics of a tensor's elements, of their real parts if complex."""
        flat = _flat(tensor)
        if not flat.numel():
            return cls(zeros=0, nans=0)
        try:
            return _statistics(flat)
        except (RuntimeError, NotImplementedError):  # a dtype that torch cannot compute with
            return cls()

    def row(self) -> tuple[object, ...]:
        """Return the values in the order of the columns."""
        return self.minimum, self.maximum, self.mean, self.deviation, self.zeros, self.nans


def _statistics(flat: torch.Tensor) -> Statistics:
    step = _STEP_BYTES // flat.element_size()
    sums = _Sums()
    zeros, nans = 0, 0
    low, high = math.inf, -math.inf
    for start in range(0, len(flat), step):
        part = flat[start : start + step]
        values = _computable(part.real if part.is_complex() else part)
        zeros += len(values) - int(values.count_nonzero())
        smallest, largest = (float(value) for value in values.aminmax())
        if math.isnan(smallest):
            numbers = values[~values.isnan()]
            nans += len(values) - len(numbers)
            if not len(numbers):
                continue
            values = numbers
            smallest, largest = (float(value) for value in values.aminmax())
        low, high = min(low, smallest), max(high, largest)
        sums.add(values, smallest, largest)
    if not sums.count:
        return Statistics(zeros=zeros, nans=nans)
    mean, deviation = sums.mean, math.sqrt(sums.squares / sums.count)
    largest, extent = max(high, -low), high - low
    if 0 < extent < _SQUARED_IN_FLOAT64[0] or _SQUARED_IN_FLOAT64[1] < largest < math.inf:
        power = min(1000, max(-1000, -math.frexp(largest)[1]))
        scaled = _statistics((flat.real if flat.is_complex() else flat) * 2.0**power)
        assert scaled.mean is not None and scaled.deviation is not None
        mean, deviation = (math.ldexp(x, -power) for x in (scaled.mean, scaled.deviation))
    return Statistics(low, high, mean, deviation, zeros, nans)


@dataclass(slots=True)
class _Sums:
    """Count, mean and sum of squared differences from it, added up step by step.

    Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances", 1979.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: torch.Tensor, smallest: float, largest: float) -> None:
        """Add values of which the extremes are known."""
        count = len(values)
        mean = float(values.mean(dtype=torch.float64))
        squares = _squares_around(mean, values, max(largest - mean, mean - smallest))
        total = self.count + count
        apart = mean - self.mean
        self.squares += squares + apart * apart * (self.count * count / total)
        self.mean += apart * (count / total)
        self.count = total


def _squares_around(mean: float, values: torch.Tensor, farthest: float) -> float:
    """Return the sum of squared differences from the mean; none is above `farthest`."""
    if not math.isfinite(mean):
        return math.nan
    if not _SQUARED_IN_FLOAT32[0] < farthest < _SQUARED_IN_FLOAT32[1]:
        values = values.double()
    around = float(torch.tensor(mean, dtype=values.dtype))
    apart = values - around
    return max(float(torch.dot(apart, apart)) - len(values) * (mean - around) ** 2, 0.0)


def _computable(values: torch.Tensor) -> torch.Tensor:
    """Return values of a dtype that torch can reduce: float8, bfloat16 and bool as float32."""
    if values.dtype in (torch.float32, torch.float64):
        return values
    if values.dtype.is_floating_point or values.dtype == torch.bool:
        return values.float()
    return values.double()


#: Bytes of a chunk before it is encoded. A quarter of a MiB stays in the processor's cache while
#: it is decoded, and a few rows of a tensor cost one chunk.
CHUNK_BYTES = 256 << 10
#: The same of a tensor whose rows are read one by one.
ROW_CHUNK_BYTES = 32 << 10
#: Tensors below this lie in their model's pack.
PACKED_BELOW = 8 << 10


def chunk_bytes(shape: Sequence[int], itemsize: int, *, by_row: bool = False) -> int:
    """Return the bytes of a chunk: as many whole rows as fit, else a part of one row."""
    row = math.prod(shape[1:]) * itemsize
    limit = min(ROW_CHUNK_BYTES, CHUNK_BYTES) if by_row else CHUNK_BYTES
    if not 0 < row <= limit:
        return limit // itemsize * itemsize
    return limit // row * row


def chunk_count(byte_count: int, size: int) -> int:
    """Return into how many chunks of `size` bytes some bytes are cut."""
    return -(-byte_count // size)


def spans(byte_count: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield ordinal, first byte and the byte after the last of each chunk."""
    for ordinal, start in enumerate(range(0, byte_count, size)):
        yield ordinal, start, min(start + size, byte_count)


def fitted(base: np.ndarray, size: int) -> np.ndarray:
    """Return the first `size` bytes of a base that is shorter or longer; zeros follow its end."""
    if len(base) == size:
        return base
    found = np.zeros(size, np.uint8)
    found[: min(size, len(base))] = base[:size]
    return found


@dataclass(frozen=True, slots=True)
class PackLayout:
    """Where small tensors lie in a pack."""

    offsets: Mapping[int, int]  # ordinal in the model -> first byte
    byte_count: int
    word: int  # of the dtype that most of the bytes have


def pack_layout(members: Sequence[tuple[int, str, int]], added: Container[int] = ()) -> PackLayout:
    """Return the places of small tensors in a pack, so that each is aligned to its own words.

    Args:
        members: (ordinal, dtype, bytes) of the tensors, in the order of their ordinals.
        added: those of an adapter, which come last: what comes before them lies where it does in
            the pack of the network that is adapted.
    """
    ordered = sorted(members, key=lambda m: (m[0] in added, -DTYPES[m[1]].itemsize, m[0]))
    offsets: dict[int, int] = {}
    by_word: dict[int, int] = {1: 0}
    position = 0
    for ordinal, dtype, size in ordered:
        position += -position % DTYPES[dtype].itemsize if ordinal in added else 0
        offsets[ordinal] = position
        position += size
        word = word_bytes(DTYPES[dtype])
        by_word[word] = by_word.get(word, 0) + size
    return PackLayout(offsets, position, max(by_word, key=lambda word: by_word[word]))
