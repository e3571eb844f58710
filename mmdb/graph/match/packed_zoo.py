"""Many packed skeletons: read from rows at once, and held in one set of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.pack import DTYPES, HEADER, MOST_LAYERS, PackedSkeleton
from mmdb.graph.match.score import FEATURES, SIZES, Labels, are_numbers, labels_of

#: CRC-32 of bytes with their own CRC-32, little-endian, behind them.
_WHOLE = 0x2144DF1C
_COUNT = np.dtype("<u4")

_Starts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """Packed skeletons, Z of them.

    Attributes:
        arrays: each one's, one after the other.
        starts: (Z + 1,) where each one's begin, by the array's name.
    """

    arrays: PackedSkeleton
    starts: Mapping[str, _Starts]

    def __len__(self) -> int:
        return len(self.starts["label"]) - 1

    def __getitem__(self, number: int) -> PackedSkeleton:
        return PackedSkeleton(
            **{
                name: getattr(self.arrays, name)[slice(*starts[number : number + 2].tolist())]
                for name, starts in self.starts.items()
            }
        )

    def lengths(self, name: str) -> NDArray[np.int64]:
        """Return (Z,) how many items of an array each skeleton has."""
        return np.diff(self.starts[name])


def stack(outlines: Iterable[PackedSkeleton]) -> Stack:
    """Return skeletons as one."""
    given = list(outlines)
    pieces = {name: [getattr(one, name) for one in given] for name in DTYPES}
    return Stack(
        arrays=PackedSkeleton(
            **{
                name: np.concatenate([np.empty(0, _native(DTYPES[name])), *found])
                for name, found in pieces.items()
            }
        ),
        starts={name: _starts([len(one) for one in found]) for name, found in pieces.items()},
    )


def unpack(rows: Sequence[bytes]) -> tuple[NDArray[np.int64], Stack]:
    """Return what `PackedSkeleton.to_bytes` wrote, and the numbers of those rows.

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
    return Stack(arrays=PackedSkeleton(**arrays), starts=starts)


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
    """Return (Z,) the sum of each skeleton's items."""
    return np.diff(np.concatenate([[0], np.cumsum(items, dtype=np.int64)])[starts])


