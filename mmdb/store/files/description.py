"""What is said of a model beside its tensors, as it leaves and enters a database."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import FileDamaged
from mmdb.graph.spec.factory_call import Outputs, Shape
from mmdb.store.models.model_rows import ModelDefinition, SavedModel
from mmdb.store.models.registry import log_metric, note_model, tag_model
from mmdb.store.models.save import About

_Q = load("exchange")


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A model's definition, metrics, tags and notes."""

    definition: ModelDefinition | None = None
    metrics: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (metric, dataset)
    tags: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, connection: Connection, model: SavedModel) -> Description:
        """Return what the database knows of a model."""
        key = {"model_id": model.model_id}
        metrics = connection.rows(_Q.find_metrics, **key)
        return cls(
            definition=model.definition,
            metrics={(row["metric"], row["dataset"]): row["value"] for row in metrics},
            tags={row["key"]: row["value"] for row in connection.rows(_Q.find_tags, **key)},
            notes=tuple(row["note"] for row in connection.rows(_Q.find_notes, **key)),
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
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise FileDamaged(f"What {where} says of its model is not well formed.") from error

    def about(self) -> About:
        """Return what a save takes; the rest follows with `add_to`."""
        known = {m: v for (m, d), v in self.metrics.items() if not d and math.isfinite(v)}
        return About(definition=self.definition, metrics=known)

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
