"""The outlines that a session has read, ready to be searched."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mmdb.db.connection import Connection
from mmdb.graph.match.pack import PackedSkeleton
from mmdb.graph.match.packed_zoo import PackedZoo, Stack
from mmdb.graph.match.zoo_search import Match, search
from mmdb.store.parents.outlines import stacked_outlines

#: Beyond them everything is read again, into one.
_MOST_PIECES = 8


class Index:
    """Outlines by architecture.

    What is kept never changes and is never removed; each search says which architectures the zoo
    has now. Equal scores are told apart by the numbers of architectures. So sessions agree,
    whatever each has read before, and in whatever order.
    """

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._there: set[int] = set()
        self._without: set[int] = set()  # architectures that are too large to be found

    def read(self, connection: Connection, architecture_ids: Sequence[int]) -> None:
        """Read the outlines that are not there yet."""
        new = set(architecture_ids) - self._there - self._without
        if not new:
            return
        self._read(connection, new)
        self._without |= new - self._there
        if len(self._pieces) > _MOST_PIECES:
            again = self._there & set(architecture_ids)
            self._pieces, self._there = [], set()
            self._read(connection, again)

    def _read(self, connection: Connection, architecture_ids: Collection[int]) -> None:
        for ids, found in stacked_outlines(connection, sorted(architecture_ids)):
            if ids:
                fitting = (one for one in self._pieces if one.architectures[-1] < ids[0])
                piece = next(fitting, None)
                if piece is None:
                    self._pieces.append(piece := _Piece())
                piece.extend(ids, found)
                self._there.update(ids)

    def search(
        self, child: PackedSkeleton, among: Collection[int], k: int, *, same: int | None = None
    ) -> list[tuple[int, Match]]:
        """Return the k most similar of some architectures, each with its match, best first.

        Args:
            same: the architecture that is the child's own, if it is stored; it comes first.
        """
        wanted = np.fromiter(among, np.int64, len(among))
        found = [one for piece in self._pieces for one in piece.search(child, wanted, k, same)]
        found.sort(key=lambda one: (one[0] != same, -one[1].score, one[0]))
        return found[:k]


class _Piece:
    """Outlines in the order of their architectures' numbers."""

    def __init__(self) -> None:
        self.architectures = np.empty(0, np.int64)
        self._packed = PackedZoo()

    def extend(self, architecture_ids: Sequence[int], found: Stack) -> None:
        self._packed.extend([_key(one) for one in architecture_ids], found)
        self.architectures = np.append(self.architectures, architecture_ids)

    def search(
        self, child: PackedSkeleton, among: NDArray[np.int64], k: int, same: int | None
    ) -> list[tuple[int, Match]]:
        key = None if same is None else _key(same)
        mask = np.isin(self.architectures, among)
        found = search(child, self._packed, k, key=key, among=mask)
        return [(int(self.architectures[match.number]), match) for match in found]


_indexes: WeakKeyDictionary[Connection, Index] = WeakKeyDictionary()


def index_of(connection: Connection) -> Index:
    """Return the index that a session keeps."""
    if connection not in _indexes:
        _indexes[connection] = Index()
    return _indexes[connection]


def _key(architecture_id: int) -> bytes:
    return architecture_id.to_bytes(8, "big")
