"""A few corruptions, as many as some seconds allow."""

from __future__ import annotations

from tests.bench.search.corruptions import search


def test_corrupted_bytes_are_named_and_never_give_wrong_bits() -> None:
    figures = search(seed=7, cases=16)
    assert [figure.name for figure in figures if figure.holds is False] == []
