"""Rows that a dataset has, told from new ones, against counting by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mmdb.data.row_matching import RowMatcher
from mmdb.errors import DataError


def _hashes(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, np.uint64).reshape(len(rows), -1)


def _feed(matcher: RowMatcher, rows: np.ndarray, pieces: int) -> np.ndarray:
    """Return which rows are new, given to the matcher in some batches."""
    return np.concatenate([matcher.admit(part) for part in np.array_split(rows, pieces)])


@pytest.mark.parametrize("seed", range(50))
def test_as_many_of_equal_rows_are_known_as_there_are(seed: int) -> None:
    random = np.random.default_rng(seed)
    have, now = (
        random.integers(0, 20, (random.integers(0, 60), 1)).astype(np.uint64) for _ in range(2)
    )
    matcher = RowMatcher(have, sees_all=True)
    is_new = _feed(matcher, now, 1 + seed % 4)
    found = matcher.difference()
    before, after = (Counter(rows[:, 0].tolist()) for rows in (have, now))
    assert Counter(now[is_new, 0].tolist()) == after - before
    assert Counter(have[found.gone, 0].tolist()) == before - after
    assert (found.added, found.deleted) == ((after - before).total(), (before - after).total())
    assert found.changed is None
    left = np.delete(have[:, 0], found.gone).tolist() + now[is_new, 0].tolist()
    assert Counter(left) == after


@pytest.mark.parametrize("seed", range(10))
def test_few_rows_are_told_from_many_without_looking_at_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(0, 2**64, 2000, np.uint64, endpoint=False)
    have = values[random.integers(0, 1500, 4000)]
    now = values[random.integers(1000, 2000, 300 if seed % 2 else 200)]
    matcher = RowMatcher(have[:, None], sees_all=False)
    is_new = _feed(matcher, now[:, None], 7)  # some seeds look at so many that all are sorted
    before, after = Counter(have.tolist()), Counter(now.tolist())
    assert Counter(now[is_new].tolist()) == after - before
    assert not len(matcher.difference().gone)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("sees_all", [True, False])
def test_rows_with_keys_are_added_changed_or_deleted(seed: int, sees_all: bool) -> None:
    random = np.random.default_rng(seed)
    have = {int(key): int(random.integers(5)) for key in random.permutation(40)[:25]}
    now = {int(key): int(random.integers(5)) for key in random.permutation(40)[:25]}
    rows = [_hashes(*((value, key) for key, value in one.items())) for one in (have, now)]
    matcher = RowMatcher(rows[0], sees_all=sees_all)
    is_new = _feed(matcher, rows[1], 1 + seed % 3)
    found = matcher.difference()
    changed = {key for key in have.keys() & now.keys() if have[key] != now[key]}
    deleted = have.keys() - now.keys()
    assert found.added == len(now.keys() - have.keys())
    assert found.changed == len(changed)
    assert found.deleted == (len(deleted) if sees_all else None)
    gone = set(rows[0][found.gone, 1].tolist())
    assert gone == (changed | deleted if sees_all else changed)
    assert set(rows[1][is_new, 1].tolist()) == changed | (now.keys() - have.keys())


def test_a_key_that_repeats_is_refused() -> None:
    for sees_all in (True, False):
        matcher = RowMatcher(_hashes((1, 1), (2, 2)), sees_all=sees_all)
        matcher.admit(_hashes((3, 3), (4, 3)))
        with pytest.raises(DataError, match="one key"):
            matcher.difference()
    matcher = RowMatcher(_hashes((1, 1), (2, 2)), sees_all=True)
    matcher.admit(_hashes((1, 1), (2, 2), (9, 1)))
    with pytest.raises(DataError, match="one key"):
        matcher.difference()


def test_nothing_known_and_nothing_there() -> None:
    matcher = RowMatcher(np.empty((0, 1), np.uint64), sees_all=True)
    assert matcher.difference().gone.tolist() == []
    assert matcher.admit(_hashes((7,), (7,))).all()
    assert matcher.difference().added == 2
