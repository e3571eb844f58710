"""`save_candidate`, `predict`, `predict_query` and `evaluate`."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mmdb.data.dataset import find_dataset, find_decoding
from mmdb.data.decoded import Decoded, Inputs
from mmdb.data.decoding import Decoding, Label
from mmdb.data.inputs import encoders_of, object_input, scan_inputs, vector_input
from mmdb.data.reader import read_partition
from mmdb.data.tokenize import Encoder
from mmdb.errors import DatasetDropped, InvalidInput
from mmdb.graph.values import show
from mmdb.server.arguments import json_object, json_value
from mmdb.server.backend import Backend, exposed
from mmdb.store.models import find_model
from mmdb.train.batch import fitted, outputs_of
from mmdb.train.candidate.metrics import default_metrics
from mmdb.train.compute.hop import EVALUATION_BATCH
from mmdb.train.compute.hop import predict as run_module
from mmdb.train.recipe import save

#: Models that a session keeps for prediction; the least recently used one goes first.
KEPT_MODELS = 8


@dataclass(frozen=True, slots=True)
class _Predictor:
    module: nn.Module
    decoding: Decoding
    encoders: Mapping[str, Encoder]

    def outputs(self, inputs: Inputs) -> tuple[Tensor, ...]:
        """Return the module's output for each target, float32 (n, size)."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        targets = self.decoding.targets
        try:
            found = [outputs_of(run_module(self.module, x), targets) for x in _parts(inputs)]
        finally:
            torch.set_num_threads(before)
        return tuple(map(torch.cat, zip(*found, strict=True)))

    def values(self, inputs: Inputs) -> list[np.ndarray]:
        """Return for each target the probabilities, or a regression's values, (n, size)."""
        outputs = zip(self.decoding.labels, self.outputs(inputs), strict=True)
        return [
            _probable(label, output).reshape(len(output), -1).numpy() for label, output in outputs
        ]


def _probable(label: Label, output: Tensor) -> Tensor:
    if label.task == "classification":
        return torch.softmax(output, dim=-1)
    return torch.sigmoid(output) if label.task == "multilabel" else output


def _parts(inputs: Inputs) -> Iterator[Tensor | dict[str, Tensor]]:
    """Yield the rows that one forward pass takes."""
    arrays = Decoded(inputs, ()).input_arrays
    for start in range(0, len(arrays[0]), EVALUATION_BATCH):
        rows = slice(start, start + EVALUATION_BATCH)
        if isinstance(inputs, dict):
            yield {name: torch.from_numpy(array[rows]) for name, array in inputs.items()}
        else:
            yield torch.from_numpy(inputs[rows])


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
        encoders = encoders_of(connection, decoding)
        kept[saved.model_id] = _Predictor(backend.recover(saved), decoding, encoders)
        while len(kept) > KEPT_MODELS:
            kept.popitem(last=False)
    kept.move_to_end(saved.model_id)
    return kept[saved.model_id]


@exposed
def save_candidate(
    backend: Backend, candidate_id: int, name: str, approach: str, options: str
) -> list[dict[str, Any]]:
    """Save a candidate's best checkpoint; see `mmdb.train.recipe.save.save_candidate`."""
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
    """Return probabilities, or the value of a regression, of each target in turn, for one row."""
    predictor = _predictor(backend, model)
    value = json_value(x) if isinstance(x, str) else x
    given: Inputs
    if isinstance(value, dict):
        given = object_input(predictor.decoding, value, predictor.encoders)
    elif isinstance(value, list):
        given = vector_input(predictor.decoding, value)
    else:
        raise InvalidInput(f"The input is {show(value)}.")
    return [float(p) for values in predictor.values(given) for p in values[0]]


@exposed
def predict_query(backend: Backend, model: str, query: str, key: str) -> list[dict[str, Any]]:
    """Return key, prediction and probability of the first target for every row of a SELECT."""
    predictor = _predictor(backend, model)
    label = predictor.decoding.labels[0]
    found: list[dict[str, Any]] = []
    for keys, inputs in scan_inputs(backend.connection, predictor.decoding, query, key):
        values = predictor.values(inputs)[0]
        found += [
            {"key": name} | _prediction(label, row) for name, row in zip(keys, values, strict=True)
        ]
    return found


def _prediction(label: Label, values: np.ndarray) -> dict[str, Any]:
    """Return what is predicted for one row, and how probable it is.

    Args:
        values: (size,), see `_Predictor.values`.
    """
    if label.task == "multilabel":
        return {"prediction": json.dumps([float(p) for p in values]), "probability": None}
    best = int(values.argmax())
    number = float(values[best])
    if label.classes is None:
        return {"prediction": str(number), "probability": None}
    return {"prediction": str(label.classes[best]), "probability": number}


@exposed
def evaluate(backend: Backend, model: str, dataset: str) -> list[dict[str, Any]]:
    """Return metrics over the validation slice, or over all rows where there is none."""
    connection = backend.connection
    predictor = _predictor(backend, model)
    found = find_dataset(connection, dataset)
    if found.dropped:
        raise DatasetDropped(f"Dataset {dataset!r} has been dropped.")
    if _form(found.decoding) != _form(predictor.decoding):
        raise InvalidInput(
            f"Dataset {dataset!r} has other features or classes than model {model!r} was "
            "trained on."
        )
    held_out = [p for p in found.partitions if p.role == "validation"]
    outputs, labels = [], []
    for part in held_out or found.partitions:
        decoded = read_partition(connection, part.part_id, part.content_hash)
        outputs.append(predictor.outputs(decoded.inputs))
        labels.append(tuple(map(torch.from_numpy, decoded.label_arrays)))
    values: dict[str, float] = {}
    for place, label in enumerate(predictor.decoding.labels):
        y = torch.cat([parts[place] for parts in labels])
        output = fitted(torch.cat([parts[place] for parts in outputs]), y)
        prefix = f"{label.name}." if len(predictor.decoding.labels) > 1 else ""
        for name, value in default_metrics(output, y, label.task).items():
            values[prefix + name] = value
    return [{"metric": name, "value": value} for name, value in values.items()]


def _form(decoding: Decoding) -> object:
    """Return what two datasets share where a model of one can be measured on the other."""
    labels = [(label.task, label.width, label.classes) for label in decoding.labels]
    return decoding.input_shape, decoding.input_dtype, labels
