"""Which rows of a scan a dataset has already, and which of its own rows the scan has not met."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmdb.data.shuffle import ODD
from mmdb.errors import DataError

#: A scan looks at few rows as long as the dataset has so many times as many.
_FEW = 16
#: Bits of a hash by which most rows that are not sought are passed over.
_BITS = 22


@dataclass(frozen=True, slots=True)
class RowChanges:
    """How the rows of a query differ from those that a dataset has."""

    added: int
    changed: int | None  # rows of a key that were there with other values; None: without keys
    deleted: int | None  # None: nobody looked
    gone: np.ndarray  # places of the dataset's rows that are left out from now on, ascending


class _Runs:
    """Values in order: each different one, how often it is there, and how often it was met.

    Attributes:
        order: places of the values, in order.
        firsts: where in `order` each different value begins.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values, kind="stable")
        ordered = values[self.order]
        self.firsts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])
        self.values = ordered[self.firsts]
        self.sizes = np.diff(np.r_[self.firsts, len(ordered)])
        self.met = np.zeros(len(self.values), np.int64)

    def ranks(self) -> np.ndarray:
        """Return the place of each value among its equals, in order."""
        return np.arange(len(self.order)) - np.repeat(self.firsts, self.sizes)

    def find(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which of some values are there, a mask, and where among the different ones."""
        place = np.searchsorted(self.values, values)
        is_there = place < len(self.values)
        is_there[is_there] = self.values[place[is_there]] == values[is_there]
        return is_there, place[is_there]


class RowMatcher:
    """Tells rows by their hashes; of equal rows, as many as the dataset has are known.

    Args:
        hashes: uint64 (n, 1), of the dataset's rows, or (n, 2) with those of their keys.
        sees_all: whether the scan is of all rows; if not, rows that it does not meet are kept.
    """

    def __init__(self, hashes: np.ndarray, *, sees_all: bool) -> None:
        self._hashes, self._own = hashes, identities(hashes)
        self._sees_all = sees_all
        self._known = _Runs(self._own) if sees_all else None
        self._met: dict[int, int] = {}  # how often each was met, as long as few are looked at
        self._looked_at = self._added = 0
        self._new_keys: list[np.ndarray] = []

    def admit(self, hashes: np.ndarray) -> np.ndarray:
        """Return which rows of a batch are new, a mask; the others count as met."""
        batch = _Runs(identities(hashes))
        known = self._known or self._near(batch.values)
        is_known, at = known.find(batch.values)
        left = np.zeros(len(batch.values), np.int64)
        left[is_known] = known.sizes[at] - known.met[at]
        known.met[at] += np.minimum(left[is_known], batch.sizes[is_known])
        if known is not self._known:
            self._met.update(zip(known.values[at].tolist(), known.met[at].tolist(), strict=True))
        is_new = np.empty(len(hashes), bool)
        is_new[batch.order] = batch.ranks() >= np.repeat(left, batch.sizes)
        self._added += int(is_new.sum())
        if hashes.shape[1] > 1:
            self._new_keys.append(hashes[is_new, 1])
        return is_new

    def _near(self, values: np.ndarray) -> _Runs:
        """Return the dataset's rows among which some values are, if they are there at all.

        To sort all of them takes longer than a scan of what is new.
        """
        self._looked_at += len(values)
        if self._looked_at * _FEW > len(self._own):
            found = self._known = _Runs(self._own)
        else:
            found = _Runs(self._own[_may_be_in(self._own, values)])
        is_there, at = found.find(np.fromiter(self._met, np.uint64, len(self._met)))
        found.met[at] = np.fromiter(self._met.values(), np.int64, len(self._met))[is_there]
        return found

    def difference(self) -> RowChanges:
        """Return what has changed, as far as batches were seen.

        Raises:
            DataError: two rows have one key.
        """
        gone = np.zeros(len(self._hashes), bool)
        if self._sees_all and self._known is not None:  # of equal rows the last are left out
            known = self._known
            gone[known.order] = known.ranks() >= np.repeat(known.met, known.sizes)
        if self._hashes.shape[1] == 1:
            deleted = int(gone.sum()) if self._sees_all else None
            return RowChanges(self._added, None, deleted, np.flatnonzero(gone))
        new = np.sort(np.concatenate([np.empty(0, np.uint64), *self._new_keys]))
        keys = self._hashes[:, 1]
        replaced = _may_be_in(keys, new)
        replaced[replaced] = is_in(keys[replaced], new)
        if (new[1:] == new[:-1]).any() or (self._sees_all and (replaced & ~gone).any()):
            raise DataError(
                "Two rows of the query have one key.",
                hint="Make the query return each row once.",
            )
        changed = int(replaced.sum())
        deleted = int(gone.sum()) - changed if self._sees_all else None
        return RowChanges(self._added - changed, changed, deleted, np.flatnonzero(gone | replaced))


def identities(hashes: np.ndarray) -> np.ndarray:
    """Return one hash of each row: of its values, and of its key if it has one."""
    if hashes.shape[1] == 1:
        return np.ascontiguousarray(hashes[:, 0])
    return hashes[:, 0] * ODD + hashes[:, 1]  # type: ignore[no-any-return]


def is_in(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Return which values are among others, which are sorted."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return ordered[place] == values  # type: ignore[no-any-return]


def _may_be_in(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return which hashes begin as some others do: those that are among them, and few more."""
    shift = np.uint64(64 - _BITS)
    begins = np.zeros(1 << _BITS, bool)
    begins[others >> shift] = True
    return begins[values >> shift]  # type: ignore[no-any-return]
