"""Rows whose labels are known, with what a model says of them: of a dataset, or of a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmdb.data.assembly import Values, assemble
from mmdb.data.column_layout import SPLIT, check_finite, check_weights, zeros_and_ones
from mmdb.data.dataset import StoredDataset, dataset_of, find_dataset
from mmdb.data.decoding import Decoding, Label
from mmdb.data.matching import MISSING, KnownClasses, Reordering, unseen
from mmdb.data.names import is_dataset
from mmdb.data.pack import next_tokens
from mmdb.data.packing import in_order, packed
from mmdb.data.query import parse_select
from mmdb.data.query_rows import KEY, Beside, returned, scan_values
from mmdb.data.reader import read_partition
from mmdb.db.connection import Connection, Kind
from mmdb.errors import DatasetDropped, InvalidInput, InvalidOption
from mmdb.messages import show
from mmdb.server.predictor import Predictor

_LABEL, _WEIGHT, _BY = "mmdb label", "mmdb weight", "mmdb by"
_ROW, _ROWS = "mmdb row", '"mmdb rows"'
#: How a label of a query arrives, by its task.
_KINDS: dict[str, Kind] = {"classification": "text", "regression": "double", "multilabel": "reals"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRows:
    """Rows with what a model says of them."""

    outputs: tuple[Tensor, ...]  # of each target (n, size)
    labels: tuple[Tensor, ...]  # of each target; see `mmdb.data.decoding.Target`
    weight: Tensor | None = None  # float64 (n,)
    keys: Sequence[str] = ()
    by: Sequence[str | None] = ()
    values: Mapping[str, Values] = field(default_factory=dict)  # of the features, where asked for
    dataset: StoredDataset | None = None
    slice: str | None = None

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return len(self.labels[0])

    def at(self, places: Tensor) -> PredictedRows:
        """Return outputs, labels and weights of the rows at some places, int64 (n,)."""
        return PredictedRows(
            outputs=tuple(array[places] for array in self.outputs),
            labels=tuple(array[places] for array in self.labels),
            weight=None if self.weight is None else self.weight[places],
        )


def read_sample(
    connection: Connection,
    predictor: Predictor,
    data: str,
    *,
    slice: str | None = None,
    by: str | None = None,
    key: str | None = None,
    has_values: bool = False,
) -> PredictedRows:
    """Return the rows of a dataset, by name, or of a SELECT that has the labels.

    Args:
        slice: of a dataset; None: validation, or all rows where it has none.
        by: a column of the SELECT whose values are kept. key: likewise, as `keys`.
    Raises:
        InvalidOption, DatasetNotFound, DatasetDropped
        InvalidInput: there are no rows, or a label is none that the model knows.
        QueryError and others: see `scan_values`.
    """
    if is_dataset(data):
        if by is not None or key is not None or has_values:
            raise InvalidOption(
                f"Rows of dataset {data!r} are read without other columns.",
                hint="Pass a SELECT: the query of the dataset, or any that has label and features.",
            )
        found = read_slice(connection, predictor, find_dataset(connection, data), slice)
    elif slice is not None:
        raise InvalidOption("A query has no slices.", hint="Say WHERE in it.")
    elif predictor.decoding.task == "next_token":
        found = _of_texts(connection, predictor, data, by)
    else:
        found = _of_query(connection, predictor, data, by, key, has_values)
    if not found.row_count:
        raise InvalidInput("There are no rows to judge by.", hint="The query returned none.")
    return found


def read_slice(
    connection: Connection, predictor: Predictor, found: StoredDataset, slice: str | None
) -> PredictedRows:
    """Return the rows of a dataset's slice; None: validation, or all rows where it has none."""
    if found.dropped:
        raise DatasetDropped(f"Dataset {found.name!r} has been dropped.")
    ordered = Reordering(predictor.decoding, found.decoding)
    held_out = [part for part in found.slices if part.role == (slice or "validation")]
    if slice is not None and not held_out:
        raise InvalidOption(
            f"Dataset {found.name!r} has no slice {show(slice)}.",
            hint=f"It has {', '.join(sorted({part.role for part in found.slices}))}.",
        )
    outputs, labels = [], []
    for part in held_out or found.partitions:
        decoded = read_partition(connection, part.part_id, part.content_hash, ordered.model)
        labels.append(tuple(map(torch.from_numpy, ordered.labels(decoded))))
        outputs.append(predictor.outputs_at(decoded.inputs, labels[-1]))
    arrays = _joined(labels)
    count = len(predictor.decoding.labels)
    return PredictedRows(
        outputs=_joined(outputs),
        labels=arrays[:count],
        weight=arrays[count].double() if len(arrays) > count else None,
        dataset=found,
        slice=(slice or "validation") if held_out else None,
    )


