"""What a dataset's query may be, and what it reads."""

import pytest

from mmdb.data.query import Analysis, Engine, analyse
from mmdb.db.connection import Relation, TableName
from mmdb.errors import NotASelect, NotOneStatement, QueryError

TABLES: dict[tuple[str, str], list[str]] = {
    ("main", "t"): ["id", "a", "b", "y"],
    ("main", "u"): ["id", "C", "w"],
    ("shop", "t"): ["id", "a"],
    ("main", "wide"): [f"c{i}" for i in range(784)],
}
ENGINES: list[Engine] = ["postgres", "duckdb"]

#: Table with schema, column, output.
Found = set[tuple[str, str | None, str | None]]


class Tables:
    """A catalog of TABLES and of views; the search_path is schema main alone."""

    def __init__(self, **views: tuple[list[str], str]) -> None:
        self.views = views

    def relation(self, name: TableName, beside: Relation | None = None) -> Relation | None:
        schema = name.schema or "main"
        if schema == "main" and name.name in self.views:
            columns, definition = self.views[name.name]
            return relation(schema, name.name, columns, definition)
        columns = TABLES.get((schema, name.name), [])
        return relation(schema, name.name, columns) if columns else None


def relation(schema: str, name: str, columns: list[str], definition: str | None = None) -> Relation:
    return Relation(
        schema=schema,
        name=name,
        kind="table" if definition is None else "view",
        columns=tuple((column, "text") for column in columns),
        definition=definition,
    )


def shown(analysis: Analysis, columns: list[str] | None = None) -> Found:
    """Return the sources as table, column and output; `?` for a table that is not known."""
    found = analysis.sources if columns is None else analysis.sources_of(columns)
    return {
        (".".join(part for part in (s.schema, s.table or "?") if part), s.column, s.output)
        for s in found
    }


def sources(query: str, engine: Engine, columns: list[str] | None = None) -> Found:
    return shown(analyse(query, engine, Tables()), columns)


_SLICES = {"k": {"y", "b"}, "m": {"y", "a"}}
BOTH = [
    ("SELECT a, y FROM t", {("main.t", "a", "a"), ("main.t", "y", "y")}),
    (
        "SELECT a + b AS s FROM t WHERE id > 3",
        {("main.t", "a", "s"), ("main.t", "b", "s"), ("main.t", "id", None)},
    ),
    ("SELECT * FROM shop.t", {("shop.t", "id", "id"), ("shop.t", "a", "a")}),
    ("SELECT shop.t.a FROM shop.t", {("shop.t", "a", "a")}),
    (
        "WITH x AS (SELECT id, a * 2 AS k FROM t) SELECT x.k, u.w FROM x JOIN u ON u.id = x.id",
        {
            *(("main.t", "a", "k"), ("main.u", "w", "w")),
            *(("main.t", "id", None), ("main.u", "id", None)),
        },
    ),
    (
        "SELECT k FROM (SELECT a AS k FROM t UNION ALL SELECT w FROM u) AS q",
        {("main.t", "a", "k"), ("main.u", "w", "k")},
    ),
    (
        "SELECT a, (SELECT max(w) FROM u WHERE u.id = t.id) AS m FROM t",
        {
            *(("main.t", "a", "a"), ("main.u", "w", "m")),
            *(("main.t", "id", None), ("main.u", "id", None)),
        },
    ),
    ("SELECT x.e FROM t, LATERAL (SELECT t.a + 1 AS e) AS x", {("main.t", "a", "e")}),
    ("SELECT q.p FROM (SELECT a, b FROM t) AS q (p, r)", {("main.t", "a", "p")}),
    (
        "SELECT q.p FROM (SELECT DISTINCT a, b FROM t) AS q (p, r)",
        {("main.t", "a", "p"), ("main.t", "b", None)},
    ),
    (
        "WITH RECURSIVE r (n) AS (SELECT a FROM t UNION ALL SELECT n + 1 FROM r WHERE n < 5)"
        " SELECT n FROM r",
        {("main.t", "a", "n")},
    ),
    (  # each round moves a value one column on
        "WITH RECURSIVE r (p, q, s) AS (SELECT a, b, y FROM t UNION ALL SELECT q, s, 0 FROM r)"
        " SELECT p FROM r",
        {("main.t", "a", "p"), ("main.t", "b", "p"), ("main.t", "y", "p")},
    ),
    ("SELECT count(*) AS n FROM t", {("main.t", None, None)}),
    (  # of one name, but the table
        "WITH t AS (SELECT a FROM shop.t) SELECT t.a, u.w FROM t CROSS JOIN main.u AS u",
        {("shop.t", "a", "a"), ("main.u", "w", "w")},
    ),
    ("WITH t AS (SELECT a FROM t) SELECT a FROM t", {("main.t", "a", "a")}),
    ("SELECT n.q FROM nowhere AS n", {("nowhere", "q", "q")}),
    (
        "SELECT q FROM t JOIN nowhere AS n ON n.k = t.id WHERE a = 1",
        {
            *(("nowhere", "q", "q"), ("nowhere", "k", None)),
            *(("main.t", "id", None), ("main.t", "a", None)),
        },
    ),
    (
        "SELECT q FROM nowhere, elsewhere",
        {
            ("?", None, "q"),
            ("nowhere", None, None),
            ("elsewhere", None, None),
        },
    ),
    ("SELECT i FROM generate_series(1, 3) AS g (i)", set()),
    ("(SELECT a FROM t)", {("main.t", "a", "a")}),
    ("SELECT b FROM shop.t AS s, t", {("main.t", "b", "b"), ("shop.t", None, None)}),
    (  # a comma binds weaker than JOIN: USING does not mean the first table's id
        "SELECT b, w FROM t, shop.t AS s JOIN u AS v USING (id)",
        {
            *(("main.t", "b", "b"), ("main.u", "w", "w")),
            *(("shop.t", "id", None), ("main.u", "id", None)),
        },
    ),
    (
        "SELECT sum(a) OVER (w ORDER BY b) AS s FROM t WINDOW w AS (PARTITION BY y)",
        {("main.t", "a", "s"), ("main.t", "b", "s"), ("main.t", "y", "s")},
    ),
    (
        "SELECT a FROM t ORDER BY (SELECT max(w) FROM u) LIMIT 3",
        {("main.t", "a", "a"), ("main.u", "w", None)},
    ),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("query", "expected"), BOTH)
