"""Which columns of which tables a dataset is made from, as the databases themselves name them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import mmdb
from mmdb.data.registration import create_dataset
from mmdb.db.postgres import PostgresConnection
from tests.cluster import Cluster
from tests.lineage_cases import CASES, Case, Score, catalog, score

# -- twelve tables, three views ---------------------------------------------------

TABLES = """
CREATE SCHEMA bank;
CREATE SCHEMA web;
CREATE TABLE bank.customer (id integer, born integer, income double precision, region_id integer);
CREATE TABLE bank.region (id integer, name text, risk double precision);
CREATE TABLE bank.account (id integer, customer_id integer, kind text);
CREATE TABLE bank.transfer (id integer, account_id integer, amount double precision);
CREATE TABLE bank.card (id integer, account_id integer, card_limit integer, blocked boolean);
CREATE TABLE bank.loan (id integer, customer_id integer, rate double precision, product_id integer);
CREATE TABLE bank.product (id integer, margin double precision);
CREATE TABLE bank.instalment (loan_id integer, due integer, paid integer, amount double precision);
CREATE TABLE web.visit (customer_id integer, page_id integer, seconds integer);
CREATE TABLE web.page (id integer, topic text);
CREATE TABLE web.ticket (id integer, customer_id integer, severity integer);
CREATE TABLE web.rating (customer_id integer, stars integer, given_at timestamp);
INSERT INTO bank.customer VALUES (1, 1980, 10, 1), (2, 1990, 20, 1), (3, 2005, 30, 1);
INSERT INTO bank.region VALUES (1, 'north', 2);
INSERT INTO bank.account VALUES (1, 1, 'giro'), (2, 2, 'giro'), (3, 2, 'closed');
INSERT INTO bank.transfer VALUES (1, 1, 5), (2, 2, 7), (3, 3, 9);
INSERT INTO bank.card VALUES (1, 1, 100, false), (2, 2, 50, false);
INSERT INTO bank.loan VALUES (1, 1, 0.1, 1), (2, 2, 0.2, 1);
INSERT INTO bank.product VALUES (1, 3);
INSERT INTO bank.instalment VALUES (1, 1, 2, 150), (2, 2, 3, 10);
INSERT INTO web.visit VALUES (1, 1, 30), (2, 1, 40);
INSERT INTO web.page VALUES (1, 'news');
INSERT INTO web.ticket VALUES (1, 1, 3), (2, 2, 1);
INSERT INTO web.rating VALUES (1, 4, NULL);
CREATE VIEW bank.open_account (account_id, owner_id) AS
SELECT id, customer_id FROM bank.account WHERE kind <> 'closed';
CREATE VIEW bank.turnover AS
SELECT o.owner_id AS customer_id, sum(t.amount) AS total, max(t.amount) AS largest
FROM bank.open_account AS o INNER JOIN bank.transfer AS t ON t.account_id = o.account_id
GROUP BY o.owner_id;
CREATE VIEW web.interest AS
SELECT v.customer_id, p.topic, sum(v.seconds) AS seconds
FROM web.visit AS v INNER JOIN web.page AS p ON p.id = v.page_id
GROUP BY v.customer_id, p.topic
"""
#: Names that the search_path must not find first.
DECOYS = ("customer", "loan", "visit", "turnover")

QUERY = """
WITH late AS (
    SELECT l.customer_id, l.id AS loan_id, sum(i.amount) FILTER (WHERE i.paid > i.due) AS late_sum
    FROM loan AS l LEFT JOIN instalment AS i ON i.loan_id = l.id
    GROUP BY l.customer_id, l.id
),
worst AS (
    SELECT DISTINCT ON (customer_id) customer_id, late_sum
    FROM late ORDER BY customer_id, late_sum DESC
),
contact AS (
    SELECT customer_id, severity AS weight FROM ticket
    UNION ALL
    SELECT customer_id, 5 - stars FROM rating
)
SELECT
    c.income / nullif(r.risk, 0) AS means,
    t.total,
    t.largest AS top,
    coalesce(w.late_sum, 0) AS late,
    (
        SELECT max(p.margin * l.rate) FROM loan AS l INNER JOIN product AS p ON p.id = l.product_id
        WHERE l.customer_id = c.id
    ) AS price,
    rank() OVER (PARTITION BY c.region_id ORDER BY k.card_limit DESC) AS place,
    x.mood,
    n.seconds * 1.0 AS news,
    CASE WHEN w.late_sum > 100 THEN 1 ELSE 0 END AS y
