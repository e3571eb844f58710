"""Rows sorted by key through a file, in bounded memory.

Rows gather in a buffer; a full one is sorted by key and written as a run. Reading walks the key
space in ranges small enough to hold, takes each range out of every run, and sorts it. Rows of one
key are ordered by their bytes, so that the sequence depends on the rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np

RUN_BYTES = 16 * 2**20
RANGE_BYTES = 8 * 2**20
#: Times that keys come, on average, from which on copies of a row are many.
MANY = 2
_KEYS = 2**64
#: An odd number, by which places and hashes are multiplied before they are mixed.
ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class _Run:
    """One sorted run: `count` keys at `offset`, then as many rows."""

    offset: int
    count: int
    position: int = 0  # rows that were taken


class Shuffle:
    """Takes rows in any order and gives them back ordered by key.

    Args:
        file: opened unbuffered for reading and writing; holds every row.
    """

    def __init__(self, file: IO[bytes], row_bytes: int, *, run_bytes: int = RUN_BYTES) -> None:
        self._file, self._row_bytes = file, row_bytes
        rows = max(1, run_bytes // row_bytes)
        self._rows = np.empty((rows, row_bytes), np.uint8)
        self._keys = np.empty(rows, np.uint64)
        self._filled = 0
        self._runs: list[_Run] = []

    def add(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """Take rows, uint8 (n, row_bytes), and their keys, uint64 (n,)."""
        start = 0
        while start < len(rows):
            count = min(len(rows) - start, len(self._rows) - self._filled)
            filled = slice(self._filled, self._filled + count)
            self._rows[filled] = rows[start : start + count]
            self._keys[filled] = keys[start : start + count]
            self._filled += count
            start += count
            if self._filled == len(self._rows):
                self._write_run()

    def has_many_copies(self) -> bool:
        """Return whether keys come MANY times each, on average, or more often."""
        if self._filled:
            self._write_run()
        for run in self._runs:
            run.position = 0
        total = sum(run.count for run in self._runs)
        ranges, different = -(-8 * total // RANGE_BYTES), 0
        for index in range(ranges):
            found = []
            for run in self._runs:
                found.append(self._keys_below(run, (index + 1) * _KEYS // ranges))
                run.position += len(found[-1])
            keys = np.sort(np.concatenate(found))  # numpy's unique takes ten times as long
            different += int(np.count_nonzero(keys[1:] != keys[:-1])) + bool(len(keys))
        return total >= MANY * different

    def spread(self, file: IO[bytes], seed: np.uint64) -> Shuffle:
        """Return the rows in an order by chance, in which copies of one are no neighbours.

        Their places by key and bytes say it, so that it depends on the rows alone as well.

        Args:
            file: as that of a Shuffle; holds every row once more.
        """
        other, first = Shuffle(file, self._row_bytes), 0
        for rows in self.read(lambda _: None):
            places = np.arange(first, first + len(rows), dtype=np.uint64)
            other.add(rows, mix(places * ODD + seed))
            first += len(rows)
        return other

    def _write_run(self) -> None:
        keys, rows = self._keys[: self._filled], self._rows[: self._filled]
        order = np.argsort(keys)
        offset = self._file.seek(0, 2)
        self._runs.append(_Run(offset=offset, count=self._filled))
        _write(self._file, keys[order])
        _write(self._file, rows[order])
        self._filled = 0

    def read(
        self, recode: Callable[[np.ndarray], None], *, range_bytes: int = RANGE_BYTES
    ) -> Iterator[np.ndarray]:
        """Yield all rows in their order, some at a time; again, if it is called again.

        Args:
            recode: changes rows in place before those of one key are ordered by their bytes.
        """
        if self._filled:
            self._write_run()
        self._rows = np.empty((0, self._row_bytes), np.uint8)
        self._keys = np.empty(0, np.uint64)
        for run in self._runs:
            run.position = 0
        total = sum(run.count for run in self._runs)
        ranges = -(-total * self._row_bytes // range_bytes)
        limit = max(1, 4 * range_bytes // self._row_bytes)  # rows that are sorted at once
        for index in range(ranges):
            bound = (index + 1) * _KEYS // ranges
            yield from self._read_range(index * _KEYS // ranges, bound, limit, recode)

    def _read_range(
        self, low: int, bound: int, limit: int, recode: Callable[[np.ndarray], None]
    ) -> Iterator[np.ndarray]:
        parts = [(run, self._keys_below(run, bound)) for run in self._runs]
        parts = [(run, keys) for run, keys in parts if len(keys)]
        count = sum(len(keys) for _, keys in parts)
        if count <= limit:
            if count:
                yield _order(np.concatenate([k for _, k in parts]), self._take(parts), recode)
        elif bound - low > 1:
            del parts
            middle = (low + bound) // 2
            yield from self._read_range(low, middle, limit, recode)
            yield from self._read_range(middle, bound, limit, recode)
        else:
            yield from self._read_equal(parts, limit, recode)

    def _read_equal(
        self,
        parts: list[tuple[_Run, np.ndarray]],
        limit: int,
        recode: Callable[[np.ndarray], None],
    ) -> Iterator[np.ndarray]:
        """Yield the rows of one key: copies of one row, or of very few that collide."""
        counts: dict[bytes, int] = {}
        for run, keys in parts:
            for start in range(0, len(keys), limit):
                rows = self._take([(run, keys[start : start + limit])])
                recode(rows)
                for row, count in _count_rows(rows):
                    counts[row] = counts.get(row, 0) + count
        for row in sorted(counts):
            values = np.frombuffer(row, np.uint8)
            for start in range(0, counts[row], limit):
                yield np.tile(values, (min(limit, counts[row] - start), 1))

    def _keys_below(self, run: _Run, bound: int) -> np.ndarray:
        """Return the keys of a run that were not taken and are below `bound`."""
        left = run.count - run.position
        guess = 4096
        while True:
            keys = np.empty(min(guess, left), np.uint64)
            _read_into(self._file, run.offset + 8 * run.position, keys)
            end = int(np.searchsorted(keys, np.uint64(bound - 1), side="right"))
            if end < len(keys) or len(keys) == left:
                return keys[:end]
            guess *= 4

    def _take(self, parts: list[tuple[_Run, np.ndarray]]) -> np.ndarray:
        """Return the next rows of each run, as many as there are keys."""
        rows = np.empty((sum(len(keys) for _, keys in parts), self._row_bytes), np.uint8)
        start = 0
        for run, keys in parts:
            offset = run.offset + 8 * run.count + self._row_bytes * run.position
            _read_into(self._file, offset, rows[start : start + len(keys)])
            run.position += len(keys)
            start += len(keys)
        return rows


def cut(chunks: Iterable[np.ndarray], counts: Iterable[int]) -> Iterator[np.ndarray]:
    """Yield the rows of `chunks` in pieces of exactly `counts` rows."""
    source = iter(chunks)
    rest: list[np.ndarray] = []
    for count in counts:
        have = sum(map(len, rest))
        while have < count:
            rest.append(next(source))
            have += len(rest[-1])
        joined = rest[0] if len(rest) == 1 else np.concatenate(rest)
        yield joined[:count]
        rest = [joined[count:]]


def _order(keys: np.ndarray, rows: np.ndarray, recode: Callable[[np.ndarray], None]) -> np.ndarray:
    """Return rows ordered by key, then by their bytes after `recode`."""
    order = np.argsort(keys)
    keys, rows = keys[order], rows[order]
    recode(rows)
    same_key = np.flatnonzero(keys[1:] == keys[:-1])
    differ = same_key[(rows[same_key] != rows[same_key + 1]).any(axis=1)]
    for key in np.unique(keys[differ]):
        group = slice(np.searchsorted(keys, key), np.searchsorted(keys, key, side="right"))
        ordered = sorted(row.tobytes() for row in rows[group])
        rows[group] = np.frombuffer(b"".join(ordered), np.uint8).reshape(rows[group].shape)
    return rows


def _count_rows(rows: np.ndarray) -> Iterator[tuple[bytes, int]]:
    if (rows == rows[0]).all():
        yield rows[0].tobytes(), len(rows)
        return
    counts: dict[bytes, int] = {}
    for row in rows:
        counts[row.tobytes()] = counts.get(row.tobytes(), 0) + 1
    yield from counts.items()


def _write(file: IO[bytes], array: np.ndarray) -> None:
    view = array.reshape(-1).data.cast("B")
    while len(view):
        view = view[file.write(view) :]


def _read_into(file: IO[bytes], offset: int, array: np.ndarray) -> None:
    view = array.reshape(-1).data.cast("B")
    file.seek(offset)
    while len(view):
        count = file.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise EOFError("The spill file is shorter than what was written.")
        view = view[count:]


def mix(keys: np.ndarray) -> np.ndarray:
    """Spread a multilinear hash over all its bits, so that its prefixes are even.

    Source: MurmurHash3's fmix64 (Austin Appleby, public domain).
    """
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        keys ^= keys >> np.uint64(33)
        keys *= np.uint64(multiplier)
    keys ^= keys >> np.uint64(33)
    return keys
