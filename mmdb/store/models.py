"""Models: named, versioned, immutable sets of tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import ModelNotFound
from mmdb.store.tensors import get_tensor, put_tensor

_Q = load("models")
_REFERENCE = re.compile(r"(?P<name>[^@]+)(?:@(?P<version>\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model's row, with what it takes to build it."""

    model_id: int
    name: str
    version: int
    architecture: dict[str, Any]
    arguments: dict[str, Any]
    dataset_id: int

    @classmethod
    def from_row(cls, row: Row) -> SavedModel:
        """Return the value of a row of `find_model`."""
        read = {key: json.loads(row[key]) for key in ("architecture", "arguments")}
        return cls(**(dict(row) | read))


def save_model(
    connection: Connection,
    name: str,
    weights: Mapping[str, torch.Tensor],
    *,
    architecture: Mapping[str, Any],
    arguments: Mapping[str, Any],
    dataset_id: int,
    candidate_id: int,
    epoch: int,
    metrics: Mapping[str, float],
) -> Row:
    """Save weights as the next version of a model; return model_id, name and version.

    The same candidate and epoch under the same name is not saved twice.
    """
    with connection.transaction():
        versions = connection.rows(_Q.find_versions, name=name)
        for row in versions:
            if (row["candidate_id"], row["epoch"]) == (candidate_id, epoch):
                return row
        version = versions[0]["version"] + 1 if versions else 1
        (added,) = connection.rows(
            _Q.add_model,
            name=name,
            version=version,
            architecture=json.dumps(architecture),
            arguments=json.dumps(arguments),
            dataset_id=dataset_id,
            candidate_id=candidate_id,
            epoch=epoch,
            metrics=json.dumps(metrics),
        )
        members = [
            {
                "model_id": added["model_id"],
                "ordinal": ordinal,
                "path": path,
                "tensor_hash": put_tensor(connection, tensor),
            }
            for ordinal, (path, tensor) in enumerate(weights.items())
        ]
        connection.run_many(_Q.add_model_tensor, members)
    return {"model_id": added["model_id"], "name": name, "version": version}


def find_model(connection: Connection, reference: str) -> SavedModel:
    """Return the model that `name` (its newest version) or `name@version` names.

    Raises:
        ModelNotFound
    """
    match = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    versions = connection.rows(_Q.find_versions, name=match["name"]) if match else []
    if match and match["version"]:
        versions = [row for row in versions if row["version"] == int(match["version"])]
    if not versions:
        raise ModelNotFound(f"There is no model {reference!r}.")
    (row,) = connection.rows(_Q.find_model, model_id=versions[0]["model_id"])
    return SavedModel.from_row(row)


def load_weights(connection: Connection, model_id: int) -> dict[str, torch.Tensor]:
    """Return a model's tensors by path, in the order of its state dict."""
    return {
        row["path"]: get_tensor(connection, row["tensor_hash"], row["dtype"], row["shape"])
        for row in connection.rows(_Q.find_model_tensors, model_id=model_id)
    }
