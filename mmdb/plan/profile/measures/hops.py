"""What a hop costs beside its training: states on their way and made durable.

A candidate that does not exist leaves states and takes them up again; nothing of it stays. Its
number is below zero, so that no hop can meet it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import count

import torch

from mmdb.data.reader import BLOCKS
from mmdb.db.connection import Connection
from mmdb.plan.profile.measures.timing import Allowance, Task, measure_sizes
from mmdb.plan.profile.row import Row
from mmdb.store import states
from mmdb.store.states import InFlight
from mmdb.train.compute.live import state_hash

#: Bytes of states.
STATE_BYTES = (2**14, 2**18, 2**20, 2**22, 2**24)
#: Bytes that are read in chunks: about a block's, and those of as many as one query reads.
READ_BYTES = (2**20, BLOCKS * 2**20)
PART_ID = -1


def measure_hops(allowance: Allowance, seed: int, connection: Connection) -> Iterator[Row]:
    """Measure states of several sizes, on their way and made durable."""
    with closing(_Scratch(connection, seed)) as scratch:
        cases = [partial(scratch.tasks, size) for size in STATE_BYTES]
        yield from measure_sizes(allowance, cases)


def measure_chunks(allowance: Allowance, seed: int, connection: Connection) -> Iterator[Row]:
    """Measure reading where there is no partition: a durable state's chunks are kept as blocks."""
    with closing(_Scratch(connection, seed)) as scratch:
        cases = [partial(scratch.reading, size) for size in READ_BYTES]
        yield from measure_sizes(allowance, cases)


class _Scratch:
    """The states of a candidate that does not exist."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self._connection, self._candidate_id = connection, -1 - secrets.randbelow(2**31)
        self._in_flight: InFlight = states.in_flight(connection)
        self._generator = torch.Generator().manual_seed(seed)
        self._numbers = count()

    def tasks(self, size: int) -> list[Task]:
        """Return what is measured of a state of `size` bytes."""
        state = self._drawn(size)
        name = state_hash(state).hex()
        place = (PART_ID, self._candidate_id)

        def publish() -> None:
            self._in_flight.keep_only(self._candidate_id, ())
            self._in_flight.write(*place, name, state)

        def load_state() -> None:
            assert self._in_flight.read(*place, name) is not None

        def checkpoint() -> None:
            # The name tells states apart, and is no longer the hash: nobody will ever look.
            new = next(self._numbers).to_bytes(32, "big").hex()
            with self._connection.transaction():
                states.write_checkpoint(self._connection, *place, 0, new, state)
                states.prune_checkpoints(self._connection, self._candidate_id, {new})

        publish()
        return [
            Task("publish", float(size), publish),
            Task("load", float(size), load_state),
            Task("checkpoint", float(size), checkpoint),
        ]

    def reading(self, size: int) -> list[Task]:
        """Return the reading of `size` bytes in chunks, as blocks are read."""
        name = next(self._numbers).to_bytes(32, "big").hex()
        place = (self._connection, PART_ID, self._candidate_id)
        with self._connection.transaction():
            states.write_checkpoint(*place, 0, name, self._drawn(size))
        return [Task("read", float(size), partial(states.read_checkpoint, *place, name))]

    def close(self) -> None:
        """Leave nothing behind."""
        self._in_flight.keep_only(self._candidate_id, ())
        with self._connection.transaction():
            states.prune_checkpoints(self._connection, self._candidate_id, set())

    def _drawn(self, size: int) -> bytes:
        drawn = torch.randint(256, (size,), dtype=torch.uint8, generator=self._generator)
        return drawn.numpy().tobytes()
