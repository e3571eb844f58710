"""A small search for columns that lineage loses; `python -m tests.bench search` runs it in full."""

from __future__ import annotations

from tests.bench.search.lineage import search


def test_no_random_query_loses_a_column() -> None:
    figures = search(seed=1, cases=120)
    lost = [figure for figure in figures if figure.name.endswith("lost_columns")]
    assert len(lost) == 2
    assert all(figure.holds for figure in lost)
    assert {figure.name: figure.value for figure in figures}["lineage.duckdb.queries"] == 60
