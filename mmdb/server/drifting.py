"""How far the rows of a query have moved from those that a model learned from, as SQL calls it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from mmdb.data.assembly import Values, assemble
from mmdb.data.dataset import dataset_of
from mmdb.data.decoding import Column, Label, class_text
from mmdb.data.query_rows import scan_values
from mmdb.data.reader import read_columns
from mmdb.db.connection import Texts
from mmdb.errors import DatasetDropped, InvalidInput
from mmdb.judge.drift import Drift, corrected, of_numbers, of_texts
from mmdb.server.backend import Backend
from mmdb.server.model_functions import find_predictor
from mmdb.server.predictor import Predictor

#: Train rows that are looked at, about: partitions are shuffled, so that the first are a sample.
_ROWS = 200_000
#: When a column has drifted: it is no accident, and more than a trifle.
LEVEL, LEAST_PSI = 0.01, 0.02


def drift(backend: Backend, model: str, query: str) -> list[dict[str, Any]]:
    """Return how far each feature, and each prediction, has moved, those that drifted first.

    Args:
        query: a SELECT with the model's features.
    Raises:
        ModelNotFound, DatasetDropped
        InvalidInput: the query returns no rows, or the dataset's rows cannot be compared.
        QueryError and others: see `scan_values`.
    """
    predictor, connection = find_predictor(backend, model), backend.connection
    assert predictor.model.dataset_id is not None  # as `find_predictor` has found
    dataset = dataset_of(connection, predictor.model.dataset_id)
    if dataset.dropped:
        raise DatasetDropped(f"Dataset {dataset.name!r}, which the model learned from, is dropped.")
    before, now = _Rows(predictor), _Rows(predictor)
    for part in dataset.partitions:
        if part.role == "train" and before.count < _ROWS:
            before.add_all(read_columns(connection, part.part_id, predictor.decoding))
    now.add_all(given for _, given in scan_values(connection, predictor.decoding, query, {}))
    if not now.count:
        raise InvalidInput("There are no rows to compare.", hint="The query returned none.")
    found = [(*key, before.compared(key, now)) for key in before.columns]
    p_values = corrected([one.p_value for _, _, one in found])
    rows = [
        {
            "column_name": name,
            "role": role,
            **one._asdict(),
            "p_value": p_value,
            "drifted": p_value < LEVEL and one.psi >= LEAST_PSI,
        }
        for (name, role, one), p_value in zip(found, p_values, strict=True)
    ]
    return sorted(rows, key=lambda row: (not row["drifted"], -row["psi"]))


#: Name and role of a column.
_Key = tuple[str, str]


class _Rows:
    """What is kept of rows: each column's numbers, or how many rows have each text."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor, self.count = predictor, 0
        decoding = predictor.decoding
        self.columns: dict[_Key, list[np.ndarray] | Counter[str | None]] = {}
        for column in decoding.features:
            self.columns[column.name, "feature"] = Counter() if _has_texts(column) else []
        for label in decoding.labels:
            self.columns[label.name, "prediction"] = [] if label.classes is None else Counter()

    def add_all(self, batches: Iterable[Mapping[str, Values]]) -> None:
        """Add the features of rows, and what the model predicts of them."""
        decoding = self._predictor.decoding
        for values in batches:
            for column in decoding.features:
                self._add((column.name, "feature"), _measured(column, values[column.name]))
            inputs = assemble(decoding, values)
            if isinstance(inputs, np.ndarray):  # a block's memory, of which torch would warn
                inputs = np.require(inputs, requirements="W")
            outputs = self._predictor.outputs(inputs)
            for label, output in zip(decoding.labels, outputs, strict=True):
                self._add((label.name, "prediction"), self._predicted(label, output))
            self.count += len(outputs[0])

    def _predicted(self, label: Label, output: Tensor) -> Values:
        if label.classes is None:
            return output.double().reshape(len(output), -1).mean(1).numpy()
        is_first = label is self._predictor.decoding.labels[0]
        guesses = self._predictor.guesses(output) if is_first else output.argmax(1)
        return Texts([class_text(one) for one in label.classes], guesses.numpy())

    def _add(self, key: _Key, values: Values) -> None:
        kept = self.columns[key]
        if isinstance(kept, list):
            assert isinstance(values, np.ndarray)
            kept.append(values.astype(np.float64, copy=False))
        elif isinstance(values, Texts):
            counts = np.bincount(values.places, minlength=len(values.distinct)).tolist()
            for text, count in zip(values.distinct, counts, strict=True):
                kept[text] += count
        else:
            kept.update(values)

    def compared(self, key: _Key, now: _Rows) -> Drift:
        """Return how far a column of other rows is from its own."""
        own, other = self.columns[key], now.columns[key]
        if isinstance(own, Counter) and isinstance(other, Counter):
            return of_texts(+own, +other)
        return of_numbers(np.concatenate([[], *own]), np.concatenate([[], *other]))


def _has_texts(column: Column) -> bool:
    given = column.transform
    return given is not None and given.source == "text" and given.kind != "words"


def _measured(column: Column, values: Values) -> Values:
    """Return a number of each row where a column has several, or long texts: mean, or length."""
    if _has_texts(column):
        return values
    if not isinstance(values, np.ndarray):
        lengths = [np.nan if text is None else len(text) for text in _texts(values)]
        return np.array(lengths, np.float64)
    if column.kind == "tokens":
        return np.asarray(np.count_nonzero(values, axis=1))
    return values if values.ndim == 1 else values.reshape(len(values), -1).mean(1)


def _texts(values: Sequence[str | None]) -> Sequence[str | None]:
    if isinstance(values, Texts):
        return [values.distinct[place] for place in values.places]
    return values
