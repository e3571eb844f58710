"""Why a model answers as it does: `importance`, `explain_predict` and `training_rows` of SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmdb.arguments import check_whole
from mmdb.data.arrays import Inputs
from mmdb.data.assembly import Values, assemble
from mmdb.data.dataset import dataset_of
from mmdb.data.decoding import Column, Decoding, class_text
from mmdb.data.inputs import object_input
from mmdb.data.query_rows import KEY, Beside, scan_values
from mmdb.db.owners import require_author
from mmdb.errors import InvalidInput, InvalidOption, UnknownColumn
from mmdb.graph.grouped import Grouped
from mmdb.judge.attribution import (
    MOST_EXACT,
    Arrays,
    Attribution,
    Place,
    integrated_gradients,
    shapley,
)
from mmdb.judge.calibration import guesses
from mmdb.judge.importance import importances
from mmdb.judge.influence import influences
from mmdb.messages import show
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend
from mmdb.server.judging import keep, sources_of
from mmdb.server.metering import Metering, require_numbers
from mmdb.server.model_functions import find_predictor
from mmdb.server.predictor import Predictor
from mmdb.server.sample import PredictedRows, read_sample
from mmdb.train.compute.hop import EVALUATION_BATCH
from mmdb.train.replay.hop_replay import EpochState
from mmdb.train.replay.recipe_replay import recover_epochs
from mmdb.train.values.row_batch import call, outputs_of

METHODS = ("gradients", "shapley")
#: Columns up to which every set of them is tried where no method is named.
_FEW = 6
#: All of them are in memory at once.
_MOST_CHECKPOINTS = 20


def importance(
    backend: Backend, model: str, query: str, metric: str | None, by_table: bool, repeats: int
) -> list[dict[str, Any]]:
    """Return columns, or tables, by what a metric loses where their values are shuffled; keep it.

    Raises:
        InvalidOption: the metric has no direction, or `repeats` is none.
        and what `read_sample` raises
    """
    started = perf_counter()
    predictor, connection = find_predictor(backend, model), backend.connection
    repeats = check_whole(repeats, "repeats", 1, 10_000)
    metering = Metering(connection, predictor, None if metric is None else [metric])
    sample = read_sample(connection, predictor, query, has_values=True)
    values = metering(sample)
    name = next(iter(values), None)
    if name is None:
        require_numbers(predictor, sample)
    if name is None or metering.maximize[name] is None:
        raise InvalidOption(
            "The metric is not defined on these rows, or does not say which way is better.",
            hint="Name another one, such as accuracy or rmse.",
        )
    tables = _tables(backend, predictor, query)
    groups: list[tuple[str, ...]] = [(feature,) for feature in tables]
    if by_table:
        known = dict.fromkeys(tables.values())
        groups = [tuple(f for f in tables if tables[f] == table) for table in known]

    def measured(outputs: tuple[Tensor, ...], rows: Tensor) -> float:
        shuffled = PredictedRows(outputs=outputs, labels=sample.labels, weight=sample.weight)
        return metering(shuffled, rows).get(name, float("nan"))

    found = importances(
        sample.values,
        groups,
        lambda given: predictor.outputs(assemble(predictor.decoding, given)),
        measured,
        maximize=bool(metering.maximize[name]),
        repeats=repeats,
    )
    rows: list[dict[str, Any]] = [
        {
            "column_name": ", ".join(one.columns),
            "tables": tables[one.columns[0]],
            "metric_name": name,
            "importance": one.value,
            "low": one.low,
            "high": one.high,
        }
        for one in found
    ]
    rows.sort(key=lambda row: -row["importance"])
    keep(backend, predictor, query, sample, [], {"importance": rows}, started=started)
    return rows


def _tables(backend: Backend, predictor: Predictor, query: str) -> dict[str, str]:
    """Return the tables that each feature is read from, by the lineage of the query."""
    found: dict[str, set[str]] = {c.name: set() for c in predictor.decoding.features}
    for source in sources_of(backend.connection, query, found):
        if source.output is not None and source.table:
            place = source.table if source.schema is None else f"{source.schema}.{source.table}"
            found[source.output].add(place)
    return {name: ", ".join(sorted(tables)) for name, tables in found.items()}


def explain_predict(
    backend: Backend,
    model: str,
    query: str,
    top: int,
    key: str | None,
    method: str | None,
    baseline: str | None,
) -> list[dict[str, Any]]:
    """Return for each row of a SELECT the columns that moved its answer most, greatest first.

    The answer is the probability of the class that is predicted, or the number. What columns added
    to it is told against one row: `baseline`, or the median of the train rows' numbers, with texts
    missing and arrays of 0.

    Args:
        method: "gradients", "shapley"; None: shapley of few columns.
    Raises:
        InvalidInput: several labels are predicted at once. InvalidOption: there is no such method.
    """
    predictor = find_predictor(backend, model)
    decoding = predictor.decoding
    top = check_whole(top, "top", 1, 10_000)
    if decoding.labels[0].task == "multilabel":
        raise InvalidInput(
            "Of a model of several labels at once no single answer can be explained.",
            hint="Explain a model of one label.",
        )
    features = decoding.features
    is_grouped = any(isinstance(one, Grouped) for one in predictor.module.modules())
    few = MOST_EXACT if is_grouped else _FEW
    chosen = method or ("shapley" if len(features) <= few else "gradients")
    if is_grouped and chosen == "gradients":
        raise InvalidInput(
            "Gradients do not tell what its group adds to a row's answer.",
            hint=f"Pass method 'shapley', which takes {MOST_EXACT} columns at most.",
        )
    if chosen not in METHODS:
        raise InvalidOption(f"There is no method {show(method)}.", hint=" or ".join(METHODS))
    places = [*_places(decoding)]
    base = _tensors(_baseline(backend, predictor, baseline))
    found: list[dict[str, Any]] = []
    beside: dict[str, Beside] = {KEY: (predictor.key(key), "text")}
    for batch, values in scan_values(backend.connection, decoding, query, beside):
        x = _tensors(assemble(decoding, values))
        explained = _explained(predictor, chosen, x, base, places)
        found += _rows(list(batch[KEY]), features, values, *explained, top=top)
    return found


def training_rows(
    backend: Backend,
    model: str,
    query: str,
    trained: str | None,
    top: int,
    key: str | None,
    checkpoints: int,
) -> list[dict[str, Any]]:
    """Return the training rows that helped, and those that hurt, the answers to a SELECT's rows.

    Args:
        query: with features and label. trained: likewise, of the training rows with their key;
            None: the query of the model's dataset.
        top: how many of each kind are returned, the strongest first.
        checkpoints: of how many of the model's epochs' ends the answer is the mean, by their
            learning rates; of more than one, its run's hops are done again.
    Raises:
        InvalidInput: the dataset's query has no key.
        NotReplayable, ReplayMismatch: its hops cannot be done again.
    """
    predictor, connection = find_predictor(backend, model), backend.connection
    top = check_whole(top, "top", 1, 10_000)
    asked = read_sample(connection, predictor, query, has_values=True)
    others = _training_sample(backend, predictor, trained, predictor.key(key))
    for sample in (asked, others):
        require_numbers(predictor, replace(sample, weight=None))
    label = predictor.decoding.labels[0]
    given = [
        (_tensors(assemble(predictor.decoding, one.values)), _as_trained(one.labels[0]))
        for one in (asked, others)
    ]
    states = [EpochState(0, predictor.module, 1.0)]
    if check_whole(checkpoints, "checkpoints", 1, _MOST_CHECKPOINTS) > 1:
        states = recover_epochs(connection, predictor.model, checkpoints, backend.compute)
    total = sum(state.rate for state in states) or 1.0
    found = own = torch.zeros(len(others.keys))
    for state in states:
        output_of = _output_of(replace(predictor, module=state.module))
        products, losses = influences(state.module, output_of, label.task, given[0], given[1])
        found = found + products * (state.rate / total)
        own = own + losses / len(states)
    order = found.argsort(descending=True, stable=True).tolist()
    helped = [(k, "helped") for k in order[:top] if found[k] > 0]
    hurt = [(k, "hurt") for k in order[::-1][:top] if found[k] < 0]
    names = [class_text(value) for value in label.classes or ()]
    labels = [names[y] if names else str(y) for y in others.labels[0].tolist()]
    return [
        {
            "row_key": others.keys[k],
            "effect": effect,
            "influence": float(found[k]),
            "label": labels[k],
            "loss": float(own[k]),
        }
        for k, effect in (*helped, *hurt)
    ]


def _training_sample(
    backend: Backend, predictor: Predictor, query: str | None, key: str
) -> PredictedRows:
    connection, dataset_id = backend.connection, predictor.model.dataset_id
    if query is not None:
        return read_sample(connection, predictor, query, key=key, has_values=True)
    assert dataset_id is not None  # else it is no predictor
    dataset = dataset_of(connection, dataset_id)
    require_author(connection, dataset.name, dataset_id)
    try:
        return read_sample(connection, predictor, dataset.query, key=key, has_values=True)
    except UnknownColumn as error:
        raise InvalidInput(
            f"The training rows of dataset {dataset.name!r} cannot be named: {error.message}",
            hint="Pass trained, a SELECT of these rows with a column that names each, and key.",
        ) from error


def _as_trained(labels: Tensor) -> Tensor:
    return labels.float() if labels.is_floating_point() else labels


def _output_of(predictor: Predictor) -> Callable[[Arrays], Tensor]:
    """Return what gives the first target's outputs of rows, (n, size)."""
    decoding = predictor.decoding

    def output_of(arrays: Arrays) -> Tensor:
        given: Any = arrays[""] if decoding.is_one_input else dict(arrays)
        return outputs_of(call(predictor.module, given), decoding.targets)[0]

    return output_of


