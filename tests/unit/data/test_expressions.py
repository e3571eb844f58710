"""Expressions that an engine takes: no column in them is lost, whatever the parser makes of them.

`expressions/` holds one a line, each tried on its engine. A column is called k_ and a letter, so
what an expression reads is what its text names; what cannot be told must be marked.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mmdb.data.query import Engine, analyse
from mmdb.db.connection import Relation, TableName

FOLDER = Path(__file__).with_name("expressions")
COLUMNS = tuple((f"k_{letter}", "text") for letter in "abcdefghijklmnopqrstuvwxyz")
#: Of all, how many must be told wholly.
TOLD = 0.97


class OneTable:
    def relation(self, name: TableName, beside: Relation | None = None) -> Relation | None:
        is_there = name.name == "e"
        return Relation(schema="own", name="e", kind="table", columns=COLUMNS) if is_there else None


def expressions(engine: Engine) -> list[str]:
    return (FOLDER / f"{engine}.txt").read_text().splitlines()


def read(expression: str, engine: Engine) -> tuple[set[str], bool]:
    """Return the columns found for an expression, filters of its subqueries too, and if marked."""
    query = f"SELECT {expression} AS out FROM e"
    found = analyse(query, engine, OneTable()).sources_of(["out"])
    columns = {source.column for source in found if source.column is not None}
    return columns, any(source.resolution == "unresolved" for source in found)


def named(expression: str) -> set[str]:
    return set(re.findall(r"\bk_[a-z]\b", re.sub(r"'[^']*'", "", expression)))


@pytest.mark.parametrize("engine", ["postgres", "duckdb"])
def test_no_column_of_an_expression_is_lost(engine: Engine) -> None:
    told = 0
    for expression in expressions(engine):
        found, is_marked = read(expression, engine)
        wanted = named(expression)
        assert found <= wanted, expression
        assert found == wanted or is_marked, expression
        told += found == wanted and not is_marked
    assert told >= TOLD * len(expressions(engine))
