"""The best mean is found greedily, and only where it is better than one alone."""

from __future__ import annotations

import pytest

from mmdb.train.search.mean_choice import best_mean

Worth = dict[tuple[int, ...], float]


def _chosen(worth: Worth, count: int = 3, most: int = 3) -> tuple[int, ...]:
    return best_mean(count, lambda members: worth.get(tuple(sorted(members))), most=most)


ALONE: Worth = {(0,): 1.0, (1,): 3.0, (2,): 2.0}


@pytest.mark.parametrize(
    ("further", "expected"),
    [
        ({}, (1,)),
        ({(0, 1): 3.0, (1, 2): 2.9}, (1,)),
        ({(0, 1): 3.5, (1, 2): 3.2}, (1, 0)),
        ({(0, 1): 3.5, (1, 2): 3.2, (0, 1, 2): 3.6}, (1, 0, 2)),
        ({(0, 2): 9.0, (0, 1): 3.5}, (1, 0)),  # greedy: it goes on from the best one
        ({(0, 1): 4.0, (1, 2): 4.0}, (1, 0)),  # of equals the first
    ],
)
def test_a_member_is_taken_if_the_mean_is_worth_more(
    further: Worth, expected: tuple[int, ...]
) -> None:
    assert _chosen(ALONE | further) == expected


def test_there_are_never_more_than_asked_for() -> None:
    worth = ALONE | {(0, 1): 3.5, (0, 1, 2): 3.6}
    assert _chosen(worth, most=2) == (1, 0)
    assert _chosen(worth, most=1) == (1,)
    assert _chosen(worth, count=1) == (0,)


def test_what_cannot_be_told_is_left_out() -> None:
    assert _chosen({(0,): 1.0, (2,): 2.0, (0, 2): 2.5}) == (2, 0)
    assert _chosen({}) == () == _chosen({}, count=0)