def _places(decoding: Decoding) -> Iterator[Place]:
    """Yield where each feature is, in the order of the features."""
    found = {}
    for given in decoding.inputs:
        for column, span in decoding.spans(given):
            codes = None if column.transform is None else column.transform.codes
            found[column.name] = Place(input=given.name, span=span, codes=codes)
    for column in decoding.features:
        yield found[column.name]


def _tensors(inputs: Inputs) -> dict[str, Tensor]:
    arrays = inputs if isinstance(inputs, dict) else {"": inputs}
    return {name: torch.from_numpy(np.require(a, requirements="W")) for name, a in arrays.items()}


def _baseline(backend: Backend, predictor: Predictor, given: str | None) -> Inputs:
    decoding = predictor.decoding
    if given is not None:
        row = json_object(given, "baseline")
        return object_input(decoding, row, predictor.encoders, backend.connection.engine)
    return assemble(decoding, {c.name: _typical(c) for c in decoding.features})


def _typical(column: Column) -> Values:
    """Return the value of one row to compare with, as a scan would deliver it."""
    transform = column.transform
    if transform is None or transform.source == "picture":
        kind = np.int32 if column.kind == "tokens" else np.uint8
        width = column.width if transform is None else column.decoded_width
        zeros = np.zeros((1, width), np.float32 if column.kind in ("numeric", "tensor") else kind)
        return zeros[:, 0] if column.kind == "numeric" else zeros
    if transform.source == "text":
        return [None]
    return np.array([float(transform.statistics["fill"])])


