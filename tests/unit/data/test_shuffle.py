"""Rows come back ordered by key and bytes alone, in bounded memory."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mmdb.data.shuffle import ODD, Shuffle, cut, mix


def shuffled(
    path: Path,
    rows: np.ndarray,
    keys: np.ndarray,
    *,
    run_bytes: int = 1000,
    range_bytes: int = 500,
    step: int = 7,
) -> np.ndarray:
    with path.open("w+b", buffering=0) as file:
        shuffle = Shuffle(file, rows.shape[1], run_bytes=run_bytes)
        for start in range(0, len(rows), step):
            shuffle.add(rows[start : start + step], keys[start : start + step])
        return np.concatenate(list(shuffle.read(lambda rows: None, range_bytes=range_bytes)))


def expected(rows: np.ndarray, keys: np.ndarray) -> np.ndarray:
    order = sorted(range(len(rows)), key=lambda i: (keys[i], rows[i].tobytes()))
    return rows[order]


@pytest.mark.parametrize("distinct", [1, 2, 5, 1000, 2**63])
@pytest.mark.parametrize("sizes", [(50, 25), (1000, 500), (100_000, 100_000), (1000, 100_000)])
def test_rows_are_ordered_by_key_then_bytes(
    tmp_path: Path, distinct: int, sizes: tuple[int, int]
) -> None:
    random = np.random.default_rng(distinct % 997)
    rows = random.integers(0, 3, (1000, 8)).astype(np.uint8)
    keys = random.integers(0, distinct, 1000).astype(np.uint64) * np.uint64(2)
    found = shuffled(tmp_path / "rows", rows, keys, run_bytes=sizes[0], range_bytes=sizes[1])
    np.testing.assert_array_equal(found, expected(rows, keys))


def test_the_order_of_arrival_does_not_matter(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.integers(0, 256, (3000, 12)).astype(np.uint8)
    keys = random.integers(0, 2**64, 3000, np.uint64) // np.uint64(2**52) * np.uint64(2**52)
    first = shuffled(tmp_path / "a", rows, keys)
    order = random.permutation(3000)
    second = shuffled(tmp_path / "b", rows[order], keys[order], run_bytes=700, step=100)
    np.testing.assert_array_equal(first, second)


def test_the_extreme_keys_are_not_lost(tmp_path: Path) -> None:
    keys = np.array([2**64 - 1, 0, 2**64 - 1, 1], np.uint64)
    rows = np.arange(16, dtype=np.uint8).reshape(4, 4)
    np.testing.assert_array_equal(shuffled(tmp_path / "rows", rows, keys), rows[[1, 3, 0, 2]])


@pytest.mark.parametrize("distinct", [1, 2**63])
def test_memory_is_bounded_however_many_rows_and_copies(tmp_path: Path, distinct: int) -> None:
    random = np.random.default_rng(0)

    def fill(shuffle: Shuffle) -> None:
        for _ in range(64):
            keys = random.integers(0, distinct, 8192).astype(np.uint64) * np.uint64(2)
            rows = np.repeat(keys.view(np.uint8).reshape(-1, 8), 16, axis=1)
            shuffle.add(rows, keys)

    with (tmp_path / "rows").open("w+b", buffering=0) as file:
        tracemalloc.start()
        try:
            shuffle = Shuffle(file, 128, run_bytes=2**20)
            fill(shuffle)
            count = sum(len(p) for p in shuffle.read(lambda rows: None, range_bytes=2**20))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert count == 64 * 8192  # 64 MiB of rows
    assert peak < 24 * 2**20


def test_cut_gives_exact_pieces() -> None:
    def chunks() -> Iterator[np.ndarray]:
        for start in range(0, 100, 9):
            yield np.arange(start, min(start + 9, 100))[:, None]

    pieces = list(cut(chunks(), [1, 30, 30, 9, 30]))
    assert [len(p) for p in pieces] == [1, 30, 30, 9, 30]
    np.testing.assert_array_equal(np.concatenate(pieces)[:, 0], np.arange(100))


@pytest.mark.parametrize(("distinct", "many"), [(1, True), (24, True), (500, True), (2**62, False)])
def test_copies_are_spread_by_chance_whatever_order_they_came_in(
    tmp_path: Path, distinct: int, many: bool
) -> None:
    random = np.random.default_rng(3)
    values = random.integers(0, distinct, 3000).astype(np.uint64)
    rows = values.view(np.uint8).reshape(-1, 8)
    keys = mix(values * ODD)
    found = []
    for order in (np.arange(3000), random.permutation(3000)):
        with (
            (tmp_path / "rows").open("w+b", buffering=0) as file,
            (tmp_path / "copies").open("w+b", buffering=0) as copies,
        ):
            shuffle = Shuffle(file, 8, run_bytes=1000)
            shuffle.add(rows[order], keys[order])
            assert shuffle.has_many_copies() is many
            spread = shuffle.spread(copies, np.uint64(7))
            read = np.concatenate(list(spread.read(lambda rows: None, range_bytes=500)))
            found.append(np.ascontiguousarray(read).view(np.uint64)[:, 0])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(np.sort(found[0]), np.sort(values))
    if 1 < distinct < 100:  # of 600 rows each kind has its share, within five deviations
        counts = np.bincount(found[0][:600].astype(np.int64), minlength=distinct)
        of_all = np.bincount(values.astype(np.int64), minlength=distinct) / 5
        assert (np.abs(counts - of_all) < 5 * np.sqrt(of_all)).all()