FROM customer AS c
INNER JOIN region AS r ON r.id = c.region_id
INNER JOIN turnover AS t ON t.customer_id = c.id
LEFT JOIN worst AS w ON w.customer_id = c.id
LEFT JOIN LATERAL (
    SELECT avg(q.weight) AS mood FROM contact AS q WHERE q.customer_id = c.id
) AS x ON true
LEFT JOIN (
    SELECT a.customer_id, max(card_limit) AS card_limit
    FROM card INNER JOIN account AS a ON a.id = card.account_id
    WHERE NOT blocked GROUP BY a.customer_id
) AS k ON k.customer_id = c.id
LEFT JOIN interest AS n ON n.customer_id = c.id AND n.topic = 'news'
WHERE c.born < 2000
"""

LATE = ("bank.instalment.amount", "bank.instalment.paid", "bank.instalment.due")
OPEN = " via bank.turnover > bank.open_account"
ANSWER = {
    "means": {"bank.customer.income", "bank.region.risk"},
    "total": {"bank.transfer.amount via bank.turnover"},
    "top": {"bank.transfer.amount via bank.turnover"},
    "late": {*LATE},
    "price": {"bank.product.margin", "bank.loan.rate"},
    "place": {"bank.customer.region_id", "bank.card.card_limit"},
    "mood": {"web.ticket.severity", "web.rating.stars"},
    "news": {"web.visit.seconds via web.interest"},
    "y": {*LATE},
    None: {
        *("bank.customer.id", "bank.customer.born", "bank.region.id"),
        *(f"bank.account.{column}{OPEN}" for column in ("id", "customer_id", "kind")),
        *("bank.account.id", "bank.account.customer_id"),
        *("bank.transfer.account_id via bank.turnover", "bank.card.account_id"),
        *("bank.card.blocked", "bank.loan.id", "bank.loan.customer_id", "bank.loan.product_id"),
        *("bank.product.id", "bank.instalment.loan_id"),
        *("web.ticket.customer_id", "web.rating.customer_id"),
        *(f"web.visit.{column} via web.interest" for column in ("customer_id", "page_id")),
        *(f"web.page.{column} via web.interest" for column in ("id", "topic")),
    },
}


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        for statement in TABLES.split(";\n"):
            database.sql(statement)
        for name in DECOYS:
            database.sql(f"CREATE TABLE {name} (id integer, customer_id integer, rate integer)")
        yield database


def test_every_column_of_a_query_over_twelve_tables(db: mmdb.Database) -> None:
    path = "bank, web" if db.connection.engine == "postgres" else "'bank,web'"
    db.sql(f"SET search_path = {path}")
    summary = create_dataset(db.connection, "loans", QUERY, partitions=1, validation=0)
    assert summary.rows == 2
    rows = db.sql("SELECT * FROM mmdb.dataset_lineage WHERE dataset = 'loans'")
    found: dict[str | None, set[str]] = {}
    for row in rows:
        assert row["resolution"] == "column"
        via = f" via {row['via']}" if row["via"] else ""
        source = f"{row['schema_name']}.{row['table_name']}.{row['column_name']}{via}"
        found.setdefault(row["output_name"], set()).add(source)
    assert found == ANSWER
    assert {(row["schema_name"], row["table_name"]) for row in rows} == {
        *(("bank", name) for name in ("customer", "region", "account", "transfer")),
        *(("bank", name) for name in ("card", "loan", "product", "instalment")),
        *(("web", name) for name in ("visit", "page", "ticket", "rating")),
    }


def test_a_source_that_cannot_be_told_is_marked(db: mmdb.Database) -> None:
    """A function of the user's may read anything; what is known beside it stays known."""
    body = "SELECT id AS a FROM bank.loan"
    if db.connection.engine == "duckdb":
        db.sql(f"CREATE MACRO bank.numbers() AS TABLE {body}")
    else:
        db.sql(f"CREATE FUNCTION bank.numbers() RETURNS TABLE (a integer) LANGUAGE sql AS '{body}'")
    query = """
        SELECT n.a, p.margin * 2 AS x, l.id AS y
        FROM bank.numbers() AS n, bank.product AS p, bank.loan AS l
    """
    create_dataset(db.connection, "marked", query, partitions=1, validation=0)
    rows = db.sql(
        "SELECT output_name, schema_name, table_name, column_name, resolution "
        "FROM mmdb.dataset_source ORDER BY output_name"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("a", None, "", None, "unresolved"),
        ("x", "bank", "product", "margin", "column"),
        ("y", "bank", "loan", "id", "column"),
    ]


