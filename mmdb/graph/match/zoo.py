"""Many packed outlines in one set of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.pack import Packed
from mmdb.graph.match.score import SIZES, Labels, labels_of
from mmdb.graph.match.stack import Stack, stack

_FIRST_ROOM = 64


class Sequences(NamedTuple):
    """The outlines' layers in canonical order, one outline after the other.

    Attributes:
        start: (Z + 1,) int64; place[start[z] : start[z + 1]] is outline z.
        place: uint16, the label of each layer: its place among the outline's own labels.
        label_start: (Z + 1,) int64; label[label_start[z] : label_start[z + 1]] are its own labels.
        label: int32, their places among the zoo's labels.
        counts: int64, how many of the outline's layers are of each.
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
    """Outlines to search, by key and in the order in which they were added.

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
        """Return the number of the outline with a key, or None."""
        return self._numbers.get(key)

    def add(self, key: bytes, packed: Packed) -> int:
        """Add an outline and return its number; a key that is there already keeps its outline."""
        if key not in self._numbers:
            self.extend([key], stack([packed]))
        return self._numbers[key]

    def extend(self, keys: Sequence[bytes], found: Stack) -> None:
        """Add outlines.

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
        """The arrays as they are now; they stay valid, and stay behind when outlines are added."""
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
        """Return an outline's ordinals in canonical order."""
        return self._order.filled[self._span(number)]

    def crossing(self, number: int) -> NDArray[np.uint8]:
        """Return `Packed.crossing` of an outline."""
        return self._crossing.filled[self._span(number)]

    def column(self, feature: int) -> NDArray[np.float32] | None:
        """Return (Z,) a feature of all outlines' histograms, or None where it is 0."""
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
