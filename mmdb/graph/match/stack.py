"""Many packed outlines, read at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.histogram import FEATURES
from mmdb.graph.match.kinds import are_numbers
from mmdb.graph.match.pack import DTYPES, HEADER, MOST_LAYERS, Packed

#: CRC-32 of bytes with their own CRC-32, little-endian, behind them.
_WHOLE = 0x2144DF1C
_COUNT = np.dtype("<u4")

_Starts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """Packed outlines, Z of them.

    Attributes:
        arrays: each one's, one after the other.
        starts: (Z + 1,) where each one's begin, by the array's name.
    """

    arrays: Packed
    starts: Mapping[str, _Starts]

    def __len__(self) -> int:
        return len(self.starts["label"]) - 1

    def __getitem__(self, number: int) -> Packed:
        return Packed(
            **{
                name: getattr(self.arrays, name)[slice(*starts[number : number + 2].tolist())]
                for name, starts in self.starts.items()
            }
        )

    def lengths(self, name: str) -> NDArray[np.int64]:
        """Return (Z,) how many items of an array each outline has."""
        return np.diff(self.starts[name])


def stack(outlines: Iterable[Packed]) -> Stack:
    """Return outlines as one."""
    given = list(outlines)
    pieces = {name: [getattr(one, name) for one in given] for name in DTYPES}
    return Stack(
        arrays=Packed(
            **{
                name: np.concatenate([np.empty(0, _native(DTYPES[name])), *found])
                for name, found in pieces.items()
            }
        ),
        starts={name: _starts([len(one) for one in found]) for name, found in pieces.items()},
    )


def unpack(rows: Sequence[bytes]) -> tuple[NDArray[np.int64], Stack]:
    """Return what `Packed.to_bytes` wrote, and the numbers of those rows.

    Rows that are cut short, damaged or of another version are left out.
    """
    whole = [crc32(row) == _WHOLE and row.startswith(HEADER) for row in rows]
    numbers = np.flatnonzero(whole)
    data = b"".join([rows[number] for number in numbers.tolist()])
    begins, lengths, kept = _places(data, [len(rows[number]) for number in numbers.tolist()])
    while True:
        found = _read(data, begins[:, kept], lengths[:, kept])
        sound = _are_sound(found)
        if sound.all():
            return numbers[kept], found
        kept[kept] = sound


def _places(
    data: bytes, sizes: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return (arrays, Z) where arrays begin and how long they are, (Z,) whether they fill a row."""
    view = np.frombuffer(data, np.uint8)
    starts = _starts(sizes)
    place = starts[:-1] + len(HEADER)
    last = starts[1:] - _COUNT.itemsize  # where the sum is
    begins, lengths = np.empty((2, len(DTYPES), len(sizes)), np.int64)
    fits = place <= last
    for row, dtype in enumerate(DTYPES.values()):
        at = np.minimum(place, last)[:, None] + np.arange(_COUNT.itemsize)
        lengths[row] = view[at].view(_COUNT)[:, 0]
        begins[row] = place + _COUNT.itemsize
        place = begins[row] + lengths[row] * np.dtype(dtype).itemsize
        fits &= place <= last
    return begins, lengths, fits & (place == last)


def _read(data: bytes, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> Stack:
    arrays: dict[str, NDArray[Any]] = {}
    starts = {}
    for row, (name, dtype) in enumerate(DTYPES.items()):
        ends = begins[row] + lengths[row] * np.dtype(dtype).itemsize
        places = zip(begins[row].tolist(), ends.tolist(), strict=True)
        items = b"".join([data[begin:end] for begin, end in places])
        arrays[name] = np.frombuffer(items, dtype).astype(_native(dtype))
        starts[name] = _starts(lengths[row])
    return Stack(arrays=Packed(**arrays), starts=starts)


def _are_sound(found: Stack) -> NDArray[np.bool_]:
    """Return (Z,) whether the arrays fit together; of those whose lengths do not, nothing else."""
    n, distinct = found.lengths("label"), found.lengths("kind")
    fits: NDArray[np.bool_] = (n <= MOST_LAYERS) & (
        found.lengths("feature") == found.lengths("mass")
    )
    for name in ("fan_in", "order", "crossing"):
        fits &= found.lengths(name) == n
    for name in ("groups", "rank", "parameters"):
        fits &= found.lengths(name) == distinct
    if fits.all():
        arrays, starts = found.arrays, found.starts
        fits &= _totals(arrays.fan_in, starts["fan_in"]) == found.lengths("sources")
        fits &= _totals(arrays.rank, starts["rank"]) == found.lengths("shape")
    if fits.all():
        fits &= _have_sound_items(found)
    return fits


def _have_sound_items(found: Stack) -> NDArray[np.bool_]:
    arrays, n = found.arrays, found.lengths("label")
    first, layers = np.repeat(found.starts["label"][:-1], n), np.repeat(n, n)
    readers = np.repeat(np.arange(len(first)) - first, arrays.fan_in)
    inside = arrays.order < layers
    seen = np.zeros(len(first), np.bool_)
    seen[(first + arrays.order)[inside]] = True
    holds = {
        "label": arrays.label < np.repeat(found.lengths("kind"), n),
        "sources": arrays.sources < readers,
        "order": inside & seen,
        "kind": are_numbers(arrays.kind),
        "groups": _is_size(arrays.groups),
        "parameters": _is_size(arrays.parameters),
        "shape": _is_size(arrays.shape),
        "feature": arrays.feature < FEATURES,
        "mass": np.isfinite(arrays.mass) & (arrays.mass >= 0),
    }
    wrong = [_totals(~items, found.starts[name]) for name, items in holds.items()]
    sound: NDArray[np.bool_] = np.sum(wrong, axis=0) == 0
    return sound


def _is_size(items: NDArray[np.int64]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (items >= 0) & (items < 1 << 62)
    return found


def _totals(items: NDArray[Any], starts: _Starts) -> NDArray[np.int64]:
    """Return (Z,) the sum of each outline's items."""
    return np.diff(np.concatenate([[0], np.cumsum(items, dtype=np.int64)])[starts])


def _starts(lengths: Sequence[int] | NDArray[np.int64]) -> _Starts:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _native(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("=")
