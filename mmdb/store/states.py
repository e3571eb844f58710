"""Training states as rows: checkpoints are durable, states in flight are not."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

from mmdb.data import node_cache
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load

#: Bytes of one chunk row.
CHUNK = 1 << 20

_Q = load("states")


def chunks(data: bytes) -> Iterator[tuple[int, memoryview | bytes]]:
    """Yield (ordinal, bytes) of at most CHUNK bytes each, at least one."""
    for ordinal, start in enumerate(range(0, max(len(data), 1), CHUNK)):
        yield ordinal, data[start : start + CHUNK]


#: Seconds between two looks at which worker processes serve.
LOOK_S = 5.0


class InFlight(Protocol):
    """Where states lie between two hops: nothing there is durable."""

    def write(self, part_id: int, candidate_id: int, state_hash: str, state: bytes) -> None:
        """Leave a state where other sessions find it."""

    def read(self, part_id: int, candidate_id: int, state_hash: str) -> bytes | None:
        """Return a state, or None where it never was or a crash has swept it away."""

    def keep_only(self, candidate_id: int, kept: Collection[str]) -> None:
        """Forget a candidate's states but for those whose hashes in hex are in `kept`."""


class InMemory:
    """States in the process that owns a DuckDB file: it dies with its workers."""

    def __init__(self, found: dict[int, dict[str, bytes]]) -> None:
        self._found = found

    def write(self, part_id: int, candidate_id: int, state_hash: str, state: bytes) -> None:
        self._found.setdefault(candidate_id, {})[state_hash] = state

    def read(self, part_id: int, candidate_id: int, state_hash: str) -> bytes | None:
        return self._found.get(candidate_id, {}).get(state_hash)

    def keep_only(self, candidate_id: int, kept: Collection[str]) -> None:
        mine = self._found.pop(candidate_id, {})
        if left := {name: state for name, state in mine.items() if name in kept}:
            self._found[candidate_id] = left


class OnNode:
    """States in files of the machine, and for other machines in rows of an unlogged table.

    Others compute while worker processes serve that have another node, or another mode and with it
    another cache.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._are_others, self._were_others, self._looked_at = False, False, 0.0
        self._owner = owner_of(connection)
        node_cache.sweep(self._owner)

    def write(self, part_id: int, candidate_id: int, state_hash: str, state: bytes) -> None:
        node_cache.write(self._owner, candidate_id, state_hash, state)
        if self._has_others():
            rows = _rows(part_id, candidate_id, state_hash, state)
            self._connection.run_many(_Q.write_in_flight, rows)

    def read(self, part_id: int, candidate_id: int, state_hash: str) -> bytes | None:
        found = node_cache.read(self._owner, candidate_id, state_hash)
        if found is None:
            rows = self._connection.rows
            found = _joined(rows, _Q.read_in_flight, part_id, candidate_id, state_hash)
        return found

    def keep_only(self, candidate_id: int, kept: Collection[str]) -> None:
        node_cache.keep_only(self._owner, candidate_id, kept)
        if self._has_others() or self._were_others:
            hashes = [bytes.fromhex(name) for name in kept]
            self._connection.run(_Q.drop_in_flight, candidate_id=candidate_id, kept=hashes)

    def _has_others(self) -> bool:
        """Return whether sessions elsewhere may need the states; looks every LOOK_S seconds."""
        if time.monotonic() - self._looked_at > LOOK_S:
            self._looked_at = time.monotonic()
            self._are_others = bool(self._connection.rows(_Q.has_distant_workers)[0]["distant"])
            self._were_others |= self._are_others
        return self._are_others


class OnNodes:
    """States in files of the node whose hop left them; another node's hop pulls them from there.

    So a hop writes to its own node alone. What it left before on other nodes is not its to delete.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection, self._owner = connection, owner_of(connection)
        node_cache.sweep(self._owner)

    def write(self, part_id: int, candidate_id: int, state_hash: str, state: bytes) -> None:
        node_cache.write(self._owner, candidate_id, state_hash, state)

    def read(self, part_id: int, candidate_id: int, state_hash: str) -> bytes | None:
        found = node_cache.read(self._owner, candidate_id, state_hash)
        if found is None:
            rows, query = self._connection.rows, load("nodes").read_in_flight
            found = _joined(rows, query, part_id, candidate_id, state_hash)
        return found

    def keep_only(self, candidate_id: int, kept: Collection[str]) -> None:
        node_cache.keep_only(self._owner, candidate_id, kept)