def same_rows(
    connection: Connection, predictors: Sequence[Predictor], data: str
) -> list[PredictedRows]:
    """Return the rows of both models in one order.

    A query may return its rows in another one each time: they are ordered by all that they hold, so
    that those which change places are equal.

    Raises:
        InvalidInput: the query returns other rows each time.
    """
    if is_dataset(data):
        return [read_sample(connection, p, data) for p in predictors]
    if predictors[0].decoding.task == "next_token":
        return _same_texts([read_sample(connection, p, data) for p in predictors])
    select, _ = parse_select(data, connection.engine)
    # The alias is no name of a column: such a one would stand for the column, not for the row.
    named = f'SELECT {_ROWS}.*, md5(CAST({_ROWS} AS text)) AS "{_ROW}" FROM ({select}\n) AS {_ROWS}'
    found = [read_sample(connection, p, named, key=_ROW) for p in predictors]
    orders = [sorted(range(one.row_count), key=one.keys.__getitem__) for one in found]
    first, second = ([one.keys[k] for k in order] for one, order in zip(found, orders, strict=True))
    if first != second:
        raise InvalidInput(
            "The query returns other rows each time that it is asked.",
            hint="Keep its rows in a table, and compare the models on this.",
        )
    return [one.at(torch.tensor(order)) for one, order in zip(found, orders, strict=True)]


def _same_texts(samples: Sequence[PredictedRows]) -> list[PredictedRows]:
    """Return the rows that texts become, in the order of their tokens.

    Raises:
        InvalidInput: they become others for one model than for the other.
    """
    tokens = [sample.labels[0].numpy() for sample in samples]
    orders = [np.lexsort(array.T[::-1]) for array in tokens]
    first, second = (array[order] for array, order in zip(tokens, orders, strict=True))
    if not np.array_equal(first, second):
        raise InvalidInput(
            "The texts do not become the same rows of tokens for both models.",
            hint="Compare models of one dataset, on texts that are in a table.",
        )
    return [one.at(torch.from_numpy(order)) for one, order in zip(samples, orders, strict=True)]


def _of_query(
    connection: Connection,
    predictor: Predictor,
    query: str,
    by: str | None,
    key: str | None,
    has_values: bool,
) -> PredictedRows:
    decoding = predictor.decoding
    beside: dict[str, Beside] = {
        f"{_LABEL} {place}": (label.name, _KINDS[label.task])
        for place, label in enumerate(decoding.labels)
    }
    weighs = [column.name for column in decoding.columns if column.kind == "weight"]
    weight = next(iter(returned(connection, query, weighs)), None)
    further: dict[str, tuple[str | None, Kind]] = {
        _WEIGHT: (weight, "double"),
        _BY: (by, "nullable_text"),
        KEY: (key, "text"),
    }
    beside |= {alias: (name, kind) for alias, (name, kind) in further.items() if name is not None}
    outputs, labels, others, values = [], [], [], []
    for batch, given in scan_values(connection, decoding, query, beside):
        outputs.append(predictor.outputs(assemble(decoding, given)))
        labels.append(tuple(_labels(decoding, batch)))
        others.append({name: batch[name] for name in further if name in batch})
        if has_values:
            values.append(given)
    if not outputs:
        return PredictedRows(outputs=(), labels=(torch.empty(0),))
    weights = [batch[_WEIGHT] for batch in others if weight is not None]
    found = PredictedRows(
        outputs=_joined(outputs),
        labels=_joined(labels),
        weight=torch.from_numpy(np.concatenate(weights)) if weights else None,
        keys=[name for batch in others for name in batch.get(KEY, ())],
        by=[value for batch in others for value in batch.get(_BY, ())],
        values={name: _one(batch[name] for batch in values) for name in (values or [{}])[0]},
    )
    regressed = {
        one.name: y
        for one, y in zip(decoding.labels, found.labels, strict=True)
        if one.task == "regression"
    }
    check_numbers(regressed, weight, found.weight)
    return found


