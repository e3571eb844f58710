"""`predict_into` on the nodes that hold the rows: what one PostgreSQL writes, and all of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import psycopg
import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db.postgres import PostgresConnection
from mmdb.graph.factories import linear
from tests.citus_cluster import CitusCluster
from tests.cluster import Cluster

pytestmark = pytest.mark.citus

QUERY = "SELECT id, a, n, kind, tall, at, wide FROM visit"
#: A row's last bits depend on how many rows are predicted with it.
ROUNDING = 1e-6
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A database on Citus, and one on PostgreSQL with the same rows and models."""

    citus: Database
    postgres: Database
    url: str  # of the first

    def predict(self, query: str, *, key: str | None = None, probabilities: bool = False) -> str:
        """Predict on both, compare all that is written and recorded; return the target."""
        target = f"out_{next(_numbers)}"
        for _ in range(2):  # into a table that is not there, then into one that is
            counts = {
                db.predict_into("m", query, target, key=key, probabilities=probabilities)
                for db in self
            }
            assert len(counts) == 1
        one, other = (rows_of(db, target, key or "id") for db in self)
        assert [row[:-1] for row in one] == [row[:-1] for row in other]
        assert [row[-1] for row in one] == pytest.approx([row[-1] for row in other], abs=ROUNDING)
        assert records(self.citus)[-2:] == records(self.postgres)[-2:]
        return target

    def __iter__(self) -> Iterator[Database]:
        return iter((self.citus, self.postgres))


def rows_of(db: Database, table: str, key: str = "id") -> list[tuple[Any, ...]]:
    """Return what a table of predictions holds, its numbers last and those of a call alike."""
    found = db.sql(f"SELECT * FROM {table} ORDER BY {key}, predicted_at")
    moments = {row["predicted_at"]: None for row in found}
    assert len(moments) <= 2
    return [(*(row[n] for n in (key, "prediction", "model")), row["probability"]) for row in found]


def records(db: Database) -> list[dict[str, Any]]:
    found = db.sql(
        "SELECT p.model, p.version, p.schema_name, p.table_name, p.key_name, p.query, p.row_count,"
        " p.author, s.table_name AS source, s.column_name, s.output_name, s.resolution"
        " FROM mmdb.prediction_overview AS p LEFT JOIN mmdb.prediction_source AS s"
        " ON p.prediction_id = s.prediction_id ORDER BY p.prediction_id, s.ordinal"
    )
    return [dict(row) for row in found]


def is_spread(db: Database, table: str) -> bool:
    asked = "SELECT 1 AS found FROM citus_tables WHERE table_name = %(table)s::regclass"
    return bool(db.sql(asked, {"table": table}))


@pytest.fixture(scope="module")
def pair(
    citus: CitusCluster,
    new_citus_database: Callable[[str], str],
    cluster: Cluster,
    template: str,
) -> Iterator[Pair]:
    urls = new_citus_database("predicting"), cluster.create_database("beside_nodes", template)
    with mmdb.connect(urls[0]) as spread, mmdb.connect(urls[1]) as single:
        for db in (spread, single):
            fill(db)
        spread.sql("SELECT create_distributed_table('visit', 'id')")
        spread.sql("SELECT create_reference_table('town')")
        for db in (spread, single):
            db.sql("CREATE VIEW seen AS SELECT * FROM visit WHERE a < 3 OR kind IS NULL")
        yield Pair(spread, single, urls[0])
    cluster.drop_database("beside_nodes")


