"""Which rows of a scan a dataset has already, and which of its own rows the scan has not met."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmdb.errors import DataError

_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class RowChanges:
    """How the rows of a query differ from those that a dataset has."""

    added: int
    changed: int | None  # rows of a key that were there with other values; None: without keys
    deleted: int | None  # None: nobody looked
    gone: np.ndarray  # places of the dataset's rows that are left out from now on, ascending


class RowMatcher:
    """Tells rows by their hashes; of equal rows, as many as the dataset has are known.

    Args:
        hashes: uint64 (n, 1), of the dataset's rows, or (n, 2) with those of their keys.
        sees_all: whether the scan is of all rows; if not, rows that it does not meet are kept.
    """

    def __init__(self, hashes: np.ndarray, *, sees_all: bool) -> None:
        self._hashes, self._sees_all = hashes, sees_all
        own = identities(hashes)
        self._order = np.argsort(own, kind="stable")
        ordered = own[self._order]
        self._firsts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])
        self._known = ordered[self._firsts]
        self._counts = np.diff(np.r_[self._firsts, len(ordered)])
        self._met = np.zeros(len(self._known), np.int64)
        self._new_keys: list[np.ndarray] = []
        self._added = 0

    def admit(self, hashes: np.ndarray) -> np.ndarray:
        """Return which rows of a batch are new, a mask; the others count as met."""
        own = identities(hashes)
        order = np.argsort(own, kind="stable")
        ordered = own[order]
        starts = np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)]
        firsts = np.flatnonzero(starts)
        sizes = np.diff(np.r_[firsts, len(ordered)])
        place = np.searchsorted(self._known, ordered[firsts])
        is_known = place < len(self._known)
        is_known[is_known] = self._known[place[is_known]] == ordered[firsts][is_known]
        left = np.zeros(len(firsts), np.int64)
        at = place[is_known]
        left[is_known] = self._counts[at] - self._met[at]
        self._met[at] += np.minimum(left[is_known], sizes[is_known])
        rank = np.arange(len(ordered)) - np.repeat(firsts, sizes)
        is_new = np.empty(len(ordered), bool)
        is_new[order] = rank >= np.repeat(left, sizes)
        self._added += int(is_new.sum())
        if hashes.shape[1] > 1:
            self._new_keys.append(hashes[is_new, 1])
        return is_new

    def difference(self) -> RowChanges:
        """Return what has changed, as far as batches were seen.

        Raises:
            DataError: two rows have one key.
        """
        gone = np.zeros(len(self._hashes), bool)
        if self._sees_all:  # of equal rows the last are left out
            rank = np.arange(len(self._hashes)) - np.repeat(self._firsts, self._counts)
            gone[self._order] = rank >= np.repeat(self._met, self._counts)
        if self._hashes.shape[1] == 1:
            deleted = int(gone.sum()) if self._sees_all else None
            return RowChanges(self._added, None, deleted, np.flatnonzero(gone))
        new = np.sort(np.concatenate([np.empty(0, np.uint64), *self._new_keys]))
        replaced = is_in(self._hashes[:, 1], new)
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
    return hashes[:, 0] * _ODD + hashes[:, 1]  # type: ignore[no-any-return]


def is_in(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Return which values are among others, which are sorted."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return ordered[place] == values  # type: ignore[no-any-return]
