"""The list of a model's tensors at the target: changes to a manifest there, or a new one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import WriteConflict
from mmdb.store.chunks import PACKED_BELOW
from mmdb.store.entries import Entry
from mmdb.store.models import StoredEntry, find_entries
from mmdb.store.sync.plan import Need, There, same_model
from mmdb.store.sync.sides import Exchange

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
    exchange: Exchange, model: Row, relatives: Sequence[Row], there: Sequence[There]
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
    exchange: Exchange, manifest_id: int, relatives: Sequence[Row], there: Sequence[There]
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
    return entry.layout is None and entry.byte_count >= PACKED_BELOW


def need_of(row: Row) -> Need:
    """Return the tensor of a row that has tensor_id, tensor_hash and has_chunks."""
    return Need(row["tensor_id"], bytes(row["tensor_hash"]), row["has_chunks"])


def write_listing(exchange: Exchange, listing: Listing, values: Mapping[str, object]) -> int:
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


def _add_manifest(exchange: Exchange, listed: Sequence[tuple[Entry, bytes]]) -> int:
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