def fill(db: Database, rows: int = 3000) -> None:
    """Make a table of random values, NULLs among them, and a model of it."""
    draw = random.Random(7)
    db.sql(
        "CREATE TABLE visit (id bigint, a float8, n integer, kind text, tall boolean, at timestamp,"
        " wide real[], town integer, y text)"
    )
    values = []
    for number in draw.sample(range(-(10**9), 10**12), rows):
        a = draw.choice([f"'{draw.gauss(0, 9)!r}'", "NULL", "'1e-300'", "0"])
        kind = draw.choice(["'x'", "'é\"'", "NULL", f"'k{draw.randrange(9)}'"])
        at = draw.choice(
            ["NULL", f"timestamp '2026-01-01' + {draw.randrange(10**6)} * interval '1s'"]
        )
        wide = ", ".join(repr(draw.random()) for _ in range(3))
        n, tall = draw.choice(["NULL", "3", "-7"]), draw.choice(["NULL", "true", "false"])
        last = f"ARRAY[{wide}]::real[], {number % 3}, '{draw.choice('pqr')}'"
        values.append(f"({number}, {a}, {n}, {kind}, {tall}, {at}, {last})")
    db.sql(f"INSERT INTO visit VALUES {', '.join(values)}")
    db.sql(
        "CREATE TABLE town AS SELECT i AS town, 'k' || i AS kind FROM generate_series(0, 2) g (i)"
    )
    db.create_dataset(
        "d",
        f"{QUERY}, y".replace(" FROM visit, y", ", y FROM visit"),
        options={"roles": {"id": "key"}},
        partitions=2,
    )
    (dataset,) = db.sql("SELECT input_shape FROM mmdb.dataset WHERE name = 'd'")
    torch.manual_seed(0)
    module = linear(tuple(dataset["input_shape"]), 3)
    for weights in module.parameters():
        weights.data *= 0.1  # a chance of 1e-98 is no real
    db.save("m", module, architecture="linear", dataset="d")


# -- the same rows -------------------------------------------------------------

#: Queries that the nodes answer by themselves.
ON_NODES = [
    QUERY,
    f"{QUERY} WHERE a > 0 AND kind IS NOT NULL;  -- some",
    f"{QUERY} ORDER BY a",
    f"{QUERY} WHERE id = (SELECT 5)",  # no row
    "SELECT * FROM visit",
    "SELECT * FROM seen",  # a view
    "WITH v AS (SELECT * FROM visit WHERE n IS NOT NULL) SELECT * FROM v WHERE a > 0",
    "SELECT v.id, v.a / 2 AS a, v.n, t.kind, v.tall, v.at, v.wide FROM visit AS v"
    " JOIN town AS t ON v.town = t.town",
]


@pytest.mark.parametrize("query", ON_NODES)
def test_the_nodes_write_what_one_server_writes(pair: Pair, query: str) -> None:
    said: list[str] = []
    assert isinstance(pair.citus.connection, PostgresConnection)
    raw = pair.citus.connection.raw

    def hear(told: Any) -> None:
        said.append(str(told.message_primary))

    raw.add_notice_handler(hear)
    pair.citus.sql("SET citus.log_remote_commands = on")
    try:
        target = pair.predict(query)
    finally:
        pair.citus.sql("RESET citus.log_remote_commands")
        raw.remove_notice_handler(hear)
    assert is_spread(pair.citus, target)
    assert any("predict_rows" in text for text in said)
    # No row came to the coordinator: it read none, and sent none.
    assert not any(
        "COPY " in text or ("record_send" in text and "predict_rows" not in text) for text in said
    )


def test_all_probabilities_and_an_alias_are_written(pair: Pair) -> None:
    for db in pair:
        db.set_alias("m", "good", version=1)
    assert is_spread(pair.citus, pair.predict(QUERY, probabilities=True))
    assert pair.citus.predict_into("m@good", QUERY, "by_alias") == 3000
    assert {row["model"] for row in pair.citus.sql("SELECT model FROM by_alias")} == {"m@1"}


#: Queries that the coordinator reads, as ever.
THROUGH_THE_COORDINATOR = [
    f"{QUERY} ORDER BY id LIMIT 5",
    f"{QUERY} WHERE a > (SELECT avg(a) FROM visit)",
    QUERY.replace("SELECT id", "SELECT id + 1 AS id"),
    QUERY.replace(" n,", " (n + 0 * random())::integer AS n,"),
    "SELECT 1 AS id, min(a) AS a, 1 AS n, 'x' AS kind, true AS tall, min(at) AS at,"
    " ARRAY[1, 2, 3]::real[] AS wide FROM visit",
    f"SELECT * FROM ({QUERY}) AS q WHERE id IN (SELECT id FROM mine)",
]


@pytest.mark.parametrize("query", THROUGH_THE_COORDINATOR)
def test_other_queries_are_read_through_the_coordinator(pair: Pair, query: str) -> None:
    for db in pair:
        db.sql("CREATE TABLE IF NOT EXISTS mine AS SELECT id FROM visit WHERE a > 1")
    pair.predict(query)


