"""From a search space to candidates."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from mmdb.errors import EmptySearch, InvalidHyperparameter, InvalidOption, SearchError
from mmdb.train.search import MAX_CANDIDATES, candidates

SPACE = {"lr": [0.1, 0.01], "batch_size": [16, 32, 64], "optimizer": ["adam", {"name": "sgd"}]}


def shuffled(space: dict[str, Any], seed: int) -> dict[str, Any]:
    keys = list(space)
    random.Random(seed).shuffle(keys)
    return {key: space[key] for key in keys}


def test_a_grid_holds_every_combination_once() -> None:
    found = candidates({"space": SPACE}, seed=0)
    assert len(found) == 12 == len({json.dumps(config, sort_keys=True) for config in found})
    assert all(set(config) == set(SPACE) for config in found)


@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_a_grid_does_not_depend_on_the_order_of_its_keys(seed: int) -> None:
    assert candidates({"space": shuffled(SPACE, seed)}, seed) == candidates({"space": SPACE}, 0)


def test_no_search_is_one_candidate_with_all_defaults() -> None:
    assert candidates({}, seed=0) == [{}]
    assert candidates({"method": "grid", "space": {}}, seed=0) == [{}]


def test_a_single_value_needs_no_list_and_a_list_of_lists_is_a_list_of_values() -> None:
    space = {"lr": 0.1, "architecture.hidden": [[8], [8, 8]], "schedule": {"name": "cosine"}}
    found = candidates({"space": space}, seed=0)
    assert [config["architecture.hidden"] for config in found] == [[8], [8, 8]]
    assert {config["lr"] for config in found} == {0.1}


RANGES = {
    "lr": {"low": 1e-4, "high": 1e-1, "log": True},
    "weight_decay": {"low": 0, "high": 0.1},
    "batch_size": {"low": 8, "high": 64, "whole": True},
    "optimizer": ["adam", "sgd", "adagrad"],
}


def draw(space: dict[str, Any], trials: int = 50, seed: int = 3) -> list[dict[str, Any]]:
    return candidates({"method": "random", "space": space, "trials": trials}, seed)


def test_a_seed_draws_the_same_whatever_the_order_of_the_keys() -> None:
    assert draw(RANGES) == draw(shuffled(RANGES, 1)) != draw(RANGES, seed=4)


@pytest.mark.parametrize("name", RANGES)
def test_each_dimension_draws_from_a_stream_of_its_own(name: str) -> None:
    alone = [config[name] for config in draw({name: RANGES[name]})]
    assert [config[name] for config in draw(RANGES)] == alone
    changed = {key: [1] if key != name else value for key, value in RANGES.items()}
    assert [config[name] for config in draw(changed)] == alone


def test_more_trials_keep_the_first_ones() -> None:
    assert draw(RANGES, trials=50)[:20] == draw(RANGES, trials=20)


def test_two_dimensions_of_one_range_draw_apart() -> None:
    space = {"architecture.a": {"low": 0, "high": 1}, "architecture.b": {"low": 0, "high": 1}}
    assert all(config["architecture.a"] != config["architecture.b"] for config in draw(space))


def test_draws_stay_in_their_range() -> None:
    for config in draw(RANGES, trials=500):
        assert 1e-4 <= config["lr"] <= 1e-1 * (1 + 1e-12)
        assert 0 <= config["weight_decay"] <= 0.1
        assert isinstance(config["batch_size"], int) and 8 <= config["batch_size"] <= 64
    small = draw({"lr": {"low": 1e-4, "high": 1e-1, "log": True}}, trials=500)
    assert 200 < sum(config["lr"] < 10**-2.5 for config in small) < 300  # even in the logarithm


@pytest.mark.parametrize(("low", "high"), [(1.2, 2.9), (2, 2), (-3.5, -1.5)])
def test_whole_draws_are_whole_numbers_inside_the_range(low: float, high: float) -> None:
    found = draw({"x": {"low": low, "high": high, "whole": True}})
    assert all(isinstance(c["x"], int) and low <= c["x"] <= high for c in found)


BAD: list[tuple[dict[str, Any], type[SearchError], str]] = [
    ({"colour": 1}, InvalidOption, "colour"),
    ({"method": "tpe"}, InvalidOption, "tpe"),
    ({"method": ["grid"]}, InvalidOption, "grid"),
    ({"method": "sobol"}, InvalidOption, "sobol"),
    ({"trials": 5}, InvalidOption, "trials"),
    ({"method": "random", "eta": 3}, InvalidOption, "eta"),
    ({"space": [1]}, InvalidOption, "space"),
    ({"space": None}, InvalidOption, "space"),
    ({"space": {"lr": []}}, EmptySearch, "'lr'"),
    ({"space": {"lr": {"low": 1, "high": 2}}}, InvalidHyperparameter, "lr"),
    ({"space": {str(k): list(range(1000)) for k in range(3)}}, InvalidOption, "1000000000"),
    ({"method": "random", "trials": 0}, EmptySearch, "trials"),
    ({"method": "random", "trials": True}, EmptySearch, "trials"),
    ({"method": "random", "trials": "9"}, EmptySearch, "trials"),
    ({"method": "random", "trials": MAX_CANDIDATES + 1}, InvalidOption, "trials"),
]


@pytest.mark.parametrize(("search", "error", "named"), BAD)
def test_a_search_that_is_not_one_is_refused(
    search: dict[str, Any], error: type[SearchError], named: str
) -> None:
    with pytest.raises(error, match=named) as raised:
        candidates(search, seed=0)
    assert raised.value.hint


BAD_RANGES: list[dict[str, Any]] = [
    {"low": 1},
    {"low": 2, "high": 1},
    {"low": "a", "high": 1},
    {"low": 0, "high": [1]},
    {"low": 0, "high": 1, "log": True},
    {"low": -1, "high": 1, "log": True},
    {"low": 0, "high": float("nan")},
    {"low": 0, "high": float("inf")},
    {"low": -1e308, "high": 1e308},
    {"low": 0, "high": 10**400},
    {"low": 1.2, "high": 1.7, "whole": True},
    {"low": 0, "high": 1, "step": 0.1},
    {"low": 1, "high": 3, "whole": "no"},
    {"low": 1, "high": 3, "log": "no"},
    {"low": 1, "high": 3, "log": 0},
    {"low": True, "high": 3},
    {"low": False, "high": True},
]


@pytest.mark.parametrize("dimension", BAD_RANGES)
def test_a_range_that_is_not_one_is_refused(dimension: dict[str, Any]) -> None:
    with pytest.raises(InvalidHyperparameter, match="lr"):
        draw({"lr": dimension})