def owner_of(connection: Connection) -> str:
    """Return the name by which the states of a server's database are kept on its machine."""
    return str(connection.rows(_Q.find_database)[0]["name"])


def in_flight(connection: Connection, *, spread: bool = False) -> InFlight:
    """Return where the states of a session's candidates lie between two hops.

    Args:
        spread: whether the session is one of a node, and the tables lie on several.
    """
    memory: dict[int, dict[str, bytes]] | None = getattr(connection, "in_flight", None)
    if memory is not None:
        return InMemory(memory)
    return OnNodes(connection) if spread else OnNode(connection)


def write_checkpoint(
    connection: Connection,
    part_id: int,
    candidate_id: int,
    epoch: int,
    state_hash: str,
    state: bytes,
    *,
    here: bool = False,
) -> None:
    """Make a state durable; the same state twice is stored once.

    Args:
        here: look for it at this partition alone: others may lie on other nodes.
    """
    if here:
        key = {"part_id": part_id, "candidate_id": candidate_id}
        query, name = load("nodes").has_checkpoint, bytes.fromhex(state_hash)
        if connection.rows(query, **key, state_hash=name)[0]["found"]:
            return
    elif any(c["state_hash"].hex() == state_hash for c in checkpoints(connection, candidate_id)):
        return
    connection.run(
        _Q.add_checkpoint,
        part_id=part_id,
        candidate_id=candidate_id,
        state_hash=bytes.fromhex(state_hash),
        epoch=epoch,
        byte_count=len(state),
    )
    connection.run_many(_Q.write_checkpoint, _rows(part_id, candidate_id, state_hash, state))


def checkpoints(connection: Connection, candidate_id: int) -> list[Row]:
    """Return part_id, state_hash and epoch of a candidate's durable states, oldest first."""
    return connection.rows(_Q.find_checkpoints, candidate_id=candidate_id)


def read_checkpoint(
    connection: Connection, part_id: int, candidate_id: int, state_hash: str
) -> bytes | None:
    """Return a durable state, or None where there is none of that name."""
    return _joined(connection.rows, _Q.read_checkpoint, part_id, candidate_id, state_hash)


def prune_checkpoints(connection: Connection, candidate_id: int, keep: set[str]) -> None:
    """Delete a candidate's durable states but for those whose hashes in hex are in `keep`."""
    for row in checkpoints(connection, candidate_id):
        if row["state_hash"].hex() not in keep:
            drop_checkpoint(connection, candidate_id, row)


def drop_checkpoint(connection: Connection, candidate_id: int, row: Row) -> None:
    """Delete a durable state, a row of `checkpoints`."""
    key = {"part_id": row["part_id"], "state_hash": row["state_hash"]}
    connection.run(_Q.drop_checkpoint_chunks, candidate_id=candidate_id, **key)
    connection.run(_Q.drop_checkpoint, candidate_id=candidate_id, **key)


def _rows(
    part_id: int, candidate_id: int, state_hash: str, state: bytes
) -> Iterator[dict[str, object]]:
    for ordinal, data in chunks(state):
        yield {
            "part_id": part_id,
            "candidate_id": candidate_id,
            "state_hash": bytes.fromhex(state_hash),
            "ordinal": ordinal,
            "data": data,
        }


def _joined(
    rows: Callable[..., list[Row]], query: Any, part_id: int, candidate_id: int, state_hash: str
) -> bytes | None:
    found = rows(
        query, part_id=part_id, candidate_id=candidate_id, state_hash=bytes.fromhex(state_hash)
    )
    return b"".join(row["data"] for row in found) if found else None
