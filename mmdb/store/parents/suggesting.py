"""Suggests what models without lineage were made from, and records what a person accepts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmdb.arguments import check_whole
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import require_owner
from mmdb.db.queries import load
from mmdb.errors import InvalidOption, ModelNotFound, StoreError
from mmdb.store.models.model_rows import SavedModel, find_model, model_of
from mmdb.store.models.recover import ModelReader
from mmdb.store.parents.heritage import (
    RELATED,
    TENSORS,
    Key,
    Sample,
    sample_place,
    similarities,
    suggest_parents,
)
from mmdb.store.parents.judging import hold
from mmdb.store.tensors.tensor_bytes import DTYPES

_Q = load("heritage")
#: Models with the same largest weight that are compared: the newest.
MOST_MODELS = 500
_SUGGESTED = "suggested by the weights alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentSuggestion:
    """What a model without lineage may have been made from."""

    model: str  # name@version, as is the parent
    parent: str | None
    similarity: float | None  # correlation of the weights that both have, to 1
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarModel:
    """A model with weights like those of the one that was asked about."""

    other: str  # name@version
    similarity: float  # correlation of the weights that both have, to 1
    relation: str  # what it seems to be: parent, child or relative
    reason: str


def similar_models(connection: Connection, model: str, k: int = 10) -> list[SimilarModel]:
    """Return the models whose weights are like a model's, the likely parent first.

    Nothing is written: a parent that is suggested is lineage once `accept_parent` says so.

    Raises:
        ModelNotFound
        InvalidOption: k is no whole number from 1.
    """
    most = check_whole(k, "k", 1, 10_000)
    asked = find_model(connection, model)
    rows = connection.rows(_Q.list_weights)
    own = [row for row in rows if row["model_id"] == asked.model_id]
    if not own or len(own[0]["shape"]) < 2:
        return []
    family = _Family.read(
        connection, [row for row in rows if _weight(row) == _weight(own[0])], asked
    )
    at = family.place_of(asked.model_id)
    if at is None:
        return []
    alike = similarities(family.samples)[at]
    parents = {one.child: one.parent for one in suggest_parents(family.samples, family.known)}
    parents |= family.known
    found = []
    for place in np.argsort(-alike, kind="stable").tolist():
        if place == at or alike[place] <= RELATED:
            continue
        is_parent, is_child = parents.get(at) == place, parents.get(place) == at
        is_known = (is_parent and at in family.known) or (is_child and place in family.known)
        found.append(
            SimilarModel(
                other=family.models[place].reference,
                similarity=float(alike[place]),
                relation="parent" if is_parent else "child" if is_child else "relative",
                reason="recorded" if is_known else _SUGGESTED,
            )
        )
    return sorted(found, key=lambda one: one.relation != "parent")[:most]


def propose_parents(connection: Connection) -> list[ParentSuggestion]:
    """Return the likely parent of each model without lineage, the oldest models first.

    Models are compared with those that have the same largest weight, of which the newest
    MOST_MODELS count. Nothing is written.
    """
    families: dict[Key, list[Row]] = {}
    for row in connection.rows(_Q.list_weights):
        families.setdefault(_weight(row), []).append(row)
    found = []
    for rows in families.values():
        if len(rows[0]["shape"]) < 2 or all(_has_lineage(row) for row in rows):
            continue
        family = _Family.read(connection, rows)
        for one in suggest_parents(family.samples, family.known):
            child = family.models[one.child]
            parent = None if one.parent is None else family.models[one.parent].reference
            suggestion = ParentSuggestion(
                model=child.reference,
                parent=parent,
                similarity=one.similarity,
                reason=_SUGGESTED
                if parent
                else "no older relative: the root of its family, or alone",
            )
            found.append((child.model_id, suggestion))
    return [suggestion for _, suggestion in sorted(found, key=lambda each: each[0])]


def accept_parent(connection: Connection, model: str, parent: str | None) -> str:
    """Record what a model without lineage was made from; return it as `name@version`.

    Args:
        parent: the model; None takes back what was accepted.
    Raises:
        ModelNotFound
        InvalidOption: the model has a parent that was told when it was saved, or the parent is
            made from it.
        RightsMissing: the model is another role's.
    """
    with connection.transaction():
        child = find_model(connection, model)
        require_owner(connection, "model", child.reference, child.model_id)
        (row,) = connection.rows(_Q.find_reason, model_id=child.model_id)
        reason = json.loads(row["reason"])
        if child.parent_id is not None and reason.get("parent") != "accepted":
            raise InvalidOption(
                f"Model {child.reference} has a parent already, which was told when it was saved.",
                hint=f"SELECT * FROM mmdb.lineage('{child.reference}') shows it.",
            )
        reason.pop("parent", None)
        found = None
        if parent is not None:
            found = find_model(connection, parent)
            hold(connection, found.model_id, found.reference)
            _check_older(connection, found, child)
            reason["parent"] = "accepted"
        parent_id = None if found is None else found.model_id
        written = {"parent_id": parent_id, "reason": json.dumps(reason)}
        if not connection.rows(_Q.set_parent, model_id=child.model_id, **written):
            raise ModelNotFound(f"Model {child.reference!r} has just been dropped.")
    return child.reference


def _check_older(connection: Connection, parent: SavedModel, child: SavedModel) -> None:
    """Check that a parent was not made from its child."""
    line, at = {parent.model_id}, parent
    while at.model_id != child.model_id:
        if at.parent_id is None or at.parent_id in line:
            return
        line.add(at.parent_id)
        at = model_of(connection, at.parent_id)
    raise InvalidOption(f"Model {parent.reference} is, or was made from, {child.reference} itself.")


@dataclass(frozen=True, slots=True)
class _Family:
    """Models that are compared, the oldest first, and what is known of their lineage."""

    models: Sequence[SavedModel]
    samples: Sequence[Sample]
    known: dict[int, int | None]  # by place in models

    @classmethod
    def read(
        cls, connection: Connection, rows: Sequence[Row], asked: SavedModel | None = None
    ) -> _Family:
        """Return a family from rows of `list_weights`, newest first; `asked` is always in it."""
        chosen = [
            r
            for k, r in enumerate(rows)
            if k < MOST_MODELS or (asked and r["model_id"] == asked.model_id)
        ]
        reader, models, samples = ModelReader(connection), [], []
        for row in reversed(chosen):
            model = model_of(connection, row["model_id"])
            try:
                samples.append(_sample(reader, model))
            except (StoreError, ModelNotFound):  # damaged, or just dropped
                continue
            models.append(model)
        place = {model.model_id: k for k, model in enumerate(models)}
        known = {
            place[row["model_id"]]: place.get(row["parent_id"])
            for row in chosen
            if _has_lineage(row) and row["model_id"] in place
        }
        return cls(models, samples, known)

    def place_of(self, model_id: int) -> int | None:
        """Return where a model is; None where its tensors could not be read."""
        found = [place for place, model in enumerate(self.models) if model.model_id == model_id]
        return found[0] if found else None


def _sample(reader: ModelReader, model: SavedModel) -> Sample:
    """Return a few rows of the largest weights of a model."""
    weights = [
        entry
        for entry in reader.catalog(model).entries
        if entry.kind == "parameter" and entry.tied_to is None and entry.layout is None
        if len(entry.shape) > 1 and entry.byte_count and DTYPES[entry.dtype].is_floating_point
    ]
    weights.sort(key=lambda entry: (-entry.byte_count, entry.path))
    places = {entry.path: sample_place((entry.path, entry.shape)) for entry in weights[:TENSORS]}
    rows = reader.rows_of(model, {path: place[:2] for path, place in places.items()})
    return {
        (entry.path, entry.shape): np.nan_to_num(
            rows[entry.path]
            .float()
            .reshape(len(rows[entry.path]), -1)[:, : places[entry.path][2]]
            .numpy(),
            posinf=0.0,
            neginf=0.0,
        )
        for entry in weights[:TENSORS]
    }


def _weight(row: Row) -> Key:
    return row["path"], tuple(row["shape"])


def _has_lineage(row: Row) -> bool:
    return row["parent_id"] is not None or bool(row["is_trained"])