JSON_QUERIES = [
    "SELECT id AS y, {n}_array_length(meta->'arr') AS x FROM bank.note",
    "SELECT id AS y, {n}_array_length(coalesce(meta->'a', meta->'arr')) AS x FROM bank.note",
    "SELECT id AS y, concat(meta->'age', 'x') AS x FROM bank.note",
    "SELECT id AS x, id AS y FROM bank.note WHERE {n}_{t}(meta->'o') = '{o}'",
    "SELECT id AS y, e.x FROM bank.note, {each} AS e (x)",
]


@pytest.mark.parametrize("query", JSON_QUERIES)
def test_a_column_before_an_arrow_is_in_column_impact(db: mmdb.Database, query: str) -> None:
    words = {"n": "jsonb", "t": "typeof", "o": "object"}
    words["each"] = "jsonb_array_elements_text(meta->'arr')"
    if db.connection.engine == "duckdb":
        words = {"n": "json", "t": "type", "o": "OBJECT"}
        words["each"] = "unnest(from_json(meta->'arr', '[\"TEXT\"]'))"
    kind = "jsonb" if db.connection.engine == "postgres" else "json"
    db.sql(f"CREATE TABLE bank.note (id integer, meta {kind})")
    rows = ('{"arr": ["1", "2"], "age": 3, "o": {}}', '{"arr": ["1"], "age": 4, "o": {}}')
    for first, row in enumerate(rows):
        numbers = f"generate_series({first}, 8, 2) AS g (i)"
        db.sql(f"INSERT INTO bank.note SELECT i, '{row}' FROM {numbers}")
    create_dataset(db.connection, "notes", query.format(**words), partitions=1, validation=0)
    asked = "WHERE column_name = 'meta' AND resolution = 'column'"
    assert db.sql(f"SELECT * FROM mmdb.dataset_source {asked}")
    assert db.sql(f"SELECT * FROM mmdb.column_impact {asked}")


# -- the golden queries, as PostgreSQL sees them --------------------------------------

_CASES = [case for case in CASES if "postgres" in case.engines]


@pytest.fixture(scope="module")
def golden(cluster: Cluster) -> Iterator[PostgresConnection]:
    """Return a session with a database that holds the tables of the golden queries."""
    url = cluster.create_database("lineage_golden")
    with psycopg.connect(url, autocommit=True) as session:
        for statement in catalog("postgres"):
            session.execute(statement)
    connection = PostgresConnection(url)
    yield connection
    connection.close()
    cluster.drop_database("lineage_golden")


def scored(golden: PostgresConnection, case: Case) -> Score:
    golden.select(f"SET search_path = {', '.join(case.search_path) or 'public'}")
    columns = case.outputs
    if not case.is_hidden:
        columns = [name for name, _ in golden.columns(case.query)]
    return score(case, "postgres", golden, columns)


def test_no_golden_source_is_wrong(golden: PostgresConnection) -> None:
    scores = [scored(golden, case) for case in _CASES]
    assert not [wrong for found in scores for wrong in found.wrong]
    right, count = sum(s.right for s in scores), sum(s.count for s in scores)
    assert count > 150
    assert right >= 0.98 * count, [s.unresolved for s in scores if s.unresolved]
