"""How good a model is: `evaluate`, `compare_models`, curves and residuals, as SQL calls them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from mmdb.arguments import check_whole
from mmdb.data.calibration import Calibration
from mmdb.data.dataset import dataset_of
from mmdb.data.decoding import class_text
from mmdb.data.forms import source_row
from mmdb.data.names import is_dataset
from mmdb.data.parts import steps_of
from mmdb.data.query import SourceColumn, analyse, parse_select
from mmdb.data.query.names import fold
from mmdb.db.connection import Connection
from mmdb.db.owners import acting_for
from mmdb.db.queries import load
from mmdb.errors import InvalidInput, InvalidOption
from mmdb.judge import curves
from mmdb.judge.calibration import METHODS, Calibrated, Method, calibrated
from mmdb.judge.figures import class_figures, number_figures
from mmdb.judge.resampling import CONFIDENCE, differences, intervals, mcnemar
from mmdb.messages import show
from mmdb.server.arguments import json_object, json_value
from mmdb.server.backend import Backend
from mmdb.server.metering import Metering, require_numbers
from mmdb.server.model_functions import find_predictor
from mmdb.server.predictor import Predictor
from mmdb.server.sample import PredictedRows, read_sample, read_slice, same_rows
from mmdb.store.models.model_rows import SavedModel, find_members, model_of
from mmdb.store.models.save import About, Saved, save_model
from mmdb.train.candidate.metrics import confusion

_Q = load("evaluations")
_Rows = list[dict[str, Any]]


def evaluate(
    backend: Backend,
    model: str,
    data: str,
    slice: str | None,
    metrics: str | None,
    by: str | None,
    intervals: bool,
) -> _Rows:
    """Return metrics of all rows, then of those with each value of the column `by`; keep them.

    In a transaction that may not write, as on a replica, nothing is kept.

    Raises:
        ModelNotFound; InvalidOption: no such metric, or it does not fit the label.
        and what `read_sample` raises
    """
    started = perf_counter()
    predictor = find_predictor(backend, model, of_texts=True)
    metering = Metering(backend.connection, predictor, _listed(metrics))
    key = _key_there(backend.connection, predictor, data)
    sample = read_sample(backend.connection, predictor, data, slice=slice, by=by, key=key)
    found = [
        {"by_name": None if places is None else by, "by_value": value, **row}
        for value, places in ((None, None), *_groups(sample))
        for row in _measured(metering, sample, places, is_sure=bool(intervals))
    ]
    if not found:
        require_numbers(predictor, sample)
        raise InvalidInput(
            "None of the metrics is defined on these rows.",
            hint="Some need rows of every class, or labels other than 0.",
        )
    keep(backend, predictor, data, sample, found, _figures(predictor, sample), started=started)
    return found


def _key_there(connection: Connection, predictor: Predictor, data: str) -> str | None:
    """Return the column that names a query's rows, if it has one of the name that is expected."""
    if is_dataset(data):
        return None
    select, _ = parse_select(data, connection.engine)
    key = predictor.key(None)
    return key if key in (name for name, _ in connection.columns(select)) else None


def _figures(predictor: Predictor, sample: PredictedRows) -> dict[str, Any] | None:
    """Return what a report draws of one label's rows; None where outputs are infinite or none."""
    label, output, y = predictor.decoding.labels[0], sample.outputs[0], sample.labels[0]
    if label.task in ("multilabel", "next_token") or not output.isfinite().all():
        return None
    if label.classes is None:
        return number_figures(output.reshape(-1), y, sample.keys)
    names = [class_text(value) for value in label.classes]
    guess = predictor.guesses(output)
    return class_figures(names, output, guess, y, sample.weight, sample.keys)


def _groups(sample: PredictedRows) -> Iterator[tuple[str | None, Tensor]]:
    """Yield each value of the column that rows are told apart by, with their places; NULL last."""
    order = sorted(range(len(sample.by)), key=lambda k: (sample.by[k] is None, sample.by[k] or ""))
    for value, places in groupby(order, key=lambda k: sample.by[k]):
        yield value, torch.tensor([*places])


def _measured(
    metering: Metering, sample: PredictedRows, places: Tensor | None, *, is_sure: bool
) -> Iterator[dict[str, Any]]:
    count = sample.row_count if places is None else len(places)
    values = metering(sample, places)
    ends = {}
    if is_sure:
        ends = intervals(
            count, values, lambda at: metering(sample, at if places is None else places[at])
        )
    for name, value in values.items():
        low, high = ends.get(name, (None, None))
        yield {"metric": name, "value": value, "row_count": count, "low": low, "high": high}


