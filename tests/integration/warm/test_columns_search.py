"""The random search for warm starts that are said to be exact and are not, with few cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mmdb.train.replay import parent_models
from mmdb.train.values.warm_spec import RowMap, row_map
from tests.bench.search.warm_columns import warm_figures


def test_no_child_is_said_to_be_exact_that_is_not() -> None:
    figures = warm_figures(seed=3, cases=16)
    assert all(figure.holds is not False for figure in figures), figures
    counts = {figure.name: figure.value for figure in figures}
    assert counts["children begun"] == 16 and counts["children said to be exact"] > 4


def test_the_search_finds_columns_that_are_matched_by_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_position(*decodings: Any) -> RowMap:
        return replace(row_map(*decodings), inputs={}, outputs={}, doubts=(), class_doubts=())

    monkeypatch.setattr(parent_models, "row_map", by_position)
    wrong = {figure.name: figure.value for figure in warm_figures(seed=3, cases=16)}
    assert wrong["children said to be exact that are not"] > 0
    assert wrong["outputs of a known class that are not the parent's"] > 0
