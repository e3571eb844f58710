"""The rows of a model, from one database into another: its list of tensors, and the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import WriteConflict
from mmdb.store.models.model_rows import StoredEntry, find_entries
from mmdb.store.models.registry import note_model, set_alias
from mmdb.store.sync.exchange import Need, TensorExchange, There, same_model
from mmdb.store.tensors.state_entries import Entry
from mmdb.store.tensors.tensor_bytes import PACKED_BELOW

_Q = load("sync")
_M = load("models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which tensors a copy has, by their hashes. Without a list it is kept by its recipe."""

    needs: Sequence[Need] = ()  # that are not sent yet
    pack: bytes | None = None
    base: There | None = None  # whose tensors it has, but for those changed
    changed: Mapping[int, bytes] = field(default_factory=dict)  # by ordinal
    listed: Sequence[tuple[Entry, bytes]] | None = None  # all of them, without a base
    approach: str | None = None  # where it is not the source's

    @property
    def is_recipe(self) -> bool:
        """Whether it is kept by its recipe."""
        return self.base is None and self.listed is None


def find_listing(
    exchange: TensorExchange, model: Row, relatives: Sequence[Row], there: Sequence[There]
) -> Listing:
    """Return a model's tensors: its changes to a model that both sides have, or all of them.

    Args:
        model: a row of `read_model`.
        relatives: rows of `find_relatives`, nearest first.
        there: the target's models with the weights of these.
    """
    pack = None if model["pack_hash"] is None else bytes(model["pack_hash"])
    needs = [] if pack is None else [Need(model["pack_id"], pack, True)]
    found = _find_base(exchange, model["manifest_id"], relatives, there)
    if found is None:
        entries = find_entries(exchange.source, model["model_id"])
        needs += [Need(e.tensor_id, e.tensor_hash, _has_chunks(e)) for e in entries]
        return Listing(needs=needs, pack=pack, listed=[(e, e.tensor_hash) for e in entries])
    other_id, base = found
    changed = exchange.source.rows(
        _Q.find_changed,
        model_id=model["model_id"],
        other_id=other_id,
        packed_below=PACKED_BELOW,
    )
    return Listing(
        needs=needs + [need_of(row) for row in changed],
        pack=pack,
        base=base,
        changed={row["ordinal"]: bytes(row["tensor_hash"]) for row in changed},
    )


def _find_base(
    exchange: TensorExchange, manifest_id: int, relatives: Sequence[Row], there: Sequence[There]
) -> tuple[int, There] | None:
    """Return the nearest relative with a manifest that both sides have, as source and target do."""
    odd: list[tuple[Any, ...]] | None = None
    for row in relatives:
        if row["manifest_id"] != manifest_id:
            continue
        listed = [m for m in there if m.manifest_id is not None]
        found = same_model(listed, bytes(row["weights_hash"]), row["name"], row["version"])
        if found is None or found.is_dropped or found.manifest_id is None:
            continue
        odd = _odd_entries(exchange.source, manifest_id) if odd is None else odd
        if _odd_entries(exchange.target, found.manifest_id) == odd:
            return row["model_id"], found
    return None


def _odd_entries(connection: Connection, manifest_id: int) -> list[tuple[Any, ...]]:
    """Return what the weights_hash of a model with this manifest leaves open of its entries."""
    return [
        (
            row["ordinal"],
            row["trainable"],
            row["tied_to"],
            None if row["layout"] is None else json.loads(row["layout"]),
        )
        for row in connection.rows(_Q.find_odd_entries, manifest_id=manifest_id)
    ]


def _has_chunks(entry: StoredEntry) -> bool:
    return not entry.is_small and entry.layout is None and entry.tied_to is None


def need_of(row: Row) -> Need:
    """Return the tensor of a row that has tensor_id, tensor_hash and has_chunks."""
    return Need(row["tensor_id"], bytes(row["tensor_hash"]), row["has_chunks"])


def write_listing(exchange: TensorExchange, listing: Listing, values: Mapping[str, object]) -> int:
    """Add a model's row and its list of tensors; return its number.

    Args:
        values: the other parameters of `add_copied_model`.
    Raises:
        WriteConflict: the model that it is described by was dropped meanwhile.
    """
    target, base = exchange.target, listing.base
    manifest_id = None
    if base is not None:
        if not target.rows(load("registry").hold_model, model_id=base.model_id):
            raise WriteConflict(f"Model {base.reference} has just been dropped.")
        manifest_id = base.manifest_id
    elif listing.listed is not None:
        manifest_id = _add_manifest(exchange, listing.listed)
    pack_id = None if listing.pack is None else exchange.held[listing.pack].tensor_id
    (added,) = target.rows(_Q.add_copied_model, **values, manifest_id=manifest_id, pack_id=pack_id)
    own = int(added["model_id"])
    if base is not None:
        target.run(
            _Q.copy_changes, model_id=own, other_id=base.model_id, ordinals=list(listing.changed)
        )
    changes = [(own, k, exchange.held[name].tensor_id) for k, name in listing.changed.items()]
    if changes:
        target.append(_M.add_change, changes)
    return own


def _add_manifest(exchange: TensorExchange, listed: Sequence[tuple[Entry, bytes]]) -> int:
    (added,) = exchange.target.rows(_M.add_manifest)
    exchange.target.append(
        _M.add_manifest_tensor,
        [
            (
                added["manifest_id"],
                entry.ordinal,
                entry.path,
                exchange.held[name].tensor_id,
                entry.kind,
                entry.trainable,
                entry.tied_to,
                None if entry.layout is None else json.dumps(entry.layout),
            )
            for entry, name in listed
        ],
    )
    return int(added["manifest_id"])


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
