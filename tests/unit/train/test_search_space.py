"""Conditions, constraints, corners, and the independence of draws."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from mmdb.errors import EmptySearch, InvalidHyperparameter, InvalidOption, SearchError
from mmdb.train.search import candidates, possible

MOMENTUM = {"low": 0.5, "high": 0.99, "when": {"optimizer": "sgd"}}
CONDITIONAL: dict[str, Any] = {
    "optimizer": ["adam", {"name": "sgd", "nesterov": True}, "rmsprop"],
    "architecture.a": MOMENTUM,
    "architecture.b": {"values": [1, 2], "when": {"optimizer": ["adam", "rmsprop"]}},
}
UNIT = {"low": 0, "high": 1}


def draw(space: dict[str, Any], trials: int = 200, **more: Any) -> list[dict[str, Any]]:
    return candidates({"method": "random", "space": space, "trials": trials} | more, 5)


# -- streams ------------------------------------------------------------------


def test_hyper_parameters_of_random_search_are_not_correlated() -> None:
    names = [f"architecture.{letter}" for letter in "abcdef"]
    found = draw(dict.fromkeys(names, UNIT), trials=2000)
    drawn = np.array([[config[name] for name in names] for config in found])  # (trials, names)
    correlations = np.corrcoef(drawn, rowvar=False)
    others = [correlations[i, j] for i, j in combinations(range(len(names)), 2)]
    assert max(map(abs, others)) < 0.08  # 3.5 standard errors; one stream for all gives 1


def test_one_candidate_s_draws_do_not_follow_from_another_s() -> None:
    values = [config["architecture.a"] for config in draw({"architecture.a": UNIT}, trials=2000)]
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.08
    assert len(set(values)) == len(values)


# -- conditions ---------------------------------------------------------------


def test_a_dimension_is_left_out_where_its_condition_does_not_hold() -> None:
    for config in draw(CONDITIONAL):
        sgd = config["optimizer"] == {"name": "sgd", "nesterov": True}
        assert ("architecture.a" in config) == sgd
        assert ("architecture.b" in config) == (not sgd)


def test_a_grid_holds_a_combination_once_whatever_does_not_count_in_it() -> None:
    space = CONDITIONAL | {"architecture.a": {"values": [0.5, 0.9], "when": {"optimizer": "sgd"}}}
    found = candidates({"space": space}, 0)
    assert len(found) == 2 + 2 + 2 == len({json.dumps(c, sort_keys=True) for c in found})


def test_a_value_listed_twice_is_trained_twice() -> None:
    assert len(candidates({"space": {"lr": [0.1, 0.1]}}, 0)) == 2


BAD_CONDITIONS: list[Any] = [
    {},
    "sgd",
    {"optimizer": "adagrad"},
    {"optimizer": []},
    {"optimizer": ["sgd", "adagrad"]},
    {"optimiser": "sgd"},
    {"lr": 0.1},
    {"architecture.a": 0.5},
]


@pytest.mark.parametrize("when", BAD_CONDITIONS, ids=str)
def test_a_condition_that_is_not_one_is_refused(when: Any) -> None:
    space = CONDITIONAL | {"lr": UNIT, "architecture.c": {"values": [1], "when": when}}
    with pytest.raises(InvalidHyperparameter, match=r"architecture\.c") as raised:
        draw(space)
    assert "when" in raised.value.hint


def test_a_condition_on_a_conditional_dimension_is_refused() -> None:
    space = CONDITIONAL | {"architecture.c": {"values": [1], "when": {"architecture.b": 1}}}
    with pytest.raises(InvalidHyperparameter, match=r"on architecture\.b"):
        draw(space)


# -- constraints --------------------------------------------------------------

WIDTHS = {"architecture.heads": [2, 4, 8, 16], "architecture.width": [4, 8], "lr": UNIT}
NARROW = [["architecture.heads", "<=", "architecture.width"], ["lr", "<", 0.5]]


def test_every_draw_meets_the_constraints() -> None:
    for config in draw(WIDTHS, constraints=NARROW):
        assert config["architecture.heads"] <= config["architecture.width"] and config["lr"] < 0.5


def test_constraints_leave_other_candidates_draws_alone() -> None:
    free, bound = draw(WIDTHS), draw(WIDTHS, constraints=[["lr", "<", 0.5]])
    kept = [(a, b) for a, b in zip(free, bound, strict=True) if a["lr"] < 0.5]
    assert len(kept) > 50 and all(a == b for a, b in kept)


def test_a_grid_holds_what_meets_the_constraints() -> None:
    space = {name: WIDTHS[name] for name in ("architecture.heads", "architecture.width")}
    found = candidates({"space": space, "constraints": NARROW[:1]}, 0)
    assert [tuple(c.values()) for c in found] == [(2, 4), (2, 8), (4, 4), (4, 8), (8, 8)]


def test_a_constraint_on_a_dimension_that_does_not_count_holds() -> None:
    found = draw(CONDITIONAL, constraints=[["architecture.a", ">", 0.9]])
    assert any("architecture.a" not in c for c in found)
    assert all(c.get("architecture.a", 1) > 0.9 for c in found)


@pytest.mark.parametrize("method", ["grid", "random", "asha", "tpe"])
def test_a_space_that_no_candidate_satisfies_is_empty(method: str) -> None:
    search = {"method": method, "space": {"lr": [0.1, 0.2]}, "constraints": [["lr", ">", 1]]}
    with pytest.raises(EmptySearch, match="constraints") as raised:
        possible(search, epochs=9, seed=0)
    assert raised.value.hint


BAD_CONSTRAINTS: list[tuple[Any, type[SearchError]]] = [
    ("lr < 1", InvalidOption),
    (None, InvalidOption),
    ([["lr", "<"]], InvalidOption),
    ([["colour", "<", 1]], InvalidOption),
    ([["lr", "~", 1]], InvalidOption),
    ([[["lr"], "<", 1]], InvalidOption),
    ([["lr", ["<"], 1]], InvalidOption),
    ([["lr", "<", "0.5"]], InvalidOption),
]


@pytest.mark.parametrize(("constraints", "error"), BAD_CONSTRAINTS, ids=str)
def test_a_constraint_that_is_not_one_is_refused(
    constraints: Any, error: type[SearchError]
) -> None:
    with pytest.raises(error, match=r"search\.constraints") as raised:
        draw(WIDTHS, constraints=constraints)
    assert raised.value.hint


# -- what is checked before ---------------------------------------------------


def test_what_is_checked_before_a_grid_or_random_search_is_all_of_it() -> None:
    grid = {"space": {"lr": [0.1, 0.2], "batch_size": [8, 16]}}
    assert possible(grid, epochs=9, seed=3) == candidates(grid, 3)
    search = {"method": "random", "space": WIDTHS, "trials": 20}
    assert possible(search, epochs=9, seed=3) == candidates(search, 3)
    started = possible({"method": "asha", "space": WIDTHS, "trials": 20}, epochs=9, seed=3)
    assert started == candidates(search, 3)


@pytest.mark.parametrize("method", ["tpe", "pbt"])
def test_what_is_checked_before_holds_every_value_and_both_ends(method: str) -> None:
    space = CONDITIONAL | {
        "lr": {"low": 1e-4, "high": 0.1, "log": True},
        "batch_size": {"low": 7.5, "high": 64.2, "whole": True},
        "architecture.hidden": [[8], [8, 8], [16]],
    }
    found = possible({"method": method, "space": space}, epochs=9, seed=0)
    wanted: dict[str, list[Any]] = {
        "lr": [1e-4, 0.1],
        "batch_size": [8, 64],
        "architecture.hidden": [[8], [8, 8], [16]],
        "architecture.a": [0.5, 0.99],
        "architecture.b": [1, 2],
        "optimizer": ["adam", {"name": "sgd", "nesterov": True}, "rmsprop"],
    }
    for name, ends in wanted.items():
        held = [config[name] for config in found if name in config]
        assert all(end in held for end in ends), name
    assert len(found) < 40
