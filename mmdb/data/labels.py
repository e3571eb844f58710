"""What the labels of a dataset turn out to be, learned while its rows are scanned."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from mmdb.data.column_layout import Field
from mmdb.data.decoding import Class, Label
from mmdb.errors import InvalidOption, OneClass, TooManyCategories

#: Whole numbers that float32 holds exactly.
EXACT = 2**24
#: Different whole numbers that are classes although nobody says so; more may be an amount.
GUESSED_CLASSES = 100


class LabelValues:
    """Takes the values of one label column, and knows its classes in the end."""

    def __init__(self, field: Field, max_classes: int) -> None:
        self._field, self._limit = field, max_classes
        self._classes: set[int] = set()

    def take(self, values: np.ndarray) -> np.ndarray:
        """Return a batch's values as they are kept: numbers, classes, or 0 and 1.

        Args:
            values: (n,), or (n, width) of several labels.
        Raises:
            InvalidOption: they do not fit the task. TooManyCategories
        """
        if self._field.task == "classification":
            classes = values if values.dtype == np.int64 else self._whole(values)
            self._learn(classes)
            return classes
        return self._zeros_and_ones(values) if self._field.task == "multilabel" else values

    def _whole(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            whole = (np.rint(values) == values) & (np.abs(values) <= EXACT)
        if not whole.all():
            raise InvalidOption(
                f"Label {self._field.name!r} holds {values[~whole][0]}, which is no class.",
                hint="A classification of floats needs whole numbers; cast or round them.",
            )
        return values.astype(np.int64)

    def _learn(self, values: np.ndarray) -> None:
        self._classes.update(np.unique(values).tolist())
        if self._field.is_guessed and len(self._classes) > GUESSED_CLASSES:
            said = {"tasks": {self._field.name: "regression"}}
            raise TooManyCategories(
                f"Label {self._field.name!r} holds more than {GUESSED_CLASSES} different whole "
                "numbers, and the options do not say whether these are classes or amounts.",
                hint=f'Pass options {json.dumps(said)}, or "classification" in its place.',
            )
        if len(self._classes) > self._limit:
            raise TooManyCategories(
                f"Label {self._field.name!r} has more than {self._limit} classes.",
                hint='Pass the option "task": "regression", or raise max_classes.',
            )

    def _zeros_and_ones(self, values: np.ndarray) -> np.ndarray:
        other = values[(values != 0) & (values != 1)]
        if len(other):
            raise InvalidOption(
                f"Label {self._field.name!r} holds {other[0]}; several labels are each 0 or 1.",
                hint="An array or byte string as a label says of each label whether it holds.",
            )
        return values.astype(np.uint8)

    def label(self, width: int, texts: Sequence[str]) -> Label:
        """Return what the column is.

        Args:
            width: values of a row.
            texts: the distinct ones, of a column of texts.
        Raises:
            OneClass
        """
        task = self._field.task
        assert task is not None
        classes = self._found(texts) if task == "classification" else None
        if classes is not None and len(classes) < 2:
            raise OneClass(f"Label {self._field.name!r} has the single class {classes[0]!r}.")
        return Label(name=self._field.name, task=task, width=width, classes=classes)

    def _found(self, texts: Sequence[str]) -> tuple[Class, ...]:
        if self._field.scanned == "text":
            return tuple(sorted(texts))
        values = sorted(self._classes)
        return tuple(map(bool, values)) if self._field.type == "boolean" else tuple(values)


class ClassCounts:
    """Counts the classes of rows whose codes are final, for weights of the loss."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self._counts = {
            label.name: np.zeros(label.target.size, np.int64)
            for label in labels
            if label.task != "regression"
        }

    def add(self, name: str, values: np.ndarray) -> None:
        """Count rows of a label: class indices (n, 1), or 0 and 1 (n, size)."""
        if name not in self._counts:
            return
        counts = self._counts[name]
        if values.dtype == np.uint8:
            counts += values.sum(0, dtype=np.int64)
        else:
            counts += np.bincount(values[:, 0], minlength=len(counts))

    def by_label(self) -> dict[str, list[int]]:
        """Return rows by class, or with each label, for each label that is no regression."""
        return {name: counts.tolist() for name, counts in self._counts.items()}
