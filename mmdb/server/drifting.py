"""How far the rows of a query have moved from those that a model learned from, as SQL calls it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmdb.data.assembly import Values, assemble
from mmdb.data.column_layout import zeros_and_ones
from mmdb.data.dataset import StoredDataset, dataset_of
from mmdb.data.decoding import Column, Decoding, Label, class_text
from mmdb.data.matching import MISSING, KnownClasses
from mmdb.data.query_rows import Beside, returned, scan_values
from mmdb.data.reader import read_columns
from mmdb.db.connection import Connection, Kind, Texts
from mmdb.db.queries import load
from mmdb.errors import DatasetDropped, InvalidInput, WriteConflict
from mmdb.judge.drift import Drift, corrected, errors_of, metric_chance, of_numbers, of_texts
from mmdb.server.backend import Backend
from mmdb.server.metering import Metering
from mmdb.server.model_functions import find_predictor
from mmdb.server.predictor import Predictor
from mmdb.server.sample import PredictedRows, check_numbers, read_slice

_Q = load("evaluations")
_LABEL, _WEIGHT = "mmdb label", "mmdb weight"
#: Train rows that are looked at, about: partitions are shuffled, so that the first are a sample.
_ROWS = 200_000
#: Calls of which a model's rows are kept.
_CALLS = 100
#: What a metric lacks that a column has, and the other way round.
_NOTHING = dict.fromkeys((*Drift._fields, "value_before", "value_now"))
#: When a column has drifted: it is no accident, and more than a trifle.
LEVEL, LEAST_PSI = 0.01, 0.02


def drift(backend: Backend, model: str, query: str) -> list[dict[str, Any]]:
    """Return how far each column, and what the model makes of it, has moved; drifted ones first.

    A query with the labels is compared with the rows that are held out, too. What is found is kept,
    but in a transaction that may not write.

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
    decoding = predictor.decoding
    names = [*(c.name for c in decoding.columns), *(label.name for label in decoding.labels)]
    beside = _labels_beside(decoding, returned(connection, query, names))
    held_out = _held_out(connection, predictor, dataset) if beside else None
    if held_out is None:
        beside = {}
    elif _WEIGHT not in beside:
        held_out = replace(held_out, weight=None)
    before, now = (_KeptRows(predictor, has_labels=bool(beside)) for _ in range(2))
    for part in dataset.partitions:
        if part.role == "train" and before.count < _ROWS:
            for values in read_columns(connection, part.part_id, predictor.decoding):
                before.add(values)
    samples = []
    for batch, values in scan_values(connection, predictor.decoding, query, beside):
        outputs = now.add(values)
        if beside:
            samples.append(now.add_labels(batch, outputs))
    if not now.count:
        raise InvalidInput("There are no rows to compare.", hint="The query returned none.")
    moved = []
    if held_out is not None:
        before.add_sample(held_out)
        sample = _one(samples)
        if _WEIGHT in beside:
            check_numbers({}, beside[_WEIGHT][0], sample.weight)
        moved = _metric(Metering(connection, predictor), held_out, sample)
    found = [*((*key, before.compared(key, now)._asdict()) for key in before.columns), *moved]
    p_values = corrected([one["p_value"] for _, _, one in found])
    rows = [
        {"column_name": name, "role": role, **_NOTHING, **one, "p_value": p_value}
        for (name, role, one), p_value in zip(found, p_values, strict=True)
    ]
    for row in rows:
        is_much = row["psi"] is None or row["psi"] >= LEAST_PSI
        row["drifted"] = row["p_value"] < LEVEL and is_much
    rows.sort(key=lambda row: (not row["drifted"], -(row["psi"] or 0.0)))
    _keep(connection, predictor, now.count, rows)
    return rows


def _keep(
    connection: Connection, predictor: Predictor, count: int, rows: list[dict[str, Any]]
) -> None:
    """Record what was found, where the transaction may write."""
    if connection.engine == "postgres" and not connection.rows(_Q.may_keep)[0]["may"]:
        return
    told = {"model_id": predictor.model.model_id, "checked_at": datetime.now(UTC)}
    told |= {"row_count": count}
    with connection.transaction():
        connection.run_many(
            _Q.add_drift, [{**told, "ordinal": k, **row} for k, row in enumerate(rows)]
        )
    with suppress(WriteConflict), connection.transaction():  # another call forgets the same
        connection.run(_Q.forget_drifts, model_id=told["model_id"], kept=_CALLS)


def _labels_beside(decoding: Decoding, names: set[str]) -> dict[str, Beside]:
    """Return what is read of a query beside features: nothing where a label is not among `names`.

    Labels that are NULL are not known yet, so that the query may return some.
    """
    if not all(label.name in names for label in decoding.labels):
        return {}
    kinds: dict[str, Kind] = {"classification": "nullable_text", "regression": "number"}
    beside: dict[str, Beside] = {
        f"{_LABEL} {place}": (label.name, kinds.get(label.task, "reals"))
        for place, label in enumerate(decoding.labels)
    }
    weight = next((c.name for c in decoding.columns if c.kind == "weight"), None)
    return beside | ({_WEIGHT: (weight, "double")} if weight in names else {})


def _held_out(
    connection: Connection, predictor: Predictor, dataset: StoredDataset
) -> PredictedRows | None:
    """Return rows that the model has not learned from; None where the dataset has none."""
    roles = {part.role for part in dataset.slices}
    role = next((role for role in ("validation", "test") if role in roles), None)
    return None if role is None else read_slice(connection, predictor, dataset, role)


