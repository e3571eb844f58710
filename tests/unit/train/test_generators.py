"""Generators and settings are borrowed for a training, and put back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from mmdb.errors import InvalidRecipe
from mmdb.train.compute.exact import borrowed, rng_state


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), torch.rand(()).item()


def seeded(seed: int) -> tuple[float, float, float]:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return draws()


def test_inside_the_block_every_generator_starts_from_the_seed() -> None:
    expected = seeded(5)
    seeded(6)
    with borrowed(5):
        assert draws() == expected


def test_recorded_states_go_before_the_seed() -> None:
    seeded(5)
    state, expected = rng_state(), draws()
    with borrowed(7, state):
        assert draws() == expected
    with borrowed(7, {"torch": state["torch"]}):
        found = draws()
    with borrowed(7):
        alone = draws()
    assert found == (*alone[:2], expected[2])


@pytest.mark.parametrize("fails", [False, True])
def test_afterwards_everything_is_as_it_was(fails: bool) -> None:
    expected = (seeded(1), draws())[1]
    seeded(1)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.no_grad():
            with pytest.raises(KeyError) if fails else borrowed(9), borrowed(3, threads=1):
                assert torch.is_grad_enabled()
                assert torch.get_num_threads() == 1
                assert torch.zeros(()).dtype == torch.float32
                assert torch.get_float32_matmul_precision() == "highest"
                assert torch.are_deterministic_algorithms_enabled()
                draws()
                if fails:
                    raise KeyError
            assert not torch.is_grad_enabled()
        assert torch.get_num_threads() == 2
        assert torch.zeros(()).dtype == torch.float64
        assert torch.get_float32_matmul_precision() == "medium"
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(threads)
    assert draws() == expected


@pytest.mark.parametrize(
    "states",
    [
        {"jax": 1},
        {"python": 3},
        {"numpy": ("MT19937", [1])},
        {"torch": torch.zeros(3, dtype=torch.uint8)},
        {"torch": "state"},
    ],
)
def test_a_state_that_is_none_is_refused_and_nothing_stays_changed(states: dict[str, Any]) -> None:
    expected = (seeded(1), draws())[1]
    seeded(1)
    with pytest.raises(InvalidRecipe, match="state 'rng'"), borrowed(2, states):
        pass
    assert draws() == expected