def test_outputs_are_followed_to_base_columns(query: str, expected: Found, engine: Engine) -> None:
    assert sources(query, engine) == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        ("json_array_length(a -> 'x')", {"a"}),
        ("coalesce(a -> 'x', b -> 'y')", {"a", "b"}),
        ("concat(a -> 'x', b)", {"a", "b"}),
        ("concat(b, (a) -> 'x' ->> y)", {"a", "b", "y"}),
        ('coalesce("a" -> 0, main.t.b)', {"a", "b"}),
        ("json_typeof(a -> b -> 'y')", {"a", "b"}),
        ("(SELECT count(a -> b) FROM u)", {"a", "b"}),
    ],
)
def test_an_arrow_behind_a_column_is_no_lambda(
    expression: str, columns: set[str], engine: Engine
) -> None:
    found = sources(f"SELECT {expression} AS k FROM t", engine)
    assert {column for _, column, out in found if out} == columns
    found = sources(f"SELECT id FROM t WHERE {expression} IS NULL", engine)
    assert {column for _, column, _ in found if column} == {*columns, "id"}


def test_quoted_names_are_kept_in_postgres_and_folded_in_duckdb() -> None:
    assert sources('SELECT "C" FROM u', "postgres") == {("main.u", "C", "C")}
    assert sources("SELECT C FROM u", "postgres") == {("?", None, "c"), ("main.u", None, None)}
    assert sources("SELECT c FROM U", "duckdb") == {("main.u", "C", "c")}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a + 1 AS k, k * b AS m FROM t", {"k": {"a"}, "m": {"a", "b"}}),
        ("SELECT y AS a, a AS m FROM t", {"a": {"y"}, "m": {"a"}}),  # a column goes before
        ("FROM t SELECT a", {"a": {"a"}}),
        ("SELECT t.a.x.y AS k, a.x AS m FROM t", {"k": {"a"}, "m": {"a"}}),
        ("SELECT list_transform(a, x -> x + b) AS k FROM t", {"k": {"a", "b"}}),
        ("SELECT list_transform(a, lambda y: y + b) AS k FROM t", {"k": {"a", "b"}}),
        ("SELECT list_filter(a -> 'x', lambda y: y -> 'z' > b) AS k FROM t", {"k": {"a", "b"}}),
        # a column hides a lambda's name that is a field's whole value
        (
            "SELECT list_transform(a, lambda b: struct_pack(u := (b)).u) AS k FROM t",
            {"k": {"a", "b"}},
        ),
        ("SELECT list_transform(a, lambda b: {'u': b + 1}.u) AS k FROM t", {"k": {"a"}}),
        ("SELECT list_transform(a, lambda w: {'u': w}.u) AS k FROM t", {"k": {"a"}}),
        ("SELECT list_transform(a, lambda x: y -> 'z') AS k FROM t", {"k": {"a", "y"}}),
        ("SELECT list_reduce(a, lambda x, y: x + y, b -> 'z') AS k FROM t", {"k": {"a", "b"}}),
        ("SELECT a.list_transform(y -> y + b) AS k FROM t", {"k": {"a", "b"}}),
        ("SELECT a.concat(y -> b) AS k FROM t", {"k": {"a", "b", "y"}}),
        ("SELECT [y + b FOR y IN a] AS k FROM t", {"k": {"a", "b"}}),
        ("SELECT {'a': b} AS k, a.list_sum() AS m FROM t", {"k": {"b"}, "m": {"a"}}),
        ("SELECT (a + b).abs() AS k FROM t", {"k": {"a", "b"}}),
        (
            "SELECT * EXCLUDE (id, b) REPLACE (b AS a) RENAME (y AS z) FROM t",
            {"a": {"b"}, "z": {"y"}},
        ),
        ("SELECT a FROM t UNION BY NAME SELECT b, y AS a FROM t", {"a": {"a", "y"}, "b": {"b"}}),
        ("SELECT #2 AS k FROM t", {"k": {"a"}}),
        ("SELECT q.x FROM t, (SELECT t.a AS x) AS q", {"x": {"a"}}),
        (  # a name means the query itself in its second branch alone
            "WITH RECURSIVE t (k) AS (SELECT b FROM t UNION ALL SELECT k FROM t) SELECT k FROM t",
            {"k": {"b"}},
        ),
        ("WITH RECURSIVE t AS (SELECT a AS k FROM t) SELECT k FROM t", {"k": {"a"}}),
        (
            "WITH RECURSIVE z AS (SELECT w AS k FROM u), u AS (SELECT 1 AS w) SELECT k FROM z",
            {"k": {"w"}},
        ),
        ("SELECT y FROM t SEMI JOIN u USING (id)", {"y": {"y"}}),
        ("SELECT q.a_1 AS k FROM (SELECT t.a, s.id AS a FROM t, shop.t AS s) AS q", {"k": {"id"}}),
        ("SELECT MAP {a: b} AS k FROM t", {"k": {"a", "b"}}),
        ("SELECT MAP {a + b: y}[1] AS k FROM t", {"k": {"a", "b", "y"}}),
        ("SELECT y[:b] AS k, list[a:] AS m FROM (SELECT *, y AS list FROM t) AS q", _SLICES),
        ("SELECT q.k, q.m FROM (SELECT b AS m, unnest(a) FROM t) AS q", {"k": {"a"}, "m": {"b"}}),
        ("SELECT k: a FROM t", {"k": {"a"}}),
    ],
)
def test_what_duckdb_alone_can_say(query: str, expected: dict[str, set[str]]) -> None:
    found = {(c, out) for _, c, out in sources(query, "duckdb") if out is not None}
    assert found == {(column, out) for out, columns in expected.items() for column in columns}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT e AS k FROM t, jsonb_array_elements(t.a) AS e", {"k": {"a"}}),
        ("SELECT j.value AS k FROM t, jsonb_each(t.a) AS j", {"k": {"a"}}),
        ("SELECT j.x AS k FROM t, jsonb_to_record(t.a) AS j (x integer, z text)", {"k": {"a"}}),
        ("SELECT u.x AS k, n AS m FROM t, unnest(t.a) WITH ORDINALITY AS u (x, n)", {"k": {"a"}}),
        ("SELECT x AS k FROM t, LATERAL unnest(t.a) WITH ORDINALITY AS u (x)", {"k": {"a"}}),
        ("SELECT i AS k FROM t, generate_series(1, t.y) WITH ORDINALITY AS g (i)", {"k": {"y"}}),
        (
            "SELECT p AS k, q AS m FROM t, ROWS FROM (unnest(t.a), unnest(t.b)) AS f (p, q)",
            {"k": {"a"}, "m": {"b"}},
        ),
        ("SELECT q.max AS k FROM (SELECT max(a), min(b) FROM t) AS q", {"k": {"a"}}),
        ("SELECT (t.a).x AS k, (b).y AS m FROM t", {"k": {"a"}, "m": {"b"}}),
        ("SELECT extract(year FROM a) AS k FROM (SELECT a, y AS year FROM t) AS q", {"k": {"a"}}),
        ("SELECT k FROM (t JOIN shop.t AS s USING (id)) AS j (i, k)", {"k": {"a"}}),
        ("SELECT date_bin('1 day', a, b) AS k FROM t", {"k": {"a", "b"}}),
        ("SELECT xmlelement(name a, b) AS k, y AS name FROM t", {"k": {"b"}, "name": {"y"}}),
        (
            "SELECT p AS k, q AS m FROM t, ROWS FROM (jsonb_to_record(a) AS (x int), unnest(b))"
            " AS f (p, q)",
            {"k": {"a"}, "m": {"b"}},
        ),
        ("SELECT @ a + b AS k FROM t WHERE @ y > 3", {"k": {"a", "b"}}),
        ("SELECT y[:b] AS k, list[a:] AS m FROM (SELECT *, y AS list FROM t) AS q", _SLICES),
        ("SELECT j.id AS k, b AS m FROM t JOIN u USING (id) AS j", {"k": {"id"}, "m": {"b"}}),
        ("SELECT j.* FROM t JOIN u USING (id) AS j", {"id": {"id"}}),
        (
            "SELECT p AS k, q AS m FROM t, LATERAL ROWS FROM (unnest(a), unnest(b)) AS f (p, q)",
            {"k": {"a"}, "m": {"b"}},
        ),
        (
            "SELECT p AS k FROM t LEFT JOIN LATERAL ROWS FROM (unnest(a)) AS f (p) ON y",
            {"k": {"a"}},
        ),
        ("SELECT e AS k FROM t, jsonb_array_elements(a -> 'x') AS e", {"k": {"a"}}),
        ("SELECT list_transform(a, b -> b) AS k FROM t", {"k": {"a", "b"}}),
    ],
)
def test_what_postgres_alone_can_say(query: str, expected: dict[str, set[str]]) -> None:
    found = {(c, out) for _, c, out in sources(query, "postgres") if out is not None}
    assert found == {(column, out) for out, columns in expected.items() for column in columns}


