"""What a dataset's query may be, and what it reads."""

import time

import pytest

from mmdb.data.query import Engine, analyse
from mmdb.errors import NotASelect, NotOneStatement, QueryError

TABLES = {
    "t": [("id", "integer"), ("a", "real"), ("b", "real"), ("y", "integer")],
    "u": [("id", "integer"), ("C", "text"), ("w", "real")],
    "shop.t": [("id", "integer"), ("a", "real")],
    "twice": [("a", "real"), ("a", "real")],  # two schemas have one
    "wide": [(f"c{i}", "real") for i in range(784)],
}
ENGINES: list[Engine] = ["postgres", "duckdb"]

Found = set[tuple[str, str | None, str | None]]


def sources(query: str, engine: Engine) -> Found:
    analysis = analyse(query, engine, TABLES.get)
    return {(s.table, s.column, s.output) for s in analysis.sources}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a, y FROM t", {("t", "a", "a"), ("t", "y", "y")}),
        (
            "SELECT a + b AS s FROM t WHERE id > 3",
            {("t", "a", "s"), ("t", "b", "s"), ("t", "id", None)},
        ),
        ("SELECT * FROM shop.t", {("shop.t", "id", "id"), ("shop.t", "a", "a")}),
        (
            "WITH x AS (SELECT id, a * 2 AS k FROM t) SELECT x.k, u.w FROM x JOIN u ON u.id = x.id",
            {("t", "a", "k"), ("u", "w", "w"), ("t", "id", None), ("u", "id", None)},
        ),
        (
            "SELECT k FROM (SELECT a AS k FROM t UNION ALL SELECT w FROM u) AS q",
            {("t", "a", "k"), ("u", "w", "k")},
        ),
        (
            "SELECT a, (SELECT max(w) FROM u WHERE u.id = t.id) AS m FROM t",
            {("t", "a", "a"), ("u", "w", "m"), ("t", "id", None), ("u", "id", None)},
        ),
        (
            "SELECT x.e FROM t, LATERAL (SELECT t.a + 1 AS e) AS x",
            {("t", "a", "e")},
        ),
        (
            "SELECT q.p FROM (SELECT a, b FROM t) AS q (p, r)",
            {("t", "a", "p"), ("t", "b", None)},
        ),
        (
            "WITH RECURSIVE r (n) AS (SELECT a FROM t UNION ALL SELECT n + 1 FROM r WHERE n < 5)"
            " SELECT n FROM r",
            {("t", "a", "n")},
        ),
        ("SELECT count(*) AS n FROM t", {("t", None, None)}),
        ("SELECT * FROM nowhere", {("nowhere", None, None)}),
        ("SELECT * FROM twice", {("twice", None, None)}),
        (
            "SELECT t.a, n.q FROM t JOIN nowhere AS n USING (id)",
            {("t", "a", "a"), ("nowhere", "q", "q"), ("t", "id", None), ("nowhere", "id", None)},
        ),
        ("SELECT i FROM generate_series(1, 3) AS g (i)", set()),
        ("(SELECT a FROM t)", {("t", "a", "a")}),
    ],
)
def test_outputs_are_followed_to_base_columns(query: str, expected: Found, engine: Engine) -> None:
    assert sources(query, engine) == expected


def test_quoted_names_are_kept_in_postgres_and_folded_in_duckdb() -> None:
    assert sources('SELECT "C" FROM u', "postgres") == {("u", "C", "C")}
    assert sources("SELECT C FROM u", "postgres") == {("u", None, None)}
    assert sources("SELECT c FROM U", "duckdb") == {("u", "C", "c")}


def test_outputs_take_the_names_that_the_database_gives_them() -> None:
    analysis = analyse("SELECT a + b, y FROM t", "postgres", TABLES.get)
    found = {(s.column, s.output) for s in analysis.sources_of(["?column?", "y"])}
    assert found == {("a", "?column?"), ("b", "?column?"), ("y", "y")}
    assert {s.output for s in analysis.sources_of(["y"])} == {"y", None}  # never guessed


def test_a_wide_table_is_analysed_in_a_moment() -> None:
    begun = time.perf_counter()
    assert len(sources("SELECT * FROM wide", "postgres")) == 784
    assert time.perf_counter() - begun < 5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM t;",
        "SELECT a FROM t ; -- done",
        "-- one\nSELECT a FROM t",
        "/* x */ SELECT a FROM t;;",
    ],
)
def test_a_trailing_semicolon_and_comments_are_no_part_of_the_select(
    query: str, engine: Engine
) -> None:
    assert analyse(query, engine, TABLES.get).select == "SELECT a FROM t"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "query", ["", " ", "-- nothing", "SELECT 1; SELECT 2", "SELECT 1; DROP TABLE t", ";"]
)
def test_anything_but_one_statement_is_refused(query: str, engine: Engine) -> None:
    with pytest.raises(NotOneStatement):
        analyse(query, engine, TABLES.get)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "CREATE TABLE z AS SELECT 1",
        "DROP TABLE t",
        "TRUNCATE t",
        "COPY t TO STDOUT",
        "SET a = 1",
        "VACUUM",
        "PREPARE a AS SELECT 1",
        "VALUES (1)",
        "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
        "SELECT * INTO z FROM t",
        "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM (SELECT * FROM t FOR SHARE) AS q",
        "SELECT * FROM mmdb.dataset",
        "SELECT * FROM zoo.mmdb.dataset",
        "SELECT mmdb.train('r')",
        "SELECT a FROM t WHERE MMDB.train('r') IS NULL",
        "SELECT * FROM mmdb.predict_query('m', 'SELECT 1')",
        'SELECT * FROM "mmdb".hop',
    ],
)
def test_what_writes_locks_or_reads_mmdb_is_refused(query: str, engine: Engine) -> None:
    with pytest.raises(NotASelect):
        analyse(query, engine, TABLES.get)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_syntax_error_says_where(engine: Engine) -> None:
    with pytest.raises(QueryError, match=r"line 2, column 7"):
        analyse("SELECT\n  a b c FROM t", engine, TABLES.get)
    with pytest.raises(QueryError, match="not valid SQL"):
        analyse("SELECT 'a", engine, TABLES.get)
