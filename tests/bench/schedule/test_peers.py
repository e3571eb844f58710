"""Other systems' schedulers do what they are said to do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.schedule.cases import Case, costs_of, learn
from tests.bench.schedule.peers import barrier_s, bound_s, drawn, random_s


@pytest.mark.parametrize(("candidates", "steps"), [(2, 4), (4, 4), (6, 6)])
def test_a_rotation_with_a_barrier_takes_as_many_steps_as_there_are_turns(
    candidates: int, steps: int
) -> None:
    assert barrier_s(np.ones((3, candidates, 4))) == 3 * steps


def test_a_barrier_waits_for_the_slowest_of_each_step() -> None:
    seconds = np.ones((1, 3, 3))
    seconds[0, 0] = 5.0
    assert barrier_s(seconds) == 15 and bound_s(seconds) == 15
    seconds[0, 1, 1] = 6.0
    assert 15 < barrier_s(seconds) == 16


@pytest.mark.parametrize("shape", [(1, 5), (5, 1)])
def test_random_hops_leave_nobody_idle_who_has_something_to_do(shape: tuple[int, int]) -> None:
    seconds = drawn(np.ones(shape), epochs=3, noise=0.3, seed=1)
    assert random_s(seconds, seed=0) == pytest.approx(seconds.sum()) == bound_s(seconds)


def test_random_hops_take_longer_than_the_bound() -> None:
    seconds = drawn(np.ones((6, 6)), epochs=3, noise=0.05, seed=1)
    assert random_s(seconds, seed=0) > bound_s(seconds)


def test_noise_is_drawn_anew_for_every_hop() -> None:
    seconds = drawn(np.ones((3, 4)), epochs=2, noise=0.05, seed=0)
    assert seconds.shape == (2, 3, 4) and len(np.unique(seconds)) == 24
    assert abs(np.log(seconds)).max() < 0.3


def test_mixed_cases_have_dear_candidates_and_a_schedule_learns_which() -> None:
    costs = costs_of(Case(10, 4, mixed=True), seed=0)
    assert sorted(costs[:, 0]) == [1.0] * 8 + [8.0] * 2
    assert 1 <= learn(Case(6, 4), seed=0) < 1.2