def _metric(
    metering: Metering, before: PredictedRows, now: PredictedRows
) -> list[tuple[str, str, dict[str, float]]]:
    """Return how the run's metric has moved, as a row; none where it is not defined."""
    name = metering.main
    if name in metering.of_classes and before.row_count and now.row_count:
        before, now = _of_common_classes(metering.of_classes[name], (before, now))
    both = _one([before, now])
    values = [metering(one).get(name) if one.row_count else None for one in (before, now)]
    first, second = values
    if first is None or second is None:
        return []
    chance = metric_chance(
        (before.row_count, now.row_count),
        second - first,
        lambda places: metering(both, places).get(name),
    )
    return [(name, "metric", {"value_before": first, "value_now": second, "p_value": chance})]


def _of_common_classes(
    target: int, samples: tuple[PredictedRows, PredictedRows]
) -> Iterator[PredictedRows]:
    """Yield the rows of classes that both samples have, as if a model knew no other class."""
    size = samples[0].outputs[target].shape[-1]
    there = [torch.bincount(one.labels[target], one.weight, size) > 0 for one in samples]
    common = torch.stack(there).all(0)
    for one in samples:
        some = one.at(common[one.labels[target]].nonzero()[:, 0])
        outputs = [*some.outputs]
        outputs[target] = outputs[target].masked_fill(~common, -torch.inf)
        yield replace(some, outputs=tuple(outputs))


#: Name and role of a column.
_Key = tuple[str, str]


class _KeptRows:
    """Keeps of rows each column's numbers, or how many rows have each text."""

    def __init__(self, predictor: Predictor, *, has_labels: bool) -> None:
        self._predictor, self.count = predictor, 0
        decoding = predictor.decoding
        self.columns: dict[_Key, list[np.ndarray] | Counter[str | None]] = {}
        for column in decoding.features:
            self.columns[column.name, "feature"] = Counter() if _has_texts(column) else []
        for label in decoding.labels:
            for role in ("prediction", "label") if has_labels else ("prediction",):
                self.columns[label.name, role] = [] if label.classes is None else Counter()
            if has_labels:
                self.columns[label.name, "relation"] = []

    def add(self, values: Mapping[str, Values]) -> tuple[Tensor, ...]:
        """Add the features of rows and what the model predicts of them; return its outputs."""
        decoding = self._predictor.decoding
        for column in decoding.features:
            self._add((column.name, "feature"), _measured(column, values[column.name]))
        inputs = assemble(decoding, values)
        if isinstance(inputs, np.ndarray):  # a block's memory, of which torch would warn
            inputs = np.require(inputs, requirements="W")
        outputs = self._predictor.outputs(inputs)
        for label, output in zip(decoding.labels, outputs, strict=True):
            self._add((label.name, "prediction"), self._predicted(label, output))
        self.count += len(outputs[0])
        return outputs

    def add_labels(self, batch: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> PredictedRows:
        """Add the labels of a query's rows; return the rows whose labels the model knows."""
        labels, known = [], torch.ones(len(outputs[0]), dtype=torch.bool)
        others: dict[_Key, list[str]] = {}
        for place, label in enumerate(self._predictor.decoding.labels):
            values = batch[f"{_LABEL} {place}"]
            if label.classes is None:
                if label.task == "multilabel":
                    values = zeros_and_ones(label.name, values)
                y = torch.from_numpy(np.require(values, np.float32, "W"))
                known &= y.isfinite().reshape(len(y), -1).all(1)
            else:
                places = KnownClasses(label.classes)
                y = torch.tensor([places[text] for text in values], dtype=torch.int64)
                known &= y >= 0
                new = [text for text in values if text is not None and places[text] == MISSING]
                others[label.name, "label"] = new
            labels.append(y)
        weight = None
        if _WEIGHT in batch:
            weight = torch.from_numpy(np.require(batch[_WEIGHT], requirements="W"))
        sample = PredictedRows(outputs=outputs, labels=tuple(labels), weight=weight)
        if not known.all():
            sample = sample.at(known.nonzero()[:, 0])
        self.add_sample(sample)
        for key, texts in others.items():
            self._add(key, texts)
        return sample

    def add_sample(self, sample: PredictedRows) -> None:
        """Add labels, and how far the model is from them."""
        for label, output, y in zip(
            self._predictor.decoding.labels, sample.outputs, sample.labels, strict=True
        ):
            values: Values = (y if y.ndim == 1 else y.mean(1)).numpy()
            if label.classes is not None:
                values = Texts([class_text(one) for one in label.classes], y.numpy())
            self._add((label.name, "label"), values)
            self._add((label.name, "relation"), errors_of(label.task, output, y))

    def _predicted(self, label: Label, output: Tensor) -> Values:
        if label.classes is None:
            return output.double().reshape(len(output), -1).mean(1).numpy()
        is_first = label is self._predictor.decoding.labels[0]
        guesses = self._predictor.guesses(output) if is_first else output.argmax(1)
        names = [*map(class_text, label.classes), None]  # of NaN nothing is predicted: NULL
        guesses = guesses.masked_fill(output.isnan().any(1), len(label.classes))
        return Texts(names, guesses.numpy())

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

    def compared(self, key: _Key, now: _KeptRows) -> Drift:
        """Return how far a column of other rows is from its own."""
        own, other = self.columns[key], now.columns[key]
        if isinstance(own, Counter) and isinstance(other, Counter):
            return of_texts(+own, +other)
        return of_numbers(np.concatenate([[], *own]), np.concatenate([[], *other]))


def _one(samples: Sequence[PredictedRows]) -> PredictedRows:
    weights = [one.weight for one in samples if one.weight is not None]
    return PredictedRows(
        outputs=tuple(map(torch.cat, zip(*(one.outputs for one in samples), strict=True))),
        labels=tuple(map(torch.cat, zip(*(one.labels for one in samples), strict=True))),
        weight=torch.cat(weights) if weights else None,
    )


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
