"""Which columns, categories and classes of one dataset are another's: by name and by value.

Positions belong to the packed form alone: two datasets may hold the same columns in another order,
or a category more, and a number's place in a row tells nothing of what it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mmdb.data.decoding import Class, Column, Decoding, Input

#: A place that the other side does not have.
MISSING = -1
#: What a number of a row is: its column, and its category or its place in the column.
Slot = tuple[str, str | int]


def slots_of(decoding: Decoding, given: Input) -> list[Slot]:
    """Return what each number of an input's row is, in the row's order."""
    return [slot for column, _ in decoding.spans(given) for slot in _column_slots(column)]


def _column_slots(column: Column) -> Iterator[Slot]:
    values: Sequence[str | int] = column.categories or range(column.decoded_width)
    return ((column.name, value) for value in values)


def places(wanted: Sequence[object], found: Sequence[object]) -> np.ndarray:
    """Return where each of `wanted` is in `found`, int64 (len(wanted),); `MISSING` where it is not.

    >>> places(["a", "b", "c"], ["c", "a"])
    array([ 1, -1,  0])
    """
    at = {_key(value): place for place, value in enumerate(found)}
    return np.array([at.get(_key(value), MISSING) for value in wanted], np.int64)


def _key(value: object) -> tuple[type, object]:
    return type(value), value  # True is not 1


def input_places(wanted: Decoding, given: Input, found: Decoding, other: Input) -> np.ndarray:
    """Return, for each number of a row of `given`, its place in a row of `other`, or `MISSING`."""
    return places(slots_of(wanted, given), slots_of(found, other))


def class_places(wanted: Sequence[Class], found: Sequence[Class]) -> np.ndarray:
    """Return, for each of the classes `wanted`, its place among those of `found`, or `MISSING`."""
    return places(wanted, found)
