"""The rows of a model beside its tensors, from one database into another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.store.registry import note_model, set_alias

_Q = load("sync")
_M = load("models")
_R = load("recipes")
_A = load("architectures")
_PARTS = ("definition_id", "architecture_id", "environment_id")


def put_parts(source: Connection, target: Connection, model: Row) -> dict[str, int | None]:
    """Return the target's definition, architecture and environment of a model.

    Each is known by its hash, and added where the target lacks it.
    """
    names = ("definition_hash", "canonical_hash", "environment_hash")
    hashes = {name: None if model[name] is None else bytes(model[name]) for name in names}
    there = dict(target.rows(_Q.find_parts, **hashes)[0])
    puts = (_put_definition, _put_architecture, _put_environment)
    for column, put in zip(_PARTS, puts, strict=True):
        if model[column] is not None and there[column] is None:
            there[column] = put(source, target, model[column])
    return there


def _put_definition(source: Connection, target: Connection, definition_id: int) -> int:
    (row,) = source.rows(_Q.read_definition, definition_id=definition_id)
    target.run(_M.add_definition, **row)
    (found,) = target.rows(_M.find_definition, definition_hash=row["definition_hash"])
    return int(found["definition_id"])


def _put_environment(source: Connection, target: Connection, environment_id: int) -> int:
    (row,) = source.rows(_Q.read_environment, environment_id=environment_id)
    target.run(_R.add_environment, **row)
    name = row["environment_hash"]
    (found,) = target.rows(_R.find_environment_id, environment_hash=name)
    return int(found["environment_id"])


def _put_architecture(source: Connection, target: Connection, architecture_id: int) -> int:
    key = {"architecture_id": architecture_id}
    (row,) = source.rows(_Q.read_architecture, **key)
    added = target.rows(_A.add_architecture, **row)
    if not added:  # another session was faster
        (found,) = target.rows(_A.find_architecture, canonical_hash=row["canonical_hash"])
        return int(found["architecture_id"])
    own = int(added[0]["architecture_id"])
    target.run_many(_A.add_prefix, source.rows(_Q.read_prefixes, **key))
    nodes, edges = source.rows(_A.read_nodes, **key), source.rows(_Q.read_edges, **key)
    target.append(_A.add_node, [(own, *node.values()) for node in nodes])
    target.append(_A.add_edge, [(own, *edge.values()) for edge in edges])
    return own


def put_recipe(
    target: Connection, model_id: int, recipe: Row, states: Sequence[tuple[str, int]]
) -> None:
    """Add how a model is made again.

    Args:
        states: path and tensor_id, of the target.
    """
    target.run(_Q.add_copied_recipe, model_id=model_id, **recipe)
    target.append(_R.add_recipe_tensor, [(model_id, path, k) for path, k in states])


def put_said(
    source: Connection, target: Connection, model_id: int, own: int, reference: str
) -> None:
    """Give a model the tags, metrics and notes that it has at the source.

    Who wrote a note, and when, is whoever copies it, now: nobody may say otherwise.

    Args:
        model_id: at the source; `own` and `reference` at the target.
    """
    said: dict[str, list[Row]] = {"tag": [], "metric": [], "note": []}
    for row in source.rows(_Q.read_said, model_id=model_id):
        said[row["kind"]].append(row)
    if said["tag"]:
        target.run_many(
            _Q.add_copied_tag,
            [
                {"model_id": own, "key": r["name"], "value": r["detail"], "created": r["created"]}
                for r in said["tag"]
            ],
        )
    if said["metric"]:
        target.run_many(_Q.add_copied_metric, [_metric(own, row) for row in said["metric"]])
    for row in said["note"]:
        note_model(target, reference, row["detail"])


def _metric(own: int, row: Row) -> dict[str, Any]:
    return {
        "model_id": own,
        "metric": row["name"],
        "dataset": row["detail"],
        "value": row["value"],
        "created": row["created"],
    }


def put_aliases(
    source: Connection, target: Connection, at: tuple[str, int], own: tuple[str, int]
) -> None:
    """Let the aliases that are at a version of the source be at one of the target."""
    rows = source.rows(load("registry").find_aliases, model=at[0], version=at[1])
    for row in rows:
        found = target.rows(load("registry").find_alias, model=own[0], alias=row["alias"])
        if not found or found[0]["version"] != own[1]:
            set_alias(target, own[0], own[1], row["alias"])
