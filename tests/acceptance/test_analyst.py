"""The README as an analyst meets it who has psql and a table; then docs/bi.md as a reader does.

The statements are those of the README's section "In SQL" and no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row
from sqlglot import TokenType, tokenize

from tests.acceptance.pages import PASSWORD, ROOT, WORKER, Psql, Runner, examples, missing
from tests.cluster import Cluster

README, BI = ROOT / "README.md", ROOT / "docs" / "bi.md"
DATABASE = "mmdb_tour"
MOST = 10  # statements
LATEST = "'2026-01-01T00:00:00Z' AND '2126-01-01T00:00:00Z'"


@dataclass(frozen=True, slots=True)
class Tour:
    """A database after the tour, and what psql printed on the way."""

    url: str
    printed: str


def statements(code: str) -> list[str]:
    """Return the statements of a text.

    >>> statements("SELECT ';';\\nSELECT 2; -- two")
    ["SELECT ';'", 'SELECT 2']
    """
    ends = [t for t in tokenize(code, read="postgres") if t.token_type == TokenType.SEMICOLON]
    starts = [0, *(end.end + 1 for end in ends)]
    return [code[start : end.start].strip() for start, end in zip(starts, ends, strict=False)]


def section() -> str:
    """Return the README's section "In SQL"."""
    return README.read_text().partition("\n## In SQL\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def empty(cluster: Cluster, digits_database: str) -> Iterator[str]:
    """Yield the URL of a database with the table `digits` and mmdb, as its owner left it."""
    cluster.keep_password(WORKER, PASSWORD)
    url = cluster.create_database(DATABASE, digits_database)
    yield url
    cluster.drop_database(DATABASE)
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        for role in (WORKER, "dashboard"):
            connection.execute(f"DROP ROLE IF EXISTS {role}".encode())


@pytest.fixture(scope="module")
def tour(empty: str) -> Tour:
    """Take the tour."""
    assert rows(empty, "SELECT * FROM mmdb.model_overview") == []
    with Runner(empty) as runner:
        printed = [runner.run(replace(e, where="postgres")) for e in shown()]
    return Tour(empty, "".join(printed))


def shown() -> list[Any]:
    """Return the README's examples for an analyst."""
    return [example for example in examples(README) if example.where == "analyst"]


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with psycopg.connect(url, row_factory=tuple_row) as connection:
        return connection.execute(query.encode()).fetchall()


def test_the_tour_is_short_and_is_all_of_the_section() -> None:
    count = sum(len(statements(example.code)) for example in shown())
    assert 7 <= count <= MOST
    assert section().count("```sql\n") == len(shown())


def test_the_tour_prints_what_the_readme_shows(tour: Tour) -> None:
    blocks = re.findall(r"^```text\n(.*?)^```", section(), re.M | re.S)
    assert blocks
    for block in blocks:
        assert missing(block, tour.printed) == [], tour.printed


def test_it_says_which_columns_made_the_best_model(tour: Tour) -> None:
    (best,) = rows(tour.url, "SELECT candidate_id FROM mmdb.leaderboard WHERE rank = 1")
    made = "SELECT candidate_id, table_name, column_name FROM mmdb.model_lineage ORDER BY 3"
    assert rows(tour.url, made) == [(*best, "digits", "digit"), (*best, "digits", "pixels")]
    for column in ("digit", "pixels"):
        assert f"column:public.digits.{column}" in tour.printed


def test_it_leaves_predictions_that_lead_back_to_the_columns(tour: Tour) -> None:
    (found,) = rows(
        tour.url,
        "SELECT count(*), count(DISTINCT id), avg((g.prediction = d.digit::text)::integer)"
        " FROM guesses AS g INNER JOIN digits AS d USING (id)",
    )
    assert found[0] == found[1] == rows(tour.url, "SELECT count(*) FROM digits")[0][0]
    assert found[2] > 0.9
    up = "SELECT parent FROM mmdb.lineage('table:public.guesses')"
    assert ("column:public.digits.pixels",) in rows(tour.url, up)


# -- docs/bi.md, by the login that it makes ----------------------------------


@pytest.fixture(scope="module")
def reader(tour: Tour) -> str:
    """Return the URL of the login that docs/bi.md makes."""
    (login,) = [example for example in examples(BI) if example.where == "login"]
    with Psql(tour.url) as psql:
        psql.run(login.code, login.place)
    return re.sub(r"//.*?@", "//dashboard:secret@", tour.url)


def expanded(code: str) -> str:
    """Return a query as Grafana and Metabase send it: macros and variables replaced."""
    code = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN {LATEST}", code)
    group = r"floor(extract(epoch FROM \1) / 3600) * 3600"
    code = re.sub(r"\$__timeGroupAlias\((\w+), *\$__interval\)", rf'{group} AS "time"', code)
    code = re.sub(r"\$__time\((\w+)\)", r'\1 AS "time"', code)
    code = re.sub(r"\$\{run:sqlstring\}", "'search'", code)
    code = re.sub(r"\[\[(.*?)\]\]", r"\1", code)
    code = code.replace("{{run}}", "'search'").replace("{{model}}", "'search'")
    assert "$" not in code and "{{" not in code and "{%" not in code, code
    return code


@pytest.mark.parametrize(
    "example",
    [e for e in examples(BI) if e.where != "login"] if BI.exists() else [],
    ids=lambda example: example.place,
)
def test_every_query_of_the_page_has_an_answer_for_the_reader(reader: str, example: Any) -> None:
    assert example.language == "sql" and example.where in (
        "reader",
        "superset",
        "metabase",
        "grafana",
    )
    for statement in statements(expanded(example.code)):
        with Psql(reader) as psql:
            printed = psql.run(f"{statement};", example.place)
        assert re.search(r"^\(\d+ rows?\)$", printed, re.M), printed
        assert "(0 rows)" not in printed or "-- may be empty" in example.code, statement


def test_every_query_of_the_page_is_run() -> None:
    text = BI.read_text()
    assert text.count("```sql\n") == len(examples(BI)) > 8


def test_the_reader_may_not_write(reader: str) -> None:
    with psycopg.connect(reader) as connection, pytest.raises(psycopg.Error):
        connection.execute("INSERT INTO guesses VALUES (1)")
