"""Which columns, categories and classes of one dataset are another's: by name and by value.

Positions belong to the packed form alone: two datasets may hold the same columns in another order,
or a category more, and a number's place in a row tells nothing of what it means.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from mmdb.data.arrays import Decoded, Inputs
from mmdb.data.decoding import Class, Column, Decoding, Input, Label, class_text
from mmdb.errors import InvalidInput

#: A place that the other side does not have.
MISSING = -1
#: A whole number as databases write a float or a decimal.
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e\+[0-9]{2})?")
#: What a number of a row is: its column, and its category, None for NULL, or place in the column.
Slot = tuple[str, str | int | None]


def slots_of(decoding: Decoding, given: Input) -> list[Slot]:
    """Return what each number of an input's row is, in the row's order."""
    return [(c.name, part) for c, _ in decoding.spans(given) for part in c.parts]


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


def is_one_array(decoding: Decoding, given: Input) -> bool:
    """Whether an input is one column whole: a picture, a vector, a text; its name is no matter."""
    (first, _), *further = decoding.spans(given)
    return not further and (first.transform is None or first.transform.kind == "picture")


def placed_inputs(wanted: Decoding, found: Decoding, inputs: Inputs) -> Inputs:
    """Return inputs by the places of another dataset's numbers, 0 where there is no such number.

    Inputs of other names, and what is one array in both, stay as they are.
    """
    if [given.name for given in wanted.inputs] != [given.name for given in found.inputs]:
        return inputs
    arrays = inputs if isinstance(inputs, dict) else {"": inputs}
    placed = {}
    for given, other in zip(wanted.inputs, found.inputs, strict=True):
        x = arrays[other.name]
        if not (is_one_array(wanted, given) and is_one_array(found, other)):
            there = input_places(wanted, given, found, other)
            flat = x.reshape(len(x), math.prod(x.shape[1:]))[:, there]
            x = np.where(there == MISSING, np.zeros((), x.dtype), flat).reshape(-1, *given.shape)
        placed[given.name] = x
    return placed[""] if wanted.is_one_input else placed


class Reordering:
    """Has a model read the rows of another dataset than its own."""

    def __init__(self, model: Decoding, found: Decoding) -> None:
        """Take the model's decoding, and that of the rows.

        Raises:
            InvalidInput: a column is missing, additional, or something else than the model's.
        """
        _check_columns(model, found)
        self._found = found
        self._labels = [
            (label, [other.name for other in found.labels].index(label.name))
            for label in model.labels
        ]
        same = model.inputs == found.inputs and model.features == found.features
        self.model = None if same else model  # what the rows are to be read for

    def labels(self, decoded: Decoded) -> tuple[np.ndarray, ...]:
        """Return the labels in the order of the model's targets, then weights if rows have any.

        Raises:
            InvalidInput: a row has a class that the model has never seen.
        """
        arrays = decoded.label_arrays
        labels = [
            _label_array(label, self._found.labels[place], arrays[place])
            for label, place in self._labels
        ]
        return tuple(labels + ([arrays[-1]] if self._found.is_weighted else []))


def _label_array(label: Label, found: Label, values: np.ndarray) -> np.ndarray:
    if label.classes is None:  # the classes cannot be compared as tuples: False equals 0
        return values
    assert found.classes is not None
    there = class_places(found.classes, label.classes)
    mapped: np.ndarray = there[values]
    if len(mapped) and mapped.min() == MISSING:
        raise unseen(label, found.classes[int(values[mapped.argmin()])])
    return mapped


class KnownClasses(dict[str | None, int]):
    """The place of each class of a label by the text that a database has of it, else `MISSING`.

    Of whole numbers any float or decimal is one that is equal, such as `2.00`.
    """

    def __init__(self, classes: Sequence[Class]) -> None:
        super().__init__({class_text(value): place for place, value in enumerate(classes)})
        self._is_whole = type(classes[0]) is int

    def __missing__(self, text: str | None) -> int:
        is_whole = self._is_whole and text and _NUMBER.fullmatch(text)
        value = float(text) if is_whole else 0.5  # type: ignore[arg-type]
        return self.get(str(int(value)), MISSING) if value.is_integer() else MISSING


def unseen(label: Label, value: Class) -> InvalidInput:
    """Return the error of a class that the model does not know."""
    shown = repr(value) if isinstance(value, str) else class_text(value)
    return InvalidInput(
        f"Label {label.name!r} has the value {shown}, which the model has never seen.",
        hint="Leave such rows out, or train a model on them; "
        f"it knows {listed(label.classes or ())}.",
    )


def listed(values: Sequence[Class]) -> str:
    """Return values as a hint has them, the first 20 of them."""
    shown = ", ".join(map(class_text, values[:20]))
    return f"{shown} and {len(values) - 20} more" if len(values) > 20 else shown


def _check_columns(wanted: Decoding, found: Decoding) -> None:
    """Compare columns by name.

    Raises:
        InvalidInput: see `Reordering`.
    """
    known, others = _roles(wanted), _roles(found)
    unread = {column.name for column in wanted.stored if not column.decoded_width}
    roles = {name: role for name, role in known.items() if name not in unread}
    for name, role in roles.items():
        if name not in others:
            raise _unlike(f"Column {name!r} is missing: the model has it as {role}.")
        if others[name] != role:
            raise _unlike(f"Column {name!r} is {others[name]}; the model has it as {role}.")
    further = [name for name in others if name not in known]
    if further:
        raise _unlike(f"Column {further[0]!r} is additional: the model has {', '.join(roles)}.")


def _unlike(what: str) -> InvalidInput:
    return InvalidInput(
        what,
        hint="Make a dataset whose query returns the model's columns, in any order; "
        "AS renames one, and a cast changes its type.",
    )


def _roles(decoding: Decoding) -> dict[str, str]:
    """Return what each column is, in words that are equal where it means the same."""
    return {column.name: _role(column, decoding) for column in decoding.stored} | {
        label.name: _TO_PREDICT[label.task].format(label.width) for label in decoding.labels
    }


_TO_PREDICT = {
    "classification": "a class to predict",
    "regression": "a number to predict",
    "multilabel": "{} labels to predict",
    "next_token": "the next of {} tokens to predict",
}


def _role(column: Column, decoding: Decoding) -> str:
    tokenizer = decoding.tokenizers.get(column.name)
    tokens = "" if tokenizer is None else f" of tokens {tokenizer.to_json()}"
    return kind_of(column) + tokens


def kind_of(column: Column) -> str:
    """Return what a feature's values are, in words."""
    if column.transform is not None and column.transform.source in _IN_WORDS:
        return _IN_WORDS[column.transform.source]
    if column.kind in ("categorical", "tokens"):
        return "a text"
    if column.kind == "numeric":
        return "a number"
    return f"{column.width} {'bytes' if column.kind == 'bytes' else 'numbers'}"


_IN_WORDS = {
    "moment": "a date",
    "clock": "a time of day",
    "span": "an interval",
    "picture": "a picture",
}