@pytest.mark.parametrize(
    ("query", "engine"),
    [
        ("SELECT t AS k FROM t", "postgres"),  # a whole row
        ("SELECT row_to_json(t.*) AS k FROM t", "postgres"),
        ("SELECT t.name AS k FROM t", "postgres"),  # a function of the row
        ("SELECT j.x AS k FROM t, own.spread(t.a) AS j (x)", "postgres"),
        ("SELECT k FROM read_csv('t.csv')", "duckdb"),
        ("SELECT k FROM (PIVOT t ON a IN (1, 2) USING sum(b))", "duckdb"),
        ("SELECT COLUMNS('a|b') AS k FROM t", "duckdb"),
        ("SELECT t AS k FROM t", "duckdb"),
        ("SELECT q.k FROM nowhere, elsewhere, LATERAL (SELECT k) AS q", "postgres"),
        ("SELECT (SELECT max(w + id.id) FROM u) AS k FROM t AS id", "duckdb"),
    ],
)
def test_what_cannot_be_told_is_marked(query: str, engine: Engine) -> None:
    found = {s.resolution for s in analyse(query, engine, Tables()).sources_of(["k"]) if s.output}
    assert found & {"unresolved", "table"}


@pytest.mark.parametrize(
    ("query", "engine"),
    [
        ("SELECT a FROM t WHERE t IS NOT NULL", "postgres"),
        ("SELECT a FROM t ORDER BY row_to_json(t.*)::text", "postgres"),
        ("SELECT a FROM t WHERE t IS NOT NULL", "duckdb"),
        ("SELECT a FROM t, (PIVOT u ON w IN (1, 2) USING sum(c)) AS p", "duckdb"),
    ],
)
def test_rows_that_are_chosen_by_what_cannot_be_told_are_marked(query: str, engine: Engine) -> None:
    found = {(s.column, s.output, s.resolution) for s in analyse(query, engine, Tables()).sources}
    assert {("a", "a", "column"), (None, None, "unresolved")} <= found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_name_that_no_rule_has_read_marks_all_outputs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a clause were not known here: the account is of the text, not of the rules."""
    monkeypatch.setattr("mmdb.data.query.select.Selects._decide", lambda *_: None)
    assert ("?", None, "a") in sources("SELECT a FROM t WHERE b > 3", engine)
    assert ("?", None, "q") in sources("SELECT q FROM nowhere WHERE b > 3", engine)
    assert ("?", None, "a") not in sources("SELECT a FROM t WHERE 1 > 3", engine)


ODD_NAMES = (
    *("from", "select", "where", "join", "group", "order", "with", "union", "limit", "lateral"),
    *("table", "as", "in", "values", "unnest", "time", "zone", "first", "last", "row", "name"),
    *("*", "1", "ab", "group by", "("),
)
NEAR_KEYWORDS = """
    WITH "{0}" AS (SELECT a, "{0}" FROM odd WHERE a IN (1, 2))
    SELECT q."{0}", E'ab' AS e, sum(a) OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
        AS s FROM "{0}" AS q JOIN (SELECT a AS b FROM odd GROUP BY a) AS z ON z.b = q.a * 1
    WHERE now() AT TIME ZONE 'UTC' > now() ORDER BY q.a NULLS LAST FETCH FIRST 5 ROWS ONLY
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_keyword_is_not_taken_for_a_column_of_its_name(
    name: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(column: str) -> set[tuple[str | None, str | None, str]]:
        monkeypatch.setitem(TABLES, ("main", "odd"), ["a", column])
        sources = analyse(NEAR_KEYWORDS.format(column), engine, Tables()).sources
        return {(s.column, s.output, s.resolution) for s in sources}

    plain = found("plain")
    odd = {(name if c == "plain" else c, name if o == "plain" else o, r) for c, o, r in plain}
    assert found(name) == odd and ("plain", "plain", "column") in plain


FRAMES = (
    *("ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", "ROWS UNBOUNDED PRECEDING"),
    *("RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE TIES", "ROWS 2 PRECEDING"),
    *("GROUPS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP",),
    *("ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE NO OTHERS",),
    *("RANGE BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW",),
)
FRAME_NAMES = "rows range groups ties others current row unbounded preceding following exclude no"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_names_no_column(
    frame: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLES, ("main", "odd"), ["a", "b", *FRAME_NAMES.split()])
    text = f'SELECT a, "rows", o.ties, sum(b) OVER (ORDER BY a {frame}) AS s FROM odd AS o'
    found = analyse(text, engine, Tables()).sources
    assert {s.resolution for s in found} == {"column"} and len(found) == 5
    assert {(s.column, s.output) for s in found if s.output != "s"} == {
        *(("a", "a"), ("rows", "rows"), ("ties", "ties"))
    }


def test_name_in_union_by_name_is_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, ("main", "odd"), ["name"])
    found = sources("SELECT name FROM odd UNION ALL BY NAME SELECT name FROM odd", "duckdb")
    assert found == {("main.odd", "name", "name")}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("written", ['"from"', '"row"', "o.from", "row", "o . row"])
