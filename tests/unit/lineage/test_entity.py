"""The texts of lineage's nodes."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.errors import EntityNotFound
from mmdb.lineage import entity
from mmdb.lineage.entity import Asked, check_numbers, join, kind_of, numbers, parse, quote, split

names = st.text(
    st.sampled_from('".a') | st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12
)


def test_the_examples_of_the_docstrings_hold() -> None:
    assert doctest.testmod(entity).failed == 0


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("model:a@3", "model", "a@3"),
        ("file:/tmp/a:b.pt", "file", "/tmp/a:b.pt"),
        ("a@prod", None, "a@prod"),
        ("odd:name", None, "odd:name"),
        ("Model:a", None, "Model:a"),
        (":", None, ":"),
        ("", None, ""),
    ],
)
def test_a_kind_is_one_that_there_is(text: str, kind: str | None, name: str) -> None:
    assert parse(text) == Asked(kind, name)


@given(st.lists(names, min_size=1, max_size=3))
def test_what_is_joined_is_split_into_the_same_parts(parts: list[str]) -> None:
    node = join("column", tuple(parts))
    assert kind_of(node) == "column"
    assert split(node.removeprefix("column:")) == tuple(parts)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ('shop."v1.5".total', ("shop", "v1.5", "total")),
        ('"a""b".c', ('a"b', "c")),  # as SQL writes it
        (quote('a".b') + ".c", ('a".b', "c")),  # as a node writes it
        ('"a"b".c', ()),
        ("a.", ()),
        (".a", ()),
        ("a..b", ()),
        ('"a', ()),
        ('a"b', ()),
        ("", ()),
    ],
)
def test_a_name_is_split_at_dots_outside_of_quotes(name: str, parts: tuple[str, ...]) -> None:
    assert split(name) == parts


def test_numbers_are_read_and_checked() -> None:
    assert check_numbers("hop", "017/3/12") == "hop:17/3/12"
    assert numbers("hop:17/3/12") == (17, 3, 12)
    for kind, name in [("hop", "17/3"), ("candidate", "x"), ("candidate", "-1"), ("hop", "1/2/³")]:
        with pytest.raises(EntityNotFound, match=f"no {kind}"):
            check_numbers(kind, name)
