"""The source of dbt in docs/dbt is what the command makes of the views.

`.venv/bin/python -m tests.unit.standards.test_dbt` writes it anew.
"""

from __future__ import annotations

from pathlib import Path

import yaml  # type: ignore[import-untyped]

from mmdb.db.columnar import ViewColumn, ViewColumns
from mmdb.report.facts import connected_to_read
from mmdb.standards.view_files import dbt_sources, sources

GOLDEN = Path(__file__).resolve().parents[3] / "docs" / "dbt" / "sources.yml"
VIEWS = [
    ViewColumns(
        "board",
        'Says "best": {{ first }}, {% then %} others.',
        (ViewColumn("run", "text", "Its name: a #1."), ViewColumn("rank", "bigint", None)),
    ),
    ViewColumns("one", None, (ViewColumn("run", "text", None),)),
]


def key(view: str, number: int, column: str, kind: str, *to: str) -> dict[str, object]:
    refers_to, refers_column = to or (None, None)
    row = {"view_name": view, "key": number, "column_name": column, "kind": kind}
    return row | {"refers_to": refers_to, "refers_column": refers_column}


KEYS = [
    key("board", 1, "run", "primary"),
    key("board", 1, "rank", "primary"),
    key("board", 2, "run", "foreign", "one", "run"),
    key("board", 3, "rank", "unique"),
    key("one", 1, "run", "primary"),
    key("gone", 1, "run", "primary"),
]


def produced() -> str:
    """Return the source of a fresh database; both engines say the same of their views."""
    with connected_to_read("duckdb://") as connection:
        return dbt_sources(connection)


def test_the_source_in_the_docs_is_current() -> None:
    assert GOLDEN.read_text() == produced()


def test_comments_and_keys_become_descriptions_and_tests() -> None:
    (source,) = yaml.safe_load(sources(VIEWS, KEYS))["sources"]
    assert (source["name"], source["schema"]) == ("mmdb", "mmdb")
    board, one = source["tables"]
    assert board["description"] == 'Says "best": { { first }}, { % then %} others.'
    run, rank = board["columns"]
    assert run["description"] == "Its name: a #1." and "description" not in rank
    to = {"to": "source('mmdb', 'one')", "field": "run"}
    assert run["data_tests"] == ["not_null", {"relationships": {"arguments": to}}]
    assert rank["data_tests"] == ["not_null", "unique"]
    assert one == {
        "name": "one",
        "columns": [{"name": "run", "data_tests": ["not_null", "unique"]}],
    }


if __name__ == "__main__":
    GOLDEN.write_text(produced())
