"""A small search for columns that lineage loses; `python -m tests.bench search` runs it in full."""

from __future__ import annotations

from tests.bench.search.lineage import search


def test_no_random_query_loses_a_column() -> None:
    figures = search(seed=1, cases=120)
    assert not [figure for figure in figures if figure.holds is False]
    assert {figure.name: figure.value for figure in figures}["lineage.duckdb.queries"] == 60
