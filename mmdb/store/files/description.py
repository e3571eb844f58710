"""What is said of a model beside its tensors, as it leaves and enters a database."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from mmdb.arguments import is_number, is_whole
from mmdb.data.assembly import assemble
from mmdb.data.calibration import Calibration
from mmdb.data.dataset import find_decoding
from mmdb.data.decoding import TASKS, Column, ColumnKind, Decoding, class_text
from mmdb.data.forms import put_form
from mmdb.data.names import check_name
from mmdb.data.transform.fitting import check_asked
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import FileDamaged, InputError
from mmdb.graph.spec.factory_call import Outputs, Shape
from mmdb.store.models.model_rows import ModelDefinition, SavedModel
from mmdb.store.models.registry import log_metric, note_model, tag_model
from mmdb.store.models.save import About

_Q, _S = load("exchange"), load("sync")
#: Numbers of a column that comes from a file, at most.
_WIDEST = 2**24
_MALFORMED = (
    ArithmeticError, AssertionError, AttributeError, InputError, LookupError, TypeError, ValueError
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A model's definition, metrics, tags, notes, and what its rows become."""

    definition: ModelDefinition | None = None
    metrics: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (metric, dataset)
    tags: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dataset: Mapping[str, Any] | None = None  # see `mmdb.data.forms.put_form`
    calibration: Mapping[str, Any] | None = None  # see `mmdb.data.calibration`

    @classmethod
    def of(cls, connection: Connection, model: SavedModel) -> Description:
        """Return what the database knows of a model."""
        key = {"model_id": model.model_id}
        metrics = connection.rows(_Q.find_metrics, **key)
        return cls(
            definition=model.definition,
            calibration=None if model.calibration is None else json.loads(model.calibration),
            metrics={(row["metric"], row["dataset"]): row["value"] for row in metrics},
            tags={row["key"]: row["value"] for row in connection.rows(_Q.find_tags, **key)},
            notes=tuple(row["note"] for row in connection.rows(_Q.find_notes, **key)),
            dataset=next(
                (
                    {name: row[name] for name in ("name", "row_count", "created")}
                    | {"content_hash": bytes(row["content_hash"]).hex()}
                    | find_decoding(connection, model.dataset_id or 0).to_json()
                    for row in connection.rows(_S.read_dataset, dataset_id=model.dataset_id)
                ),
                None,
            ),
        )

    def json(self) -> dict[str, Any]:
        """Return what `parse` reads; numbers that JSON lacks are texts."""
        return {
            "definition": None if self.definition is None else _definition_json(self.definition),
            "metrics": [
                {"metric": m, "dataset": d, "value": v if math.isfinite(v) else repr(v)}
                for (m, d), v in self.metrics.items()
            ],
            "tags": dict(self.tags),
            "notes": list(self.notes),
            "dataset": self.dataset,
            "calibration": self.calibration,
        }

    @classmethod
    def parse(cls, value: Mapping[str, Any], where: object) -> Description:
        """Return a description out of JSON that anybody may have written.

        Raises:
            FileDamaged
        """
        try:
            return cls(
                definition=_parse_definition(value.get("definition")),
                metrics={
                    (_text(row["metric"]), _text(row["dataset"])): float(row["value"])
                    for row in value.get("metrics", [])
                },
                tags={_text(k): _text(v) for k, v in value.get("tags", {}).items()},
                notes=tuple(map(_text, value.get("notes", []))),
                dataset=_checked_dataset(value.get("dataset")),
                calibration=_checked_calibration(value.get("calibration"), value.get("dataset")),
            )
        except _MALFORMED as error:
            raise FileDamaged(f"What {where} says of its model is not well formed.") from error

    def about(self, connection: Connection) -> About:
        """Return what a save takes, in a transaction; the rest follows with `add_to`."""
        known = {m: v for (m, d), v in self.metrics.items() if not d and math.isfinite(v)}
        dataset_id = None
        if self.dataset is not None:
            dataset_id = put_form(connection, self.dataset)
        return About(
            definition=self.definition,
            metrics=known,
            dataset_id=dataset_id,
            calibration=self.calibration,
        )

    def add_to(self, connection: Connection, model: SavedModel) -> None:
        """Add to a model the metrics, tags and notes that it lacks; what it has stays."""
        there = Description.of(connection, model)
        for (metric, dataset), value in self.metrics.items():
            if (metric, dataset) not in there.metrics and not math.isnan(value):
                log_metric(connection, model.reference, metric, value, dataset=dataset)
        for key, text in self.tags.items():
            if key not in there.tags:
                tag_model(connection, model.reference, key, text)
        for note in self.notes:
            if note not in there.notes:
                note_model(connection, model.reference, note)


