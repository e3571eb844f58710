"""What a run may say of its warm start."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.errors import InvalidOption
from mmdb.store.parents import Limits
from mmdb.train.ledger.run_options import parse_run_options
from mmdb.train.warm.warm_options import (
    LEAST_LR_SCALE,
    OFF,
    WarmOptions,
    lr_scale,
    parse_warm_options,
)


def test_nothing_said_means_the_zoo_s_limits_and_no_change_of_the_training() -> None:
    assert parse_warm_options(None) == WarmOptions()
    assert parse_warm_options({}) == WarmOptions(
        limits=Limits(), shrink=None, lr_epochs=0, within_run=False
    )


def test_what_is_said_counts() -> None:
    raw = {"threshold": 0.5, "coverage": 0, "shrink": 0.6, "lr_epochs": 2, "within_run": True}
    assert parse_warm_options(raw) == WarmOptions(
        limits=Limits(similarity=0.5, coverage=0.0), shrink=0.6, lr_epochs=2, within_run=True
    )


def test_to_shrink_to_the_whole_is_not_to_shrink() -> None:
    assert parse_warm_options({"shrink": 1}).shrink is None


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ([], "options.warm_start"),
        ("auto", "options.warm_start"),
        ({"treshold": 0.5}, "treshold"),
        ({"threshold": 1.5}, "threshold"),
        ({"threshold": "0.5"}, "threshold"),
        ({"threshold": True}, "threshold"),
        ({"threshold": math.nan}, "threshold"),
        ({"coverage": -0.1}, "coverage"),
        ({"shrink": 0}, "shrink"),
        ({"shrink": 1.01}, "shrink"),
        ({"lr_epochs": -1}, "lr_epochs"),
        ({"lr_epochs": 1.0}, "lr_epochs"),
        ({"lr_epochs": True}, "lr_epochs"),
        ({"within_run": 1}, "within_run"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"optimizer": True}, "optimizer"),  # of no model that is named
    ],
)
def test_what_makes_no_sense_is_refused_by_name(raw: Any, named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        parse_warm_options(raw)


def test_options_of_a_warm_start_that_is_off_are_refused() -> None:
    with pytest.raises(InvalidOption, match="'off'"):
        parse_warm_options({}, OFF)
    assert parse_warm_options(None, OFF) == WarmOptions()


def test_candidates_of_the_run_compete_only_where_no_parent_was_named() -> None:
    with pytest.raises(InvalidOption, match="net@1"):
        parse_warm_options({"within_run": True}, "net@1")
    assert not parse_warm_options({"within_run": False}, "net@1").within_run
    assert parse_warm_options({"optimizer": True}, "net@1").optimizer


def test_a_run_takes_them_among_its_options() -> None:
    parse_run_options({"warm_start": {"threshold": 0.5}}, "auto")


@given(st.floats(0, 1))
def test_the_learning_rate_falls_with_what_is_known_already(coverage: float) -> None:
    scale = lr_scale(coverage)
    assert LEAST_LR_SCALE <= scale <= 1
    assert scale == pytest.approx(1 - coverage) or scale == LEAST_LR_SCALE