def keep(
    backend: Backend,
    predictor: Predictor,
    data: str,
    sample: PredictedRows,
    found: _Rows,
    figures: Mapping[str, Any] | None,
    *,
    started: float,
) -> None:
    """Record an evaluation, with what its query reads, where the transaction may write."""
    connection = backend.connection
    if connection.engine == "postgres" and not connection.rows(_Q.may_keep)[0]["may"]:
        return
    is_query = sample.dataset is None
    sources: Sequence[SourceColumn] = ()
    if is_query:
        by = {row["by_name"] for row in found} - {None}
        sources = sources_of(connection, data, dict.fromkeys([*_names(predictor), *by]))
    with connection.transaction():
        (added,) = connection.rows(
            _Q.add_evaluation,
            model_id=predictor.model.model_id,
            dataset_id=None if sample.dataset is None else sample.dataset.dataset_id,
            slice=sample.slice,
            query=data if is_query else None,
            row_count=sample.row_count,
            seconds=perf_counter() - started,
            figures=None if figures is None else json.dumps(figures, ensure_ascii=False),
        )
        ids = {"evaluation_id": added["evaluation_id"]}
        connection.run_many(
            _Q.add_metric, [{**ids, "ordinal": k, **row} for k, row in enumerate(found)]
        )
        connection.run_many(
            _Q.add_source, [{**ids, "ordinal": k, **source_row(s)} for k, s in enumerate(sources)]
        )


def sources_of(connection: Connection, query: str, columns: Collection[str]) -> list[SourceColumn]:
    """Return what a query reads for some columns, by their names, and what chooses its rows."""
    analysis = analyse(query, connection.engine, connection)
    folded = partial(fold, engine=connection.engine, is_quoted=True)
    read = analysis.sources_of([name for name, _ in connection.columns(analysis.select)])
    return [source for source in read if source.output is None] + [
        replace(source, output=name)
        for source in read
        for name in columns
        if (whole := source.output) and (folded(name) == folded(whole) or steps_of(name, whole))
    ]


def _names(predictor: Predictor) -> list[str]:
    """Return the columns of a query that judging reads."""
    decoding = predictor.decoding
    weights = [column.name for column in decoding.columns if column.kind == "weight"]
    return [c.name for c in decoding.features] + [y.name for y in decoding.labels] + weights


def compare_models(backend: Backend, a: str, b: str, data: str, metrics: str | None) -> _Rows:
    """Return metrics of two models on the same rows, and how sure it is that they differ.

    Raises:
        InvalidInput: they do not predict the same; and what `evaluate` raises.
    """
    connection = backend.connection
    predictors = [find_predictor(backend, name, of_texts=True) for name in (a, b)]
    labels = [[(one.name, one.classes) for one in p.decoding.labels] for p in predictors]
    if labels[0] != labels[1]:
        raise InvalidInput(
            f"Models {a!r} and {b!r} do not predict the same.",
            hint="Compare models of one label with the same classes.",
        )
    # What is measured is what both runs record, or what is asked for.
    asked = _listed(metrics)
    meterings = [Metering(connection, p, asked) for p in predictors]
    samples = same_rows(connection, predictors, data)
    first, second = (of(sample) for of, sample in zip(meterings, samples, strict=True))
    both = [name for name in first if name in second]
    for predictor, sample in zip(predictors, samples, strict=True) if not both else ():
        require_numbers(predictor, sample)

    def apart(places: Tensor) -> dict[str, float]:
        drawn = [of(sample, places) for of, sample in zip(meterings, samples, strict=True)]
        return {n: drawn[0][n] - drawn[1][n] for n in both if n in drawn[0] and n in drawn[1]}

    by_name = {name: first[name] - second[name] for name in both}
    sure = differences(samples[0].row_count, by_name, apart)
    is_class = predictors[0].decoding.labels[0].task == "classification"
    found = []
    for name in both:
        low, high, p_value = sure.get(name, (None, None, None))
        if name == "accuracy" and is_class and samples[0].weight is None:
            right = [
                predictor.guesses(sample.outputs[0]) == sample.labels[0]
                for predictor, sample in zip(predictors, samples, strict=True)
            ]
            p_value = mcnemar(int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum()))
        found.append(
            {
                "metric": name,
                "a_value": first[name],
                "b_value": second[name],
                "difference": by_name[name],
                "low": low,
                "high": high,
                "p_value": p_value,
                "better": _better(a, b, by_name[name], p_value, meterings[0].maximize[name]),
            }
        )
    return found


def _better(
    a: str, b: str, difference: float, p_value: float | None, maximize: bool | None
) -> str | None:
    """Return the better of two models; None where that is no more than noise, or cannot be said."""
    if p_value is None or p_value >= 1 - CONFIDENCE or maximize is None or not difference:
        return None
    return a if (difference > 0) == maximize else b


