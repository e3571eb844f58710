"""Splits by time: rows of one time stay together, in slices as near to what is asked as can be."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mmdb.data.split import ROLES, Split, parse_split


def divided(split: Split, times: np.ndarray) -> list[str]:
    """Return the slice of each row."""
    found = np.sort(times)
    timed = split.with_times(
        len(found),
        split.wanted(len(found)),
        lambda place: float(found[place - 1]),
        lambda time: int(np.searchsorted(found, time, side="right")),
    )
    return [ROLES[place] for place in timed.places(times)]


def split_of(**given: object) -> Split:
    asked = {"by": "time", "column": "t", **given}
    return parse_split(asked, partitions=1, validation=0.2, seed=0)


def nearest(times: list[float], wanted: int) -> set[int]:
    """Return how many of the last rows a slice may have: by trying each place between two times."""
    cuts = [k for k in range(len(times)) if k == 0 or times[k] != times[k - 1]]
    sizes = [len(times) - k for k in cuts] + [0]
    best = min(abs(size - wanted) for size in sizes)
    return {size for size in sizes if abs(size - wanted) == best}


@pytest.mark.parametrize("seed", range(60))
def test_slices_are_as_near_to_what_is_asked_as_ties_let_them_be(seed: int) -> None:
    source = random.Random(seed)
    rows, different = source.randint(5, 200), source.choice([3, 7, 1_000_000])
    times = [float(source.randrange(different)) for _ in range(rows)]
    split = split_of(test=source.choice([0.1, 0.25]), validation=source.choice([0.1, 0.3]))
    roles = divided(split, np.array(times))
    assert len({(time, role) for time, role in zip(times, roles, strict=True)}) == len(set(times))
    by_slice = {role: [t for t, r in zip(times, roles, strict=True) if r == role] for role in ROLES}
    assert max(by_slice["train"], default=-1) < min(by_slice["validation"], default=1e9)
    assert max(by_slice["validation"], default=-1) < min(by_slice["test"], default=1e9)
    left = sorted(times)
    for role in ("test", "validation"):
        wanted = split.wanted(rows)[role]
        assert len(by_slice[role]) in (nearest(left, wanted) if wanted else {0})
        left = left[: len(left) - len(by_slice[role])]


def test_a_share_beside_a_date_is_of_all_rows() -> None:
    times = np.arange(1400) * 86400.0
    by_share = divided(split_of(test=0.1), times)
    dated = split_of(test="1973-06-19")
    held_out = divided(dated, times)
    assert held_out.count("validation") == by_share.count("validation") == 280
    assert held_out.count("test") == sum(times >= np.datetime64("1973-06-19").astype(int) * 86400)
