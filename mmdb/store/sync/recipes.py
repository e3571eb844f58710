"""Whether a recipe of one database can be followed in another, as far as rows say."""

from __future__ import annotations

import json

from mmdb.data.functions import find_factories
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.graph.spec.parse import factories_in
from mmdb.store.sync.lineage import find_dataset

_Q = load("sync")


def find_obstacle(
    source: Connection, target: Connection, model: Row, recipe: Row | None, *, data: bool
) -> str | None:
    """Return why the target could not follow a model's recipe; None if nothing is against it.

    Args:
        model: a row of `read_model`.
        data: its dataset's blocks are sent, too.
    """
    if recipe is None:
        return "it has no recipe"
    trainer = recipe["trainer"]
    if trainer is not None:
        query = load("recipes").find_trainer
        if list(source.rows(query, name=trainer)) != list(target.rows(query, name=trainer)):
            return f"trainer {trainer!r} is not registered there as it is here"
    return _data_obstacle(source, target, model, data) or _factory_obstacle(source, target, model)


def _data_obstacle(source: Connection, target: Connection, model: Row, data: bool) -> str | None:
    if model["dataset_id"] is None:
        return None
    (dataset,) = source.rows(_Q.read_dataset, dataset_id=model["dataset_id"])
    there = find_dataset(source, target, model["dataset_id"])
    if there is not None and not there.is_dropped:
        return None
    if data and not dataset["is_dropped"]:
        return None
    return f"dataset {dataset['name']!r} is not there"


def _factory_obstacle(source: Connection, target: Connection, model: Row) -> str | None:
    if model["definition_id"] is None:
        return None
    (definition,) = source.rows(_Q.read_definition, definition_id=model["definition_id"])
    here, there = find_factories(source), find_factories(target)
    for name in factories_in(json.loads(definition["architecture"])):
        if here.get(name) != there.get(name):
            return f"factory {name!r} is not registered there as it is here"
    return None