def test_a_column_named_like_a_keyword_is_missed_if_no_rule_has_read_it(
    written: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLES, ("main", "odd"), ["a", "from", "row"])
    monkeypatch.setattr("mmdb.data.query.select.Selects._decide", lambda *_: None)
    assert ("?", None, "a") in sources(f"SELECT a FROM odd AS o WHERE {written} > 3", engine)


def test_outputs_take_the_names_that_the_database_gives_them() -> None:
    analysis = analyse("SELECT a + b, y FROM t", "postgres", Tables())
    found = {(s.column, s.output) for s in analysis.sources_of(["?column?", "y"])}
    assert found == {("a", "?column?"), ("b", "?column?"), ("y", "y")}


def test_outputs_that_are_not_as_many_as_the_databases_are_marked() -> None:
    found = analyse("SELECT a + b, y FROM t", "postgres", Tables()).sources_of(["y"])
    assert {(s.table, s.column, s.output) for s in found} == {("", None, "y"), ("t", None, None)}


def test_a_star_over_an_unknown_table_marks_its_own_outputs_alone() -> None:
    analysis = analyse("SELECT a, n.*, y FROM t, nowhere AS n", "postgres", Tables())
    assert analysis.outputs == ()
    found = shown(analysis, ["a", "p", "q", "y"])
    assert found == {
        *(("main.t", "a", "a"), ("main.t", "y", "y")),
        *(("nowhere", None, "p"), ("nowhere", None, "q")),
    }