def check_numbers(labels: Mapping[str, Tensor], name: str | None, weight: Tensor | None) -> None:
    """Refuse labels of regressions, and weights, that a dataset cannot have either.

    Raises:
        NotFinite; DataError: a weight is below 0.
    """
    numbers = dict(labels)
    if name is not None and weight is not None:
        check_weights(name, weight.numpy())
        numbers[name] = weight
    check_finite({name: int((~y.float().isfinite()).sum()) for name, y in numbers.items()})


def _of_texts(
    connection: Connection, predictor: Predictor, query: str, by: str | None
) -> PredictedRows:
    """Return the rows that a query's texts become, as they do in the model's dataset."""
    decoding, dataset_id = predictor.decoding, predictor.model.dataset_id
    name, given = decoding.labels[0].name, decoding.inputs[0]
    encoder = predictor.encoders[name]
    beside: dict[str, Beside] = {_LABEL: (name, "text")}
    if by is not None:
        beside[_BY] = (by, "nullable_text")
    texts: dict[str | None, list[str]] = {}
    for batch, _ in scan_values(connection, replace(decoding, columns=()), query, beside):
        for value, text in zip(batch.get(_BY, repeat(None)), batch[_LABEL], strict=False):
            texts.setdefault(value, []).append(text)
    rows: dict[str | None, np.ndarray] = {}
    for value, some in texts.items():
        if encoder.tokenizer.pack:
            assert dataset_id is not None
            some = in_order(some, dataset_of(connection, dataset_id).seed)
            several = packed([{name: some, SPLIT: [""] * len(some)}], name, encoder)
            found = [batch[name] for batch in several]
            rows[value] = np.concatenate(found) if found else encoder([])
        else:
            rows[value] = encoder(some)
    if not rows:
        return PredictedRows(outputs=(), labels=(torch.empty(0),))
    tokens = np.concatenate(list(rows.values()))
    labels = (torch.from_numpy(next_tokens(tokens)),)
    return PredictedRows(
        outputs=predictor.outputs_at(tokens.clip(0).astype(given.dtype), labels),
        labels=labels,
        by=[value for value, found in rows.items() for _ in found] if by is not None else [],
    )


def _joined(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(map(torch.cat, zip(*parts, strict=True)))


def _one(parts: Iterator[Any]) -> Values:
    found = list(parts)
    if isinstance(found[0], np.ndarray):
        return np.concatenate(found)
    return [value for part in found for value in part]


def _labels(decoding: Decoding, batch: Mapping[str, Any]) -> Iterator[Tensor]:
    for place, label in enumerate(decoding.labels):
        values = batch[f"{_LABEL} {place}"]
        if label.classes is not None:
            values = _places(label, values)
        elif label.task == "multilabel":
            if values.shape[1] != label.width:
                raise InvalidInput(
                    f"Label {label.name!r} has {values.shape[1]} values; "
                    f"the model has {label.width}."
                )
            values = zeros_and_ones(label.name, values)
        yield torch.from_numpy(np.require(values, requirements="W"))


def _places(label: Label, values: Sequence[str]) -> np.ndarray:
    """Return the classes of texts as the database writes them.

    Raises:
        InvalidInput
    """
    assert label.classes is not None
    known = KnownClasses(label.classes)
    places = np.fromiter((known[value] for value in values), np.int64, len(values))
    if (places == MISSING).any():
        raise unseen(label, values[int(places.argmin())])
    return places