def _listed(metrics: str | None) -> Any:
    """Return the metrics of an argument; what is no JSON is a name, and refused as no list."""
    try:
        return None if metrics is None else json_value(metrics)
    except (ValueError, RecursionError):
        return metrics


# -- Curves ------------------------------------------------------------------------


def _classified(predictor: Predictor) -> list[str]:
    """Return the classes of a classification as the database writes them.

    Raises:
        InvalidInput: the model predicts something else.
    """
    label = predictor.decoding.labels[0]
    if label.classes is None:
        raise InvalidInput(
            f"Model {predictor.model.reference} predicts {label.name!r}, which has no classes.",
            hint="Ask for residuals(model, data), or evaluate(model, data).",
        )
    return [class_text(value) for value in label.classes]


def _read_numbers(
    connection: Connection, predictor: Predictor, data: str, *, slice: str | None = None
) -> PredictedRows:
    """Return rows of which a class is predicted, which it is not where outputs are NaN."""
    sample = read_sample(connection, predictor, data, slice=slice)
    require_numbers(predictor, sample)
    return sample


def _scored(
    backend: Backend, model: str, data: str, positive: str | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the probability of a class, which rows are of it, and weights.

    Args:
        positive: the class as the database writes it; None: the second of two.
    """
    predictor = find_predictor(backend, model)
    place = _class_place(_classified(predictor), positive)
    sample = _read_numbers(backend.connection, predictor, data)
    scores = torch.softmax(sample.outputs[0].double(), dim=-1)[:, place]
    return scores, sample.labels[0] == place, sample.weight


def _class_place(names: Sequence[str], positive: str | None) -> int:
    if positive is None and len(names) == 2:
        return 1
    if positive not in names:
        what = "No class is named" if positive is None else f"There is no class {show(positive)}"
        some = ", ".join(map(show, names[:20]))
        raise InvalidOption(f"{what}.", hint=f"positive is one of {some}.")
    return names.index(positive)


def confusion_matrix(backend: Backend, model: str, data: str) -> _Rows:
    """Return rows, or their weights, by label and prediction, and their share of the label's."""
    predictor = find_predictor(backend, model)
    names = _classified(predictor)
    sample = _read_numbers(backend.connection, predictor, data)
    guessed = one_hot(predictor.guesses(sample.outputs[0]), len(names))
    cells = confusion(guessed, sample.labels[0], sample.weight)
    present = cells.sum(1).tolist()
    return [
        {
            "label": true,
            "prediction": guess,
            "rows": count,
            "share": count / present[k] if present[k] else None,
        }
        for k, (true, counts) in enumerate(zip(names, cells.tolist(), strict=True))
        for guess, count in zip(names, counts, strict=True)
    ]


def roc_curve(backend: Backend, model: str, data: str, positive: str | None) -> _Rows:
    """Return the ROC curve of a class; see `mmdb.judge.curves.roc`."""
    return [point._asdict() for point in curves.roc(*_scored(backend, model, data, positive))]


def precision_recall(backend: Backend, model: str, data: str, positive: str | None) -> _Rows:
    """Return the curve of a class; see `mmdb.judge.curves.precision_recall`."""
    found = curves.precision_recall(*_scored(backend, model, data, positive))
    return [point._asdict() for point in found]


def calibration(backend: Backend, model: str, data: str, positive: str | None, bins: int) -> _Rows:
    """Return what came of the probabilities of a class, in ranges of them."""
    count = check_whole(bins, "bins", 1, 10_000)
    found = curves.calibration(*_scored(backend, model, data, positive), bins=count)
    return [bin._asdict() for bin in found]


def thresholds(backend: Backend, model: str, data: str, goal: str, positive: str | None) -> _Rows:
    """Return the threshold that meets a goal; see `mmdb.judge.curves.threshold_for`."""
    scored = _scored(backend, model, data, positive)
    return [curves.threshold_for(json_object(goal, "goal"), *scored)._asdict()]


def calibrate_model(
    backend: Backend,
    model: str,
    data: str,
    method: Method | None,
    goal: str | None,
    positive: str | None,
    slice: str | None,
) -> _Rows:
    """Save a model's next version, whose probabilities are calibrated, or which has a threshold.

    Args:
        method: see `mmdb.judge.calibration.calibrated`; None: it stays calibrated as it is.
        goal: of `thresholds`; None: no class has a threshold.
    Raises:
        InvalidOption: neither is given, or there is no such method.
        and what `thresholds` raises
    """
    if method not in (None, *METHODS) or (method is None and goal is None):
        what = "No method and no goal" if method is None else f"There is no method {show(method)}"
        raise InvalidOption(
            f"{what}{' is given' if method is None else ''}.",
            hint=f"method is {' or '.join(METHODS)}; a goal alone sets a threshold.",
        )
    connection = backend.connection
    predictor = find_predictor(backend, model)
    names = _classified(predictor)
    if len(predictor.decoding.labels) > 1:
        raise InvalidInput(
            f"Model {predictor.model.reference} predicts several labels.",
            hint="Calibrate a model of one label.",
        )
    wanted = None if goal is None else json_object(goal, "goal")
    place = None if wanted is None else _class_place(names, positive)
    asked = predictor if method is None else predictor.uncalibrated
    sample = _read_numbers(connection, asked, data, slice=slice)
    chosen = _fitted(asked, sample, method, wanted, place)
    saved = _save_calibrated(connection, predictor, chosen, names)
    shown = json.dumps(chosen.to_json(names), ensure_ascii=False)
    found = {"model_id": saved.model_id, "name": saved.name, "version": saved.version}
    return [found | {"calibration": shown}]


def _fitted(
    predictor: Predictor,
    sample: PredictedRows,
    method: Method | None,
    goal: Mapping[str, Any] | None,
    place: int | None,
) -> Calibration:
    """Return a model's calibration by rows; see `calibrate_model`."""
    output, y, weight = sample.outputs[0], sample.labels[0], sample.weight
    chosen = replace(predictor.calibration, positive=None)
    if method is not None:
        chosen = calibrated(method, output, y, weight)
        output = Calibrated(nn.Identity(), chosen)(output)
    if goal is None or place is None:
        return chosen
    scores = torch.softmax(output.double(), dim=-1)[:, place]
    found = curves.threshold_for(goal, scores, y == place, weight)
    lower = scores[scores < found.threshold]
    # Between two scores, for these differ by rounding from one batch of rows to another.
    below = float(lower.max()) if len(lower) else 0.0
    return chosen.at(place, (found.threshold + below) / 2, goal)


def _save_calibrated(
    connection: Connection, predictor: Predictor, chosen: Calibration, names: Sequence[str]
) -> Saved:
    return save_model(
        connection,
        predictor.model.name,
        predictor.uncalibrated.module,
        parent=predictor.model.reference,
        about=About(
            dataset_id=predictor.model.dataset_id,
            candidate_id=predictor.model.candidate_id,
            epoch=predictor.model.epoch,
            calibration=chosen.to_json(names),
            members=find_members(connection, predictor.model.model_id),
        ),
    )


def calibrate_again(backend: Backend, new: SavedModel, old: SavedModel) -> SavedModel:
    """Save a run's model as the next version, calibrated by the rule by which another model is.

    It is fitted on the rows that the dataset of `new` holds out.

    Raises:
        InvalidInput, InvalidOption: the rule is not known, or cannot be met.
    """
    connection = backend.connection
    said = json.loads(old.calibration or "{}")
    goal = said.get("goal")
    if goal is None and "positive" in said:
        raise InvalidInput(
            "It was not kept which goal the threshold meets.",
            hint="Call calibrate_model with the goal.",
        )
    predictor = find_predictor(backend, new.reference)
    names = _classified(predictor)
    place = None if goal is None else _class_place(names, said["positive"])
    assert new.dataset_id is not None and new.candidate_id is not None
    dataset = dataset_of(connection, new.dataset_id)
    sample = read_slice(connection, predictor, dataset, "validation")
    method = next((one for one in METHODS if one in said), None)
    chosen = _fitted(predictor, sample, method, goal, place)
    with acting_for(connection, new.candidate_id):
        saved = _save_calibrated(connection, predictor, chosen, names)
    return model_of(connection, saved.model_id)


def residuals(backend: Backend, model: str, query: str, key: str | None) -> _Rows:
    """Return for each row of a SELECT its label, what is predicted, and their difference."""
    predictor = find_predictor(backend, model)
    label = predictor.decoding.labels[0]
    if label.task != "regression":
        raise InvalidInput(
            f"Model {predictor.model.reference} predicts {label.name!r}, which is no number.",
            hint="Ask for confusion_matrix(model, data), or predict_query(model, query).",
        )
    sample = read_sample(backend.connection, predictor, query, key=predictor.key(key))
    found = zip(
        sample.keys, sample.labels[0].tolist(), sample.outputs[0].flatten().tolist(), strict=True
    )
    return [
        {"row_key": key, "label": true, "prediction": guess, "residual": true - guess}
        for key, true, guess in found
    ]
