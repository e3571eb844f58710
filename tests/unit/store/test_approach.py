"""Which approach is chosen: by default, under weights, and where some are impossible."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmdb.errors import InvalidOption
from mmdb.store.models.approach import (
    APPROACHES,
    ApproachChoice,
    ApproachCost,
    Replay,
    SaveAmounts,
    Weights,
    choose,
    decide,
    parse_options,
    ratio,
)

MB = 1_000_000
SIZES = {"1 MB": MB, "14 MB": 14 * MB, "47 MB": 47 * MB, "241 MB": 241 * MB}
ENGINES = ["postgres", "duckdb"]


def amounts(
    *,
    held: int = 0,
    changed: int = 0,
    fresh: int = 0,
    dtype: str = "float32",
    changed_entries: int | None = None,
) -> SaveAmounts:
    """Return amounts of one dtype over 160 tensors."""
    return SaveAmounts(
        held={dtype: held},
        changed={dtype: changed},
        fresh={dtype: fresh},
        entries=160,
        changed_entries=changed_entries,
    )


def decided(what: SaveAmounts, engine: str = "postgres", **arguments: Any) -> ApproachChoice:
    return decide(what, engine=engine, **arguments)


# -- the defaults -------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_model_without_a_parent_is_a_snapshot(engine: str, size: int) -> None:
    choice = decided(amounts(fresh=size), engine)
    assert choice.approach == "snapshot"
    assert "parent" in choice.reason["impossible"]["update"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_with_a_parent_and_some_tensors_unchanged_it_is_an_update(
    engine: str, size: int, dtype: str
) -> None:
    partly = amounts(held=size * 24 // 25, changed=size // 25, dtype=dtype, changed_entries=2)
    assert decided(partly, engine).approach == "update"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_with_every_weight_moved_it_is_an_update_where_deltas_pay(
    engine: str, size: int, dtype: str
) -> None:
    moved = amounts(changed=size, dtype=dtype, changed_entries=160)
    assert decided(moved, engine).approach == "update"


def test_with_every_weight_moved_it_is_a_snapshot_where_deltas_cost_more_than_they_save() -> None:
    measured = {("float32", True): (80e6, 100e6), ("float32", False): (84.3e6, 100e6)}
    moved = amounts(changed=241 * MB, changed_entries=160)
    assert decided(moved, measured=measured).approach == "snapshot"


def test_a_run_s_model_becomes_a_recipe_only_under_weights_that_ask_for_it() -> None:
    what, recipe = amounts(fresh=241 * MB), Replay(recipe_bytes=3000, train_s=1.0)
    assert decided(what, replay=recipe).approach == "snapshot"
    dear = parse_options({"weights": {"storage": 1000}})
    assert decided(what, replay=recipe, options=dear).approach == "provenance"
    hurried = parse_options({"weights": {"storage": 1000, "recover": 1000}})
    assert decided(what, replay=recipe, options=hurried).approach == "snapshot"


def test_a_recipe_that_its_author_wrote_needs_no_weights_to_win() -> None:
    cheap = Replay(recipe_bytes=3000, train_s=0.2, asked=True)
    assert decided(amounts(fresh=241 * MB), replay=cheap).approach == "provenance"
    dear = Replay(recipe_bytes=3000, train_s=60.0, asked=True)
    assert decided(amounts(fresh=241 * MB), replay=dear).approach == "snapshot"


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        (None, "no recipe"),
        (Replay(recipe_bytes=3000, train_s=None, asked=True), "not known"),
        (Replay(recipe_bytes=3000, train_s=0.1, asked=True, rejected="it differs"), "it differs"),
        (Replay(recipe_bytes=3000, train_s=0.1), "no weights were given"),
    ],
)
def test_why_provenance_was_ruled_out_is_in_the_reason(recipe: Replay | None, why: str) -> None:
    choice = decided(amounts(fresh=241 * MB), replay=recipe)
    assert choice.approach == "snapshot"
    assert why in choice.reason["impossible"]["provenance"]


# -- the choice itself --------------------------------------------------------

COSTS = {
    "snapshot": ApproachCost(stored_bytes=100 * MB, save_s=1.0, recover_s=0.2),
    "update": ApproachCost(stored_bytes=40 * MB, save_s=0.5, recover_s=0.4),
    "provenance": ApproachCost(stored_bytes=MB // 1000, save_s=0.01, recover_s=30.0),
}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (Weights(storage=0, save=0, recover=1), "snapshot"),
        (Weights(storage=1, save=1, recover=1), "update"),
        (Weights(storage=1, save=1, recover=0), "provenance"),
        (Weights(storage=1000, save=1, recover=1), "provenance"),
        (Weights(storage=0, save=0, recover=0), "snapshot"),
    ],
)
def test_the_cheapest_under_the_weights_is_taken(weights: Weights, expected: str) -> None:
    assert choose(COSTS, weights, {}).approach == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("approach", APPROACHES)
def test_what_is_impossible_is_not_taken(approach: str) -> None:
    weights = {
        "snapshot": Weights(storage=0, save=0, recover=1),
        "update": Weights(storage=1, save=1, recover=1),
        "provenance": Weights(storage=1, save=0, recover=0),
    }[approach]
    assert choose(COSTS, weights, {}).approach == approach  # type: ignore[arg-type]
    other = choose(COSTS, weights, {approach: "no"})  # type: ignore[arg-type]
    assert other.approach != approach
    assert other.reason["impossible"] == {approach: "no"}


def test_the_reason_is_json_with_every_prediction_and_the_weights() -> None:
    recipe = Replay(recipe_bytes=3000, train_s=7.0, parent_recover_s=1.0)
    what = amounts(held=9 * MB, changed=MB, changed_entries=2)
    reason = decided(what, replay=recipe).reason
    assert json.loads(json.dumps(reason)) == reason
    assert set(reason["predicted"]) == set(APPROACHES)
    assert reason["predicted"]["provenance"]["stored_bytes"] == 3000
    assert reason["predicted"]["provenance"]["recover_s"] > 8.0
    assert reason["weights"] == {"storage": 20.0, "save": 1.0, "recover": 1.0}


def test_an_approach_that_is_asked_for_is_taken_and_the_others_are_predicted() -> None:
    choice = decided(amounts(changed=MB, changed_entries=160), wanted="snapshot")
    assert choice.approach == "snapshot"
    assert choice.reason["asked"] == "snapshot"
    assert set(choice.reason["predicted"]) == {"snapshot", "update"}


def test_an_approach_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidOption, match="'zip'"):
        decided(amounts(fresh=MB), wanted="zip")


# -- what the predictions are made of -----------------------------------------


def test_measured_ratios_count_once_there_are_enough_bytes() -> None:
    assert ratio("float32", {}, delta=False) == 0.84
    assert ratio("float32", {("float32", False): (3e6, 4e6)}, delta=False) == 0.84
    assert ratio("float32", {("float32", False): (30e6, 40e6)}, delta=False) == 0.75
    assert ratio("uint16", {}, delta=True) == 1.0


def test_rates_of_the_options_replace_the_engine_s() -> None:
    slow = parse_options({"rates": {"read_mb_s": 1}})
    reason = decided(amounts(fresh=10 * MB), options=slow).reason
    assert reason["predicted"]["snapshot"]["recover_s"] == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize(
    "options",
    [
        {"weight": {}},
        {"weights": 3},
        {"weights": {"space": 1}},
        {"weights": {"storage": -1}},
        {"weights": {"storage": "much"}},
        {"weights": {"storage": float("nan")}},
        {"weights": {"storage": True}},
        {"rates": {"read_mb_s": 0}},
        {"rates": {"read": 1}},
        {"verify_replay_s": float("inf")},
        {"verify_replay_s": None},
    ],
)
def test_options_with_a_wrong_name_or_value_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_options(options)
    assert caught.value.hint