# -- views --------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_views_are_followed_and_named(engine: Engine) -> None:
    views = Tables(
        low=(["k", "m"], "SELECT a, b FROM t WHERE y > 0"),
        high=(["p", "q"], "SELECT k + 1 AS p, m FROM low"),
    )
    found = analyse("SELECT p, t.a AS d FROM high, t", engine, views).sources
    assert {(s.column, s.output, s.via) for s in found} == {
        *(("a", "p", ("main.high", "main.low")), ("a", "d", ())),
        ("y", None, ("main.high", "main.low")),
    }


@pytest.mark.parametrize(
    "definition",
    [
        "SELECT a FROM t",  # fewer columns than the view has
        "SELECT FROM WHERE",
        "SELECT k, m FROM v",
        "SELECT k, m FROM w",
    ],
)
def test_a_view_that_cannot_be_followed_is_told_by_its_name(definition: str) -> None:
    views = Tables(v=(["k", "m"], definition), w=(["k", "m"], "SELECT k, m FROM v"))
    (found,) = analyse("SELECT k AS out FROM v", "postgres", views).sources
    assert (found.table, found.column, found.output) == ("v", None, "out")
    assert found.resolution == "table"


def test_views_read_many_times_are_bound_once() -> None:
    chain = {
        f"v{n}": (["a"], f"SELECT x.a FROM v{n - 1} AS x JOIN v{n - 1} AS y ON x.a = y.a")
        for n in range(1, 25)
    }
    views = Tables(v0=(["a"], "SELECT a FROM t"), **chain)
    (found,) = analyse("SELECT a FROM v24", "postgres", views).sources
    assert (found.table, found.column, len(found.via)) == ("t", "a", 25)