def test_a_table_of_ones_own_keeps_its_place(pair: Pair) -> None:
    pair.citus.predict_into("m", f"{QUERY} WHERE false", "plain")
    pair.citus.sql("SELECT undistribute_table('plain')")
    assert pair.citus.predict_into("m", QUERY, "plain") == 3000
    assert not is_spread(pair.citus, "plain")


def test_few_rows_and_none(pair: Pair) -> None:
    for db in pair:
        db.sql("CREATE TABLE few (LIKE visit)")
    pair.citus.sql("SELECT create_distributed_table('few', 'id')")
    assert is_spread(pair.citus, pair.predict("SELECT * FROM few"))
    for db in pair:
        db.sql("INSERT INTO few SELECT * FROM visit ORDER BY id LIMIT 1")
    assert is_spread(pair.citus, pair.predict("SELECT * FROM few"))


# -- all or nothing ------------------------------------------------------------

REFUSED: list[tuple[str, type[errors.MmdbError], str]] = [
    (
        QUERY.replace("wide", "array_replace(wide, wide[1], NULL) AS wide"),
        errors.NullValues,
        "wide",
    ),
    (QUERY.replace(" a,", " a + 'NaN'::float8 AS a,"), errors.NotFinite, "a"),
    (
        QUERY.replace("wide", "wide || CASE WHEN n = 3 THEN wide END AS wide"),
        errors.RaggedArray,
        "wide",
    ),
    (QUERY.replace(" a,", " 1 / (n - n) AS a,"), errors.QueryFailed, "zero"),
    (QUERY.replace(" a,", ""), errors.UnknownColumn, "'a'"),
    (QUERY.replace(" a,", " kind AS a,"), errors.InvalidInput, "'a' is text"),
    (QUERY.replace("SELECT id", "SELECT NULLIF(id, id) AS id"), errors.NullValues, "id"),
    (QUERY.replace("visit", "nowhere"), errors.UnknownTable, "nowhere"),
    (QUERY.replace(" n,", " n, a AS n,"), errors.QueryError, "two columns named 'n'"),
]


@pytest.mark.parametrize(("query", "error", "named"), REFUSED)
def test_what_one_server_refuses_the_nodes_refuse(
    pair: Pair, query: str, error: type[errors.MmdbError], named: str
) -> None:
    before, said = len(records(pair.citus)), []
    for db in pair:
        with pytest.raises(error, match=named) as raised:
            db.predict_into("m", query, "never")
        said.append((type(raised.value), raised.value.message))
        assert not db.sql("SELECT 1 AS a FROM pg_class WHERE relname LIKE 'never%'")
    assert said[0] == said[1]
    assert len(records(pair.citus)) == before


def test_a_row_that_the_table_refuses_leaves_nothing(pair: Pair) -> None:
    pair.citus.predict_into("m", f"{QUERY} WHERE n = 3", "once")
    pair.citus.sql("CREATE UNIQUE INDEX once_id ON once (id)")
    before = pair.citus.sql("SELECT count(*) AS n FROM once"), len(records(pair.citus))
    with pytest.raises(errors.WriteConflict, match=r"(?i)duplicate key"):
        pair.citus.predict_into("m", QUERY, "once")
    assert (pair.citus.sql("SELECT count(*) AS n FROM once"), len(records(pair.citus))) == before


def test_it_is_a_part_of_the_callers_transaction(pair: Pair) -> None:
    db, before = pair.citus, len(records(pair.citus))
    db.sql("BEGIN")
    db.sql("UPDATE visit SET n = 3 WHERE id = (SELECT min(id) FROM visit)")
    assert db.predict_into("m", QUERY, "undone") == 3000
    assert db.predict_into("m", QUERY, "undone") == 3000
    assert db.sql("SELECT count(*) AS n FROM undone") == [{"n": 6000}]
    db.sql("ROLLBACK")
    assert not db.sql("SELECT 1 AS a FROM pg_class WHERE relname = 'undone'")
    assert len(records(db)) == before


def test_a_model_of_the_same_transaction_predicts(pair: Pair) -> None:
    db = pair.citus
    db.sql("BEGIN")
    db.sql("UPDATE mmdb.model SET name = 'new' WHERE name = 'm'")
    assert db.predict_into("new", QUERY, "by_new") == 3000
    assert not is_spread(db, "by_new")
    db.sql("ROLLBACK")