def _starts(lengths: Sequence[int] | NDArray[np.int64]) -> _Starts:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _native(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("=")


_FIRST_ROOM = 64


class Sequences(NamedTuple):
    """The skeletons' layers in canonical order, one skeleton after the other.

    Attributes:
        start: (Z + 1,) int64; place[start[z] : start[z + 1]] is skeleton z.
        place: uint16, the label of each layer: its place among the skeleton's own labels.
        label_start: (Z + 1,) int64; label[label_start[z] : label_start[z + 1]] are its own labels.
        label: int32, their places among the zoo's labels.
        counts: int64, how many of the skeleton's layers are of each.
        weight, parameters: (Z,) float64, of all its layers, in quarters; elements.
        labels: the zoo's.
    """

    start: NDArray[np.int64]
    place: NDArray[np.uint16]
    label_start: NDArray[np.int64]
    label: NDArray[np.int32]
    counts: NDArray[np.int64]
    weight: NDArray[np.float64]
    parameters: NDArray[np.float64]
    labels: Labels


class PackedZoo:
    """Skeletons to search, by key and in the order in which they were added.

    A key is the hash of an architecture. Nothing is removed: a search can be told what to look at.
    """

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._labels: dict[bytes, int] = {}
        self._start, self._label_start = _Grown(np.int64), _Grown(np.int64)
        self._start.extend([0])
        self._label_start.extend([0])
        self._place, self._order = _Grown(np.uint16), _Grown(np.uint16)
        self._crossing = _Grown(np.uint8)
        self._label, self._counts = _Grown(np.int32), _Grown(np.int64)
        self._weight, self._parameters = _Grown(np.float64), _Grown(np.float64)
        self._form, self._label_weight = _Grown(np.int64), _Grown(np.int64)
        self._logs, self._label_parameters = _Grown(np.float64, SIZES), _Grown(np.float64)
        self._columns: dict[int, NDArray[np.float32]] = {}
        self._room = _FIRST_ROOM

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: bytes) -> bool:
        return key in self._numbers

    def find(self, key: bytes) -> int | None:
        """Return the number of the skeleton with a key, or None."""
        return self._numbers.get(key)

    def add(self, key: bytes, packed: PackedSkeleton) -> int:
        """Add a skeleton and return its number; a key that is there already keeps its skeleton."""
        if key not in self._numbers:
            self.extend([key], stack([packed]))
        return self._numbers[key]

    def extend(self, keys: Sequence[bytes], found: Stack) -> None:
        """Add skeletons.

        Args:
            keys: different ones that are not there yet.
        """
        arrays = found.arrays
        layers, labels = found.starts["label"], found.starts["kind"]
        first = np.repeat(layers[:-1], found.lengths("label"))
        self._start.extend(self._place.used + layers[1:])
        self._place.extend(arrays.label[first + arrays.order])
        self._order.extend(arrays.order)
        self._crossing.extend(arrays.crossing)
        own = np.repeat(labels[:-1], found.lengths("label")) + arrays.label
        counts = np.bincount(own, minlength=len(arrays.kind))
        owner = np.repeat(np.arange(len(found)), found.lengths("kind"))
        compared = labels_of(
            arrays.kind, arrays.groups, arrays.rank, arrays.shape, arrays.parameters
        )
        self._label_start.extend(self._label.used + labels[1:])
        self._label.extend(self._label_numbers(compared))
        self._counts.extend(counts)
        self._weight.extend(np.bincount(owner, compared.weight * counts, len(found)))
        self._parameters.extend(np.bincount(owner, compared.parameters * counts, len(found)))
        self._add_histograms(found)
        self._numbers |= zip(keys, range(len(self), len(self) + len(keys)), strict=True)
        self.keys += keys

    @property
    def sequences(self) -> Sequences:
        """The arrays as they are now; they stay valid, and stay behind when skeletons are added."""
        return Sequences(
            start=self._start.filled,
            place=self._place.filled,
            label_start=self._label_start.filled,
            label=self._label.filled,
            counts=self._counts.filled,
            weight=self._weight.filled,
            parameters=self._parameters.filled,
            labels=Labels(
                form=self._form.filled,
                weight=self._label_weight.filled,
                logs=self._logs.filled,
                parameters=self._label_parameters.filled,
            ),
        )

    def order(self, number: int) -> NDArray[np.uint16]:
        """Return a skeleton's ordinals in canonical order."""
        return self._order.filled[self._span(number)]

    def crossing(self, number: int) -> NDArray[np.uint8]:
        """Return `PackedSkeleton.crossing` of a skeleton."""
        return self._crossing.filled[self._span(number)]

    def column(self, feature: int) -> NDArray[np.float32] | None:
        """Return (Z,) a feature of all skeletons' histograms, or None where it is 0."""
        found = self._columns.get(feature)
        return None if found is None else found[: len(self)]

    @property
    def size_bytes(self) -> int:
        """Bytes of the arrays, with the room that is left in them."""
        grown = [value for value in vars(self).values() if isinstance(value, _Grown)]
        return sum(g.size_bytes for g in grown) + sum(c.nbytes for c in self._columns.values())

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.keys)

    def _span(self, number: int) -> slice:
        return slice(*self._start.filled[number : number + 2].tolist())

    def _label_numbers(self, found: Labels) -> NDArray[np.int32]:
        """Return the places of labels among the zoo's; new ones are added."""
        rows = np.column_stack([found.form, found.parameters, found.logs])
        before = len(self._labels)
        names = rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel().tolist()
        numbers = np.array(
            [self._labels.setdefault(name, len(self._labels)) for name in names], np.int32
        )
        late = np.flatnonzero(numbers >= before)
        new = late[np.unique(numbers[late], return_index=True)[1]]
        self._form.extend(found.form[new])
        self._label_weight.extend(found.weight[new])
        self._logs.extend(found.logs[new])
        self._label_parameters.extend(found.parameters[new])
        return numbers

    def _add_histograms(self, found: Stack) -> None:
        count = len(self)
        if count + len(found) > self._room:
            self._room = max(count + len(found), 2 * self._room)
            for feature, column in self._columns.items():
                self._columns[feature] = np.zeros(self._room, np.float32)
                self._columns[feature][:count] = column[:count]
        owner = count + np.repeat(np.arange(len(found)), found.lengths("feature"))
        by_feature = np.argsort(found.arrays.feature, kind="stable")
        features, begins = np.unique(found.arrays.feature[by_feature], return_index=True)
        for feature, here in zip(features.tolist(), np.split(by_feature, begins[1:]), strict=False):
            if feature not in self._columns:
                self._columns[feature] = np.zeros(self._room, np.float32)
            self._columns[feature][owner[here]] = found.arrays.mass[here]


class _Grown:
    """An array with room for more."""

    def __init__(self, dtype: type[np.generic], *inner: int) -> None:
        self._data: NDArray[Any] = np.zeros((_FIRST_ROOM, *inner), dtype)
        self.used = 0

    @property
    def filled(self) -> NDArray[Any]:
        return self._data[: self.used]

    @property
    def size_bytes(self) -> int:
        return self._data.nbytes

    def extend(self, items: Any) -> None:
        found = np.asarray(items, self._data.dtype)
        end = self.used + len(found)
        if end > len(self._data):
            grown = np.zeros((max(end, 2 * len(self._data)), *self._data.shape[1:]), found.dtype)
            grown[: self.used] = self.filled
            self._data = grown
        self._data[self.used : end] = found
        self.used = end
