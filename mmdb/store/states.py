"""Training states as rows: checkpoints are durable, states in flight are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load

#: Bytes of one chunk row.
CHUNK = 1 << 20

_Q = load("states")


def chunks(data: bytes) -> Iterator[tuple[int, memoryview | bytes]]:
    """Yield (ordinal, bytes) of at most CHUNK bytes each, at least one."""
    for ordinal, start in enumerate(range(0, max(len(data), 1), CHUNK)):
        yield ordinal, data[start : start + CHUNK]


def write_in_flight(
    connection: Connection, part_id: int, candidate_id: int, state_hash: str, state: bytes
) -> None:
    """Leave a state where any session finds it, in place of the candidate's last one."""
    memory = _memory(connection)
    if memory is not None:
        memory[candidate_id] = (state_hash, state)
        return
    drop_in_flight(connection, candidate_id, keep=state_hash)
    connection.run_many(_Q.write_in_flight, _rows(part_id, candidate_id, state_hash, state))


def drop_in_flight(connection: Connection, candidate_id: int, *, keep: str = "") -> None:
    """Forget a candidate's states in flight, but for the one whose hash in hex is `keep`."""
    memory = _memory(connection)
    if memory is None:
        connection.run(_Q.drop_in_flight, candidate_id=candidate_id, keep=bytes.fromhex(keep))
    elif memory.get(candidate_id, ("",))[0] != keep:
        memory.pop(candidate_id, None)


def read_in_flight(
    connection: Connection, part_id: int, candidate_id: int, state_hash: str
) -> bytes | None:
    """Return a state in flight, or None where a crash has swept it away."""
    memory = _memory(connection)
    if memory is not None:
        found = memory.get(candidate_id)
        return found[1] if found and found[0] == state_hash else None
    return _joined(connection.rows, _Q.read_in_flight, part_id, candidate_id, state_hash)


def _memory(connection: Connection) -> dict[int, tuple[str, bytes]] | None:
    """DuckDB's owner process keeps states in flight in memory."""
    return getattr(connection, "in_flight", None)


def write_checkpoint(
    connection: Connection,
    part_id: int,
    candidate_id: int,
    epoch: int,
    state_hash: str,
    state: bytes,
) -> None:
    """Make a state durable; the same state twice is stored once."""
    if any(c["state_hash"].hex() == state_hash for c in checkpoints(connection, candidate_id)):
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
