"""The outlines that a session has read, ready to be searched."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from mmdb.db.connection import Connection
from mmdb.graph.match.pack import Packed
from mmdb.graph.match.search import Match, search
from mmdb.graph.match.zoo import PackedZoo
from mmdb.store.parents.outlines import read_outlines

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
        new = [a for a in architecture_ids if a not in self._there and a not in self._without]
        if not new:
            return
        found = read_outlines(connection, sorted(new))
        self._without |= {one for one in new if one not in found}
        if not self._add(found):
            self._pieces.clear()
            again = sorted(self._there & set(architecture_ids) | set(found))
            self._there.clear()
            self._add(read_outlines(connection, again))

    def _add(self, found: dict[int, Packed]) -> bool:
        """Add outlines; return False where that takes too many pieces."""
        for architecture_id, packed in found.items():
            fitting = (one for one in self._pieces if one.architectures[-1] < architecture_id)
            piece = next(fitting, None)
            if piece is None:
                self._pieces.append(piece := _Piece())
            piece.add(architecture_id, packed)
            self._there.add(architecture_id)
        return len(self._pieces) <= _MOST_PIECES

    def search(
        self, child: Packed, among: Collection[int], k: int, *, same: int | None = None
    ) -> list[tuple[int, Match]]:
        """Return the k most similar of some architectures, each with its match, best first.

        Args:
            same: the architecture that is the child's own, if it is stored; it comes first.
        """
        found = [one for piece in self._pieces for one in piece.search(child, among, k, same)]
        found.sort(key=lambda one: (one[0] != same, -one[1].score, one[0]))
        return found[:k]


class _Piece:
    """Outlines in the order of their architectures' numbers."""

    def __init__(self) -> None:
        self.architectures: list[int] = []
        self._packed = PackedZoo()
        self._numbers: dict[int, int] = {}

    def add(self, architecture_id: int, packed: Packed) -> None:
        self._numbers[architecture_id] = self._packed.add(_key(architecture_id), packed)
        self.architectures.append(architecture_id)

    def search(
        self, child: Packed, among: Collection[int], k: int, same: int | None
    ) -> list[tuple[int, Match]]:
        mask = np.zeros(len(self._packed), np.bool_)
        mask[[self._numbers[a] for a in among if a in self._numbers]] = True
        key = None if same is None else _key(same)
        found = search(child, self._packed, k, key=key, among=mask)
        return [(self.architectures[match.number], match) for match in found]


_indexes: WeakKeyDictionary[Connection, Index] = WeakKeyDictionary()


def index_of(connection: Connection) -> Index:
    """Return the index that a session keeps."""
    if connection not in _indexes:
        _indexes[connection] = Index()
    return _indexes[connection]


def _key(architecture_id: int) -> bytes:
    return architecture_id.to_bytes(8, "big")