def test_a_cancel_ends_it_on_the_nodes(pair: Pair, citus: CitusCluster) -> None:
    with psycopg.connect(pair.url, autocommit=True) as session:
        session.execute("SET statement_timeout = '700ms'")  # loading torch alone takes longer
        started = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled):
            session.execute("SELECT mmdb.predict_into('m', %s, 'late')", (QUERY,))
        assert time.monotonic() - started < 10
    assert not pair.citus.sql("SELECT 1 AS a FROM pg_class WHERE relname = 'late'")
    busy = (
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active'"
        " AND query LIKE '%%predict_rows%%' AND pid <> pg_backend_pid()"
    )
    for node in citus.nodes:
        with psycopg.connect(node.url("predicting"), autocommit=True) as session:
            deadline = time.monotonic() + 10
            while session.execute(busy).fetchall() != [(0,)]:
                assert time.monotonic() < deadline
                time.sleep(0.1)


def test_a_node_that_writes_reads_nothing_through_citus(pair: Pair, citus: CitusCluster) -> None:
    """Citus forgets the connections of what is prepared, and looks at them as it is committed."""
    for server in citus.nodes:
        with psycopg.connect(server.url("predicting"), autocommit=True) as node:
            node.execute("ALTER SYSTEM SET citus.log_remote_commands = on")
            node.execute("SELECT pg_reload_conf()")
    pair.citus.sql("CREATE TABLE chances (id bigint, chances real[])")
    pair.citus.sql("SELECT create_distributed_table('chances', 'id', colocate_with => 'visit')")
    with psycopg.connect(pair.url, autocommit=True) as session:
        session.execute("SET citus.max_adaptive_executor_pool_size = 1")
        said: list[str] = []
        session.add_notice_handler(lambda told: said.append(str(told.message_primary)))
        row = "to_jsonb(v) - 'y' - 'town'"
        predicted = f"SELECT id, mmdb.predict('m', {row}) FROM visit AS v"
        session.execute(f"INSERT INTO chances {predicted} WHERE n = 3".encode())
        session.execute("SELECT mmdb.predict_into('m', %s, 'unread')", (QUERY,))
        assert not [text for text in said if "mmdb" in text]
    (three,) = pair.citus.sql("SELECT count(*) AS n FROM visit WHERE n = 3")
    assert pair.citus.sql("SELECT count(*) AS n FROM chances") == [three]


# -- rights --------------------------------------------------------------------


def test_the_caller_reads_and_writes_what_is_the_callers(pair: Pair, citus: CitusCluster) -> None:
    owner = pair.citus
    password = citus.coordinator.password
    owner.sql(f"CREATE ROLE eve_on_nodes LOGIN PASSWORD '{password}' IN ROLE mmdb_trainer")
    owner.sql("CREATE SCHEMA eve AUTHORIZATION eve_on_nodes")
    with mmdb.connect(pair.url.replace("//postgres:", "//eve_on_nodes:")) as eve:
        with pytest.raises(errors.RightsMissing, match="permission denied for table visit"):
            eve.predict_into("m", QUERY, "eve.mine")
        owner.sql("GRANT SELECT (id, a, n, kind, tall, at, wide) ON visit TO eve_on_nodes")
        assert eve.predict_into("m", QUERY, "eve.mine") == 3000
        assert is_spread(owner, "eve.mine")
        owner.predict_into("m", f"{QUERY} WHERE n = 3", "public.owners")
        with pytest.raises(errors.RightsMissing, match="permission denied for table owners"):
            eve.predict_into("m", QUERY, "public.owners")
        owner.sql("GRANT INSERT ON public.owners TO eve_on_nodes")
        assert eve.predict_into("m", QUERY, "public.owners") == 3000
        assert records(owner)[-1]["author"] == "eve_on_nodes"
        owner.sql("CREATE POLICY threes ON visit FOR SELECT TO eve_on_nodes USING (n = 3)")
        owner.sql("ALTER TABLE visit ENABLE ROW LEVEL SECURITY")
        try:
            (seen,) = owner.sql("SELECT count(*) AS n FROM visit WHERE n = 3")
            assert eve.predict_into("m", QUERY, "eve.seen") == seen["n"]
            assert owner.predict_into("m", QUERY, "owners_all") == 3000
        finally:
            owner.sql("ALTER TABLE visit DISABLE ROW LEVEL SECURITY")