def _explained(
    predictor: Predictor, method: str, x: Arrays, base: Arrays, places: Sequence[Place]
) -> tuple[Attribution, Sequence[str | None]]:
    """Return what columns added to the answer for each row, and what is predicted of it."""
    label, module = predictor.decoding.labels[0], predictor.module

    output_of = _output_of(predictor)

    def outputs(arrays: Arrays) -> Tensor:
        found = output_of(arrays)
        return found.softmax(-1) if label.classes is not None else found.reshape(len(found), -1)

    def answer(arrays: Arrays, asked: Tensor) -> Tensor:
        return outputs(arrays).gather(1, asked[:, None])[:, 0]

    with torch.no_grad():
        pieces = zip(*(array.split(EVALUATION_BATCH) for array in x.values()), strict=True)
        parts = [outputs(dict(zip(x, piece, strict=True))) for piece in pieces]
    asked = guesses(predictor.calibration, torch.cat(parts))
    if method == "shapley":
        added = shapley(answer, x, asked, base, places)
    else:
        added = integrated_gradients(answer, module, x, asked, base, places)
    if label.classes is None:
        return added, [str(value) for value in added.answer.tolist()]
    names = [class_text(value) for value in label.classes]
    lost = np.isnan(added.answer)
    return added, [None if no else names[k] for k, no in zip(asked.tolist(), lost, strict=True)]


def _rows(
    keys: Sequence[str],
    features: Sequence[Column],
    values: Mapping[str, Values],
    explained: Attribution,
    predicted: Sequence[str | None],
    *,
    top: int,
) -> Iterator[dict[str, Any]]:
    """Yield the columns that moved each row's answer most."""
    order = np.argsort(-np.abs(explained.added), axis=1, kind="stable")[:, :top]
    for row, (key, guess, places) in enumerate(zip(keys, predicted, order.tolist(), strict=True)):
        for rank, place in enumerate(places, 1):
            column = features[place]
            yield {
                "row_key": key,
                "prediction": guess,
                "answer": float(explained.answer[row]),
                "rank": rank,
                "column_name": column.name,
                "value": _shown(column, values[column.name][row]),
                "contribution": float(explained.added[row, place]),
                "gap": float(explained.gap[row]),
            }


#: Numbers of an array that are shown.
_SHOWN = 8


def _shown(column: Column, value: Any) -> str | None:
    """Return a raw value as text: a date as such, the first numbers of an array."""
    source = None if column.transform is None else column.transform.source
    if value is None or (source not in (None, "text", "picture") and np.isnan(value)):
        return None
    if source in ("moment", "clock", "span"):
        return _time_text(float(value), is_moment=source == "moment")
    if isinstance(value, np.ndarray):
        numbers = [f"{number:g}" for number in value.reshape(-1)[:_SHOWN].tolist()]
        return f"[{', '.join(numbers)}{', ...' if value.size > _SHOWN else ''}]"
    return value if isinstance(value, str) else f"{value:.9g}"


def _time_text(seconds: float, *, is_moment: bool) -> str:
    """Return a date, time or interval as text; databases have some that Python's classes do not."""
    try:
        span = timedelta(seconds=seconds)
        return (datetime(1970, 1, 1, tzinfo=UTC) + span).isoformat() if is_moment else str(span)
    except OverflowError:
        if is_moment:
            return f"{np.datetime64(int(seconds), 's')}+00:00"
        return f"{seconds:.9g} seconds"