def _checked_calibration(value: Any, dataset: Any) -> Mapping[str, Any] | None:
    """Return how a model decides between the classes of its dataset."""
    if value is None or dataset is None:
        return None
    (label,) = Decoding.from_json(dataset).labels
    names = [class_text(one) for one in label.classes or ()]
    return Calibration.from_json(value, names).to_json(names)


def _checked_dataset(value: Any) -> Mapping[str, Any] | None:
    """Return the form of a dataset that a database can hold, and that rows can be read by."""
    if value is None:
        return None
    _text(json.dumps(value, allow_nan=False, ensure_ascii=False).replace("\\u0000", "\0"))
    bytes.fromhex(value["content_hash"])
    check_name(value["name"])
    if not is_whole(value["row_count"], 0, 2**62) or not is_number(value["created"], 0, 2**33):
        raise ValueError("row_count or created")
    found = Decoding.from_json(value)
    for column in found.columns:
        given, wide = column.transform, _whole(column.width)
        if column.kind not in get_args(ColumnKind):
            raise ValueError(column.kind)
        if given is not None:
            check_asked(column.name, given.source, {"kind": given.kind, **given.parameters})
            wide = math.prod(given.statistics["shape"]) if given.kind == "picture" else wide
        if wide > _WIDEST:
            raise ValueError(column.name)
    names = {_text(column.name) for column in found.columns}
    if len(names) < len(found.columns) or not {label.task for label in found.labels} <= {*TASKS}:
        raise ValueError("columns or labels")
    assert found.canonical_json() and found.inputs
    assert all(_whole(size) for given in found.inputs for size in given.shape)
    assemble(found, {column.name: _blank(column) for column in found.features})
    return dict(value)


def _blank(column: Column) -> Any:
    """Return a row's value, NULL where that may be."""
    if column.transform is None or column.transform.source == "picture":
        return np.zeros((1, column.decoded_width))
    return [None] if column.transform.source == "text" else np.array([np.nan])


def _definition_json(definition: ModelDefinition) -> dict[str, Any]:
    shape = definition.input_shape
    return {
        "architecture": definition.architecture,
        "arguments": definition.arguments,
        "input_shape": {name: list(size) for name, size in shape.items()}
        if isinstance(shape, dict)
        else list(shape),
        "outputs": definition.outputs,
    }


def _parse_definition(value: Any) -> ModelDefinition | None:
    if value is None:
        return None
    return ModelDefinition(
        architecture=_object(value["architecture"]),
        arguments=_object(value["arguments"]),
        input_shape=_shape(value["input_shape"]),
        outputs=_outputs(value["outputs"]),
    )


def _shape(value: Any) -> Shape:
    if isinstance(value, dict):
        return {_text(name): tuple(map(_whole, shape)) for name, shape in value.items()}
    return tuple(map(_whole, value))


def _outputs(value: Any) -> Outputs:
    if isinstance(value, dict):
        return {_text(name): _whole(size) for name, size in value.items()}
    return _whole(value)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError("not a text")
    value.encode()  # half of a surrogate pair is no text
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**31:
        raise TypeError("not a whole number")
    return value
