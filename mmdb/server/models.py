"""`save_candidate`, `predict`, `predict_query` and `evaluate`."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from mmdb.data.dataset import find_dataset, find_decoding
from mmdb.data.decoding import Decoding
from mmdb.data.inputs import object_input, scan_inputs, vector_input
from mmdb.data.reader import read_partition
from mmdb.errors import DatasetDropped, InvalidInput
from mmdb.server.arguments import json_object, json_value
from mmdb.server.backend import Backend, exposed
from mmdb.store.models import find_model
from mmdb.train import save
from mmdb.train.hop import EVALUATION_BATCH, metrics
from mmdb.train.hop import predict as run_module

#: Models that a session keeps for prediction; the least recently used one goes first.
KEPT_MODELS = 8


@dataclass(frozen=True, slots=True)
class _Predictor:
    module: nn.Module
    decoding: Decoding

    def output(self, x: np.ndarray) -> torch.Tensor:
        """Return the module's output, float32 (n, outputs)."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return torch.cat([run_module(self.module, part) for part in _parts(x)])
        finally:
            torch.set_num_threads(before)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Return class probabilities (n, classes), or a regression's values (n, 1)."""
        output = self.output(x)
        if self.decoding.classes is not None:
            output = torch.softmax(output, dim=-1)
        return output.reshape(len(x), -1).numpy()


def _parts(x: np.ndarray) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(x).split(EVALUATION_BATCH))


def _predictor(backend: Backend, reference: str) -> _Predictor:
    """Return a model, kept in the session; models are immutable, so their id is the key."""
    connection = backend.connection
    saved = find_model(connection, reference)
    kept: OrderedDict[int, _Predictor] = backend.models
    if saved.model_id not in kept:
        if saved.dataset_id is None:
            raise InvalidInput(
                f"Model {saved.reference} was saved without a dataset.",
                hint="Pass dataset=... to db.save: it says how a row becomes the model's input.",
            )
        decoding = find_decoding(connection, saved.dataset_id)
        kept[saved.model_id] = _Predictor(backend.recover(saved), decoding)
        while len(kept) > KEPT_MODELS:
            kept.popitem(last=False)
    kept.move_to_end(saved.model_id)
    return kept[saved.model_id]


@exposed
def save_candidate(
    backend: Backend, candidate_id: int, name: str, approach: str, options: str
) -> list[dict[str, Any]]:
    """Save a candidate's best checkpoint; see `mmdb.train.save.save_candidate`."""
    row = save.save_candidate(
        backend.connection,
        candidate_id,
        name,
        approach=approach,
        options=json_object(options, "options"),
    )
    return [{key: row[key] for key in ("model_id", "name", "version")}]


@exposed
def predict(backend: Backend, model: str, x: Any) -> list[float]:
    """Return class probabilities, or the value of a regression, for one row."""
    predictor = _predictor(backend, model)
    value = json_value(x) if isinstance(x, str) else x
    if isinstance(value, dict):
        given = object_input(predictor.decoding, value)
    elif isinstance(value, list):
        given = vector_input(predictor.decoding, value)
    else:
        raise InvalidInput(f"The input is {value!r}.")
    return [float(p) for p in predictor.probabilities(given)[0]]


@exposed
def predict_query(backend: Backend, model: str, query: str, key: str) -> list[dict[str, Any]]:
    """Return key, prediction and probability for every row of a SELECT."""
    predictor = _predictor(backend, model)
    classes = predictor.decoding.classes
    found: list[dict[str, Any]] = []
    for keys, x in scan_inputs(backend.connection, predictor.decoding, query, key):
        values = predictor.probabilities(x)  # (n, classes) or (n, 1)
        best = values.argmax(1)
        for row, name in enumerate(keys):
            number = float(values[row, best[row]])
            label = str(number) if classes is None else str(classes[best[row]])
            probability = None if classes is None else number
            found.append({"key": name, "prediction": label, "probability": probability})
    return found


@exposed
def evaluate(backend: Backend, model: str, dataset: str) -> list[dict[str, Any]]:
    """Return metrics over the validation slice, or over all rows where there is none."""
    connection = backend.connection
    predictor = _predictor(backend, model)
    found = find_dataset(connection, dataset)
    if found.dropped:
        raise DatasetDropped(f"Dataset {dataset!r} has been dropped.")
    if (found.input_shape, found.classes) != (
        predictor.decoding.input_shape,
        predictor.decoding.classes,
    ):
        raise InvalidInput(
            f"Dataset {dataset!r} has other features or classes than model {model!r} was "
            "trained on."
        )
    held_out = [p for p in found.partitions if p.role == "validation"]
    outputs, labels = [], []
    for part in held_out or found.partitions:
        x, y = read_partition(connection, part.part_id, part.content_hash)
        outputs.append(predictor.output(x))
        labels.append(torch.from_numpy(y))
    output = torch.cat(outputs)
    y_all = torch.cat(labels)
    if y_all.is_floating_point():
        output = output.reshape(len(y_all))
    values = metrics(output, y_all, predictor.decoding.task)
    return [{"metric": name, "value": value} for name, value in values.items()]
