"""Manifests: which tensor a model holds under which path. Models that differ little share one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.store.entries import Entry
from mmdb.store.models import SavedModel, StoredEntry

_Q = load("models")
#: With more tensors changed than this share, a manifest of its own is smaller and faster.
_CHANGED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class TensorList:
    """The entries of a model with the tensors that they are."""

    entries: Sequence[Entry]
    hashes: Mapping[int, bytes]  # ordinal -> tensor_hash
    ids: Mapping[bytes, int]

    def tensor_id(self, entry: Entry) -> int:
        """Return the number of an entry's tensor."""
        return self.ids[self.hashes[entry.ordinal]]


def put_manifest(
    connection: Connection,
    origin: SavedModel | None,
    ancestors: Sequence[StoredEntry],
    listed: TensorList,
) -> tuple[int, dict[int, int]]:
    """Return the manifest to use, and the tensors that differ from it by ordinal."""
    same = [a.structure for a in ancestors] == [e.structure for e in listed.entries]
    if origin is not None and origin.manifest_id is not None and same:
        ids = {e.ordinal: listed.tensor_id(e) for e in listed.entries}
        changes = {a.ordinal: ids[a.ordinal] for a in ancestors if ids[a.ordinal] != a.listed_id}
        if len(changes) <= _CHANGED_SHARE * len(ids):
            return origin.manifest_id, changes
    (added,) = connection.rows(_Q.add_manifest)
    connection.append(
        _Q.add_manifest_tensor,
        [
            (
                added["manifest_id"],
                entry.ordinal,
                entry.path,
                listed.tensor_id(entry),
                entry.kind,
                entry.trainable,
                entry.tied_to,
                None if entry.layout is None else json.dumps(entry.layout),
            )
            for entry in listed.entries
        ],
    )
    return added["manifest_id"], {}
