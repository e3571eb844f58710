"""Seeds are apart from one another, and partition orders form Latin squares."""

from __future__ import annotations

from itertools import product

import pytest

from mmdb.train.values.seeds import VALIDATION, candidate_seed, hop_seed, visit_order


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("run_seed", [0, -1, 2**63 - 1, -(2**63)])
def test_any_p_consecutive_candidates_are_on_p_different_partitions(
    partitions: int, run_seed: int
) -> None:
    for epoch, first in product(range(3), (0, 1, 5)):
        orders = [
            visit_order(run_seed, candidate, epoch, partitions)
            for candidate in range(first, first + partitions)
        ]
        everything = set(range(partitions))
        assert all(set(order) == everything for order in orders)
        assert all(set(column) == everything for column in zip(*orders, strict=True))


def test_orders_differ_from_epoch_to_epoch_and_from_seed_to_seed() -> None:
    assert len({visit_order(0, 0, epoch, 8) for epoch in range(50)}) > 45
    assert len({visit_order(seed, 0, 0, 8) for seed in range(50)}) > 45


def test_seeds_fit_a_signed_bigint_and_never_meet() -> None:
    seeds = [candidate_seed(run, candidate) for run in range(20) for candidate in range(50)]
    seeds += [
        hop_seed(run, candidate, epoch, part)
        for run, candidate, epoch in product(range(5), range(5), range(5))
        for part in (VALIDATION, 0, 1, 2)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seeds_are_those_of_the_first_release() -> None:
    assert candidate_seed(0, 0) == CANDIDATE
    assert hop_seed(7, 1, 2, VALIDATION) == HOP
    assert visit_order(3, 1, 2, 5) == ORDER


#: Written down once: another value would make no stored run replayable.
CANDIDATE = 2177771126711215699
HOP = 1654703529008917575
ORDER = (3, 1, 2, 4, 0)