def test_more_ways_through_views_than_can_be_told_are_marked() -> None:
    pairs = {
        f"{name}{n}": (["a"], f"SELECT x.a + y.a AS a FROM l{n - 1} AS x, r{n - 1} AS y")
        for n in range(1, 25)
        for name in "lr"
    }
    first = (["a"], "SELECT a FROM t")
    found = analyse("SELECT a FROM l24", "postgres", Tables(l0=first, r0=first, **pairs)).sources
    assert "unresolved" in {source.resolution for source in found}


def test_a_query_of_a_thousand_branches_is_followed() -> None:
    query = " UNION ALL ".join(["SELECT a FROM t"] * 1000)
    assert sources(query, "postgres") == {("main.t", "a", "a")}
    terms = " + ".join(["a", "b"] * 500)
    assert sources(f"SELECT {terms} AS k FROM t", "postgres") == {
        *(("main.t", "a", "k"), ("main.t", "b", "k")),
    }


def test_a_star_over_a_wide_table_is_all_its_columns() -> None:
    assert len(sources("SELECT * FROM wide", "postgres")) == 784


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
    assert analyse(query, engine, Tables()).select == "SELECT a FROM t"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("query", ["SELECT a FROM t WHERE b = ';'", 'SELECT a AS ";" FROM t'])
def test_a_text_that_is_a_semicolon_stays(query: str, engine: Engine) -> None:
    assert analyse(query + ";", engine, Tables()).select == query


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "query", ["", " ", "-- nothing", "SELECT 1; SELECT 2", "SELECT 1; DROP TABLE t", ";"]
)
def test_anything_but_one_statement_is_refused(query: str, engine: Engine) -> None:
    with pytest.raises(NotOneStatement):
        analyse(query, engine, Tables())


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
        analyse(query, engine, Tables())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_syntax_error_says_where(engine: Engine) -> None:
    with pytest.raises(QueryError, match=r"line 2, column 7"):
        analyse("SELECT\n  a b c FROM t", engine, Tables())
    with pytest.raises(QueryError, match="not valid SQL"):
        analyse("SELECT 'a", engine, Tables())
    for query, said in {
        "SELEC * FROM t": "near 'FROM': something is missing.",
        "SELECT * FROM": "near 'FROM': Expected table name.",
    }.items():
        with pytest.raises(QueryError, match=said):
            analyse(query, engine, Tables())
