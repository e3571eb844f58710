"""Many packed outlines in one set of arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.kinds import weight_of
from mmdb.graph.match.pack import Packed
from mmdb.graph.match.score import SIZES, Labels, form_of, logs_of

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
        self._labels: dict[tuple[int, int, tuple[int, ...], int], int] = {}
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
        if key in self._numbers:
            return self._numbers[key]
        number = len(self.keys)
        self._place.extend(packed.label[packed.order])
        self._order.extend(packed.order)
        self._crossing.extend(packed.crossing)
        self._start.extend([self._place.used])
        self._label.extend([self._label_number(label) for label in packed.distinct])
        self._counts.extend(packed.counts)
        self._label_start.extend([self._label.used])
        self._weight.extend([packed.labels.weight @ packed.counts])
        self._parameters.extend([packed.labels.parameters @ packed.counts])
        self._add_histogram(number, packed)
        self._numbers[key] = number
        self.keys.append(key)
        return number

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

    def _label_number(self, label: tuple[int, int, tuple[int, ...], int]) -> int:
        if label not in self._labels:
            kind, groups, shape, parameters = label
            self._labels[label] = len(self._labels)
            self._form.extend([form_of(kind, len(shape))])
            self._label_weight.extend([weight_of(kind)])
            self._logs.extend(logs_of(groups, shape)[None])
            self._label_parameters.extend([parameters])
        return self._labels[label]

    def _add_histogram(self, number: int, packed: Packed) -> None:
        if number == self._room:
            self._room *= 2
            for feature, column in self._columns.items():
                self._columns[feature] = np.zeros(self._room, np.float32)
                self._columns[feature][:number] = column
        for feature, mass in zip(packed.feature.tolist(), packed.mass.tolist(), strict=True):
            if feature not in self._columns:
                self._columns[feature] = np.zeros(self._room, np.float32)
            self._columns[feature][number] = mass


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
