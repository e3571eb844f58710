"""What a save finds stored already: read once a session, and stored anew where it is damaged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from weakref import WeakKeyDictionary

from mmdb.db.connection import Connection
from mmdb.db.owners import may_replace
from mmdb.db.queries import load
from mmdb.errors import CorruptTensor
from mmdb.store.pipeline import batches
from mmdb.store.reading import BadTensor, Encoding, find_encodings, read_tensors

_Q = load("gc")
#: Bytes of tensors that are read and compared at once; one tensor may be larger.
_GROUP_BYTES = 32 << 20

#: Tensors that a session has read and found to be those of their hashes.
_right: WeakKeyDictionary[Connection, set[int]] = WeakKeyDictionary()


def find_right(
    connection: Connection, tensor_ids: Collection[int], old: Collection[int]
) -> set[int]:
    """Return those of some tensors whose chunks are there and are right; the others have no more.

    A session reads a tensor once: models that share most of their tensors are saved one after the
    other, and each would read them all. The chunks of a tensor that is damaged are deleted.

    Args:
        old: tensors that this save has not named itself.
    Raises:
        CorruptTensor: one is damaged, and this role may not delete its chunks.
    """
    right = _right.setdefault(connection, set())
    unread = set(tensor_ids) - right
    encodings = find_encodings(connection, unread)
    damaged = _find_strays(connection, (unread - encodings.keys()) & set(old))
    for group in batches(encodings.values(), lambda e: e.byte_count, _GROUP_BYTES):
        if _find_damage(connection, group) is None:
            right.update(e.tensor_id for e in group)
            continue
        for encoding in group:
            error = _find_damage(connection, [encoding])
            if error is None:
                right.add(encoding.tensor_id)
            else:
                damaged[encoding.tensor_id] = error
    if damaged:
        _delete_chunks(connection, list(damaged.values()))
    return right & set(tensor_ids)


def _find_strays(connection: Connection, tensor_ids: Collection[int]) -> dict[int, BadTensor]:
    """Return those of some tensors without an encoding that have chunks."""
    rows = connection.rows(_Q.find_chunks, ids=list(tensor_ids)) if tensor_ids else []
    reason = "nothing says how its chunks are to be read"
    return {row["tensor_id"]: BadTensor(row["tensor_id"], reason) for row in rows}


def forget(connection: Connection) -> None:
    """Let a session read again what it has found to be right."""
    _right.pop(connection, None)


def _find_damage(connection: Connection, encodings: Sequence[Encoding]) -> BadTensor | None:
    try:
        read_tensors(connection, encodings, checked={e.tensor_id for e in encodings})
    except BadTensor as error:
        return error
    return None


def _delete_chunks(connection: Connection, damaged: Sequence[BadTensor]) -> None:
    """Make room for chunks of the same bytes: differences to these tensors can be read again."""
    if not may_replace(connection):
        error = damaged[0]
        chunk = "" if error.ordinal is None else f", chunk {error.ordinal}"
        raise CorruptTensor(
            f"Tensor {error.tensor_id}{chunk}, which is stored already and which the model has, "
            f"is damaged: {error.reason}.",
            hint="Let a member of mmdb_admin save the model: damaged tensors are then stored anew.",
        )
    ids = [error.tensor_id for error in damaged]
    for query in (_Q.delete_chunks, _Q.delete_encodings):
        connection.run(query, ids=ids)
