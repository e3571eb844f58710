"""What an analyst does, on a coordinator with two nodes and on one PostgreSQL: the same answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import torch
from torch import nn

import mmdb
from mmdb.api import Database
from mmdb.db.doctor import examine
from mmdb.db.install import install, installed_engine
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load, sql_directory
from mmdb.errors import AlreadyExists, InvalidOption
from tests.citus_cluster import CitusCluster
from tests.cluster import Cluster

pytestmark = pytest.mark.citus

ROWS = """
SELECT
    i AS id,
    (i * 7919 % 1000) / 1000.0::double precision AS a,
    (i * 104729 % 1000) / 1000.0::double precision AS b,
    CASE WHEN i * 7919 % 1000 + i * 104729 % 1000 > 1000 THEN 'high' ELSE 'low' END AS y
FROM generate_series(1, 400) AS g (i)
"""
PLACES = """
SELECT p.part_id, p.ordinal, p.role, n.nodename || ':' || n.nodeport AS node
FROM mmdb.partition AS p
INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
INNER JOIN pg_dist_placement AS l
    ON get_shard_id_for_distribution_column('mmdb.block', p.part_id) = l.shardid
INNER JOIN pg_dist_node AS n ON l.groupid = n.groupid
WHERE d.name = %(name)s
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """A database on Citus, and one on PostgreSQL in which the same was done."""

    citus: Database
    postgres: Database

    def same(self, ask: Callable[[Database], Any]) -> Any:
        """Return what both answer."""
        answer = ask(self.citus)
        assert answer == ask(self.postgres)
        return answer


@pytest.fixture(scope="module")
def pair(citus: CitusCluster, cluster: Cluster, template: str) -> Iterator[Pair]:
    """Yield both databases with datasets, a trained run and models.

    The one on Citus was installed on its coordinator alone, and spread when it had rows.
    """
    urls = citus.create_database("engine"), cluster.create_database("beside_citus", template)
    install(urls[0], engine="postgres")
    for url in urls:
        with mmdb.connect(url) as db:
            begin(db)
    install(urls[0], engine="citus")
    with mmdb.connect(urls[0]) as spread, mmdb.connect(urls[1]) as postgres:
        for db in (spread, postgres):
            fill(db)
        yield Pair(spread, postgres)
    cluster.drop_database("beside_citus")


def begin(db: Database) -> None:
    db.sql(f"CREATE TABLE public.measured AS {ROWS}")
    db.create_dataset("early", "SELECT a, y FROM public.measured", partitions=2)
    db.create_run("early", dataset="early", architecture="mlp")
    torch.manual_seed(1)
    db.save("early", nn.Linear(64, 64), metrics={"accuracy": 0.5})


def fill(db: Database) -> None:
    db.create_dataset("measured", "SELECT a, b, y FROM public.measured", partitions=3)
    space = {"space": {"lr": [0.1, 0.01]}}
    db.create_run("first", dataset="measured", architecture="mlp", search=space, epochs=2)
    db.run("first").train(workers=2)
    ((best,),) = rows(
        db, "SELECT candidate_id FROM mmdb.leaderboard WHERE run = 'first' AND rank = 1"
    )
    db.save_candidate(best, "kept")
    db.save_candidate(best, "remade", approach="provenance")
    parent = nn.Linear(64, 64)
    db.recover("early", into=parent)
    db.save("layer", parent, metrics={"accuracy": 0.5})
    with torch.no_grad():
        parent.weight[0] += 1
    db.save("layer", parent, parent="layer")
    db.clone_candidate(best, {"lr": 0.05})
    db.create_run("warm", dataset="measured", architecture="mlp", warm_start="auto")
    ((warm,),) = rows(db, "SELECT candidate_id FROM mmdb.leaderboard WHERE run = 'warm'")
    db.sql(f"SELECT * FROM mmdb.begin_candidate({warm})")


def rows(db: Database, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.sql(query)]


# -- where things lie ----------------------------------------------------------


def test_tables_lie_where_they_are_needed(pair: Pair) -> None:
    assert installed_engine(pair.citus.connection) == "citus"
    kinds = pair.citus.sql(
        "SELECT table_name::text, citus_table_type AS kind, distribution_column AS by"
        " FROM citus_tables"
    )
    where = {row["table_name"].removeprefix("mmdb."): (row["kind"], row["by"]) for row in kinds}
    for table in ("block", "hop", "state_chunk", "checkpoint", "checkpoint_chunk"):
        assert where[table] == ("distributed", "part_id")
    assert where["tensor_chunk"] == ("distributed", "tensor_id")
    for table in ("run", "dataset", "partition", "factory"):
        assert where[table][0] == "reference"
    for table in ("candidate", "run_event", "model", "tensor", "migration"):
        assert where[table][0] == "local"
    assert "worker_beat" not in where
    together = pair.citus.sql(
        "SELECT DISTINCT colocation_id FROM citus_tables WHERE distribution_column = 'part_id'"
    )
    assert len(together) == 1


def test_partitions_lie_evenly_on_the_nodes(citus: CitusCluster, pair: Pair) -> None:
    places = pair.citus.sql(PLACES, {"name": "measured"})  # 3 train slices and one validation
    nodes = {f"127.0.0.1:{server.port}" for server in citus.nodes}
    assert Counter(p["node"] for p in places) == Counter(dict.fromkeys(nodes, 2))
    train = [p for p in places if p["role"] == "train"]
    assert sorted(Counter(p["node"] for p in train).values()) == [1, 2]


# -- the same answers ----------------------------------------------------------


def test_the_same_bits_come_out(pair: Pair) -> None:
    assert pair.same(
        lambda db: rows(db, "SELECT content_hash FROM mmdb.dataset ORDER BY dataset_id")
    )
    hops = pair.same(
        lambda db: rows(
            db,
            "SELECT c.ordinal, h.epoch, p.role, p.ordinal, h.loss, h.state_in, h.state_out"
            " FROM mmdb.hop AS h INNER JOIN mmdb.candidate AS c USING (candidate_id)"
            " INNER JOIN mmdb.partition AS p USING (part_id) ORDER BY 1, 2, 3, 4",
        )
    )
    assert len(hops) == 2 * 2 * 4
    shown = "SELECT name, version, weights_hash, approach FROM mmdb.model ORDER BY name, version"
    assert len(pair.same(lambda db: rows(db, shown))) == 6  # train saves the best one too


def test_models_are_read_predict_and_are_compared(pair: Pair) -> None:
    pair.same(lambda db: db.predict("kept", [0.3, 0.9]))
    pair.same(lambda db: db.predict("kept", {"a": 0.3, "b": 0.9}))
    pair.same(lambda db: db.predict_query("kept", "SELECT * FROM public.measured ORDER BY id"))
    assert pair.same(lambda db: db.predict_into("kept", "SELECT * FROM measured", "guess")) == 400
    pair.same(lambda db: rows(db, "SELECT id, prediction FROM public.guess ORDER BY id"))
    pair.same(lambda db: db.evaluate("kept", "measured"))
    values = "SELECT mmdb.tensor_values('layer@2', 'weight', 0, 1)"
    assert len(pair.same(lambda db: rows(db, values))[0][0]) == 64
    pair.same(lambda db: str(db.recover("remade").state_dict()))  # by its hops
    pair.same(lambda db: str(db.recover("layer", into=nn.Linear(64, 64)).state_dict()))
    pair.same(lambda db: str(db.diff("layer@1", "layer@2")))


def test_rows_of_a_distributed_table_are_predicted_on_their_nodes(pair: Pair) -> None:
    pair.citus.sql("CREATE TABLE public.scattered AS SELECT * FROM public.measured")
    pair.citus.sql("SELECT create_distributed_table('public.scattered', 'id')")
    pair.postgres.sql("CREATE TABLE public.scattered AS SELECT * FROM public.measured")
    asked = "SELECT id, mmdb.predict('kept', ARRAY[a, b]::real[]) FROM public.scattered"
    assert len(pair.same(lambda db: rows(db, f"{asked} ORDER BY id"))) == 400
    pair.citus.sql("CREATE TABLE public.scored (id bigint, chances real[])")
    pair.citus.sql("SELECT create_distributed_table('public.scored', 'id')")
    pair.citus.sql(f"INSERT INTO public.scored {asked}")
    scored = rows(pair.citus, "SELECT id, chances FROM public.scored ORDER BY id")
    assert scored == rows(pair.postgres, f"{asked} ORDER BY id")


def test_what_is_said_of_models_is_kept(pair: Pair) -> None:
    def say(db: Database) -> list[tuple[Any, ...]]:
        db.set_alias("layer", "prod", version=2)
        for tag in ("a", "b"):  # the second in place of the first
            db.tag("layer@prod", stage=tag)
            db.log_metric("layer@prod", "accuracy", 0.5 + (tag == "b"))
        db.note("layer", "as it was")
        return [
            *rows(db, "SELECT model, alias, version FROM mmdb.model_alias"),
            *rows(db, "SELECT model, version, key, value FROM mmdb.tag_overview"),
            *rows(db, "SELECT model, version, metric, value FROM mmdb.metric_overview ORDER BY 4"),
            *rows(db, "SELECT model, version, note FROM mmdb.note_overview"),
        ]

    assert len(pair.same(say)) >= 4


def test_lineage_leads_from_columns_to_models_and_back(pair: Pair) -> None:
    def edges(db: Database, entity: str, direction: str) -> Counter[tuple[Any, ...]]:
        found = rows(
            db,
            "SELECT kind, via, parent LIKE 'column:%', child LIKE 'model:%'"
            f" FROM mmdb.lineage('{entity}', '{direction}', true)",
        )
        return Counter(found)

    assert pair.same(lambda db: edges(db, "model:kept@1", "up"))
    assert pair.same(lambda db: edges(db, "column:public.measured.a", "down"))


def test_clones_and_warm_starts_have_their_parents(pair: Pair) -> None:
    edges = "SELECT parent_kind, via FROM mmdb.lineage_edge WHERE child_kind = 'candidate'"
    found = pair.same(lambda db: sorted(rows(db, edges)))
    assert ("checkpoint", "clone") in found
    assert ("model", "warm start") in found
    pair.same(lambda db: rows(db, "SELECT run, parent, coverage FROM mmdb.warm_start_overview"))


def columns(db: Database, view: str) -> list[str]:
    """Return the columns of a view that answers."""
    with psycopg.connect(url_of(db)) as session:
        cursor = session.execute(f"SELECT * FROM mmdb.{view} LIMIT 5".encode())
        return [column.name for column in cursor.description or []]


def url_of(db: Database) -> str:
    assert isinstance(db.connection, PostgresConnection)
    return db.connection.url


def test_every_view_answers_and_has_the_same_columns(pair: Pair) -> None:
    listed = "SELECT viewname FROM pg_views WHERE schemaname = 'mmdb' ORDER BY 1"
    views = [view for (view,) in rows(pair.postgres, listed)]
    only_here = {view for (view,) in rows(pair.citus, listed)} - set(views)
    assert only_here == {"node_status"}
    for view in views:
        assert columns(pair.citus, view) == columns(pair.postgres, view), view
    counted = [
        (view, *rows(db, f"SELECT count(*) FROM mmdb.{view}"))
        for db in (pair.citus, pair.postgres)
        for view in ("candidate_progress", "hop_timeline", "lineage_edge", "run_time")
    ]
    assert counted[:4] == counted[4:]


VALUES = {
    "bigint": "7",
    "boolean": "TRUE",
    "bytea": "'x'",
    "double precision": "1.5",
    "integer": "3",
    "interval": "'1 day'",
    "jsonb": "'{}'",
    "text": "'{}'",  # some are read as arrays
    "timestamptz": "'2020-01-01'",
}
PLACEHOLDER = re.compile(r"%\((\w+)\)s::(double precision|\w+(?:\[\])?)")
PLANNED = re.compile(r"(--[^\n]*\s+)*(SELECT|WITH|INSERT|UPDATE|DELETE)\b")


def constant(placeholder: re.Match[str]) -> str:
    kind = placeholder[2]
    value = VALUES.get(kind, "'{}'")  # an empty array
    return f"({value}::{kind})"


def refusals(url: str) -> dict[str, str]:
    """Return the named queries that cannot be planned, with what was said of them."""
    refused = {}
    with psycopg.connect(url, autocommit=True) as session:
        for path in sorted(sql_directory("sql/queries").glob("*.sql")):
            for query in load(path.stem):
                with_teams = "mmdb.share_" in query.sql
                if path.stem.startswith("bench") or with_teams or not PLANNED.match(query.sql):
                    continue
                sql = PLACEHOLDER.sub(constant, query.sql).replace("%%", "%")
                try:
                    session.execute(f"EXPLAIN {sql}".encode())
                except psycopg.Error as error:
                    refused[f"{path.stem}.{query.name}"] = str(error)
    return refused


def test_every_named_query_can_be_planned(pair: Pair) -> None:
    assert refusals(url_of(pair.citus)) == {}


def test_a_plan_is_made(pair: Pair) -> None:
    assert pair.citus.run("warm").explain()


# -- rights --------------------------------------------------------------------


@pytest.fixture(scope="module")
def logins(citus: CitusCluster, pair: Pair) -> Iterator[dict[str, psycopg.Connection[Any]]]:
    """Yield sessions of a reader and of a trainer."""
    with psycopg.connect(citus.url("engine"), autocommit=True) as owner, ExitStack() as stack:
        sessions: dict[str, psycopg.Connection[Any]] = {}
        for role in ("reader", "trainer"):
            name = f"citus_{role}"
            password = citus.coordinator.password  # the one that every node has in its file
            owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}' IN ROLE mmdb_{role}")
            url = citus.url("engine").replace("//postgres:", f"//{name}:")
            session = psycopg.connect(url, autocommit=True, row_factory=psycopg.rows.tuple_row)
            sessions[role] = stack.enter_context(session)
        yield sessions


def test_readers_see_what_views_show_and_no_bytes(
    pair: Pair, logins: dict[str, psycopg.Connection[Any]]
) -> None:
    reader = logins["reader"]
    for view in ("leaderboard", "hop_timeline", "model_overview", "node_status"):
        assert reader.execute(f"SELECT * FROM mmdb.{view}").fetchall()
    assert reader.execute("SELECT * FROM mmdb.lineage('model:kept@1')").fetchall()
    pair.citus.sql("INSERT INTO mmdb.setting VALUES ('worker_dsn', 'host=x')")
    assert reader.execute("SELECT * FROM mmdb.setting").fetchall() == []
    pair.citus.sql("DELETE FROM mmdb.setting")
    for table in ("block", "tensor_chunk", "state_chunk", "checkpoint_chunk"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute(f"SELECT * FROM mmdb.{table}")


def test_trainers_sign_what_they_say_with_their_own_name(
    pair: Pair, logins: dict[str, psycopg.Connection[Any]]
) -> None:
    trainer = logins["trainer"]
    own = "UPDATE mmdb.model SET owner = 'citus_trainer' WHERE name = 'layer' AND version = 1"
    pair.citus.sql(own)
    trainer.execute("SELECT mmdb.set_alias('layer', 1, 'mine'), mmdb.note_model('layer', 'seen')")
    said = "SELECT author FROM mmdb.alias_history WHERE alias = 'mine'"
    assert trainer.execute(said).fetchall() == [("citus_trainer",)]
    for forged in (
        "(model, alias, author) VALUES ('layer', 'x', 'postgres')",
        "(model, alias, happened_at) VALUES ('layer', 'x', '2000-01-01')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            trainer.execute(f"INSERT INTO mmdb.alias_event {forged}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):  # code enters by the owner alone
        trainer.execute("INSERT INTO mmdb.factory (name, target) VALUES ('x', 'os:system')")
    made = "SELECT * FROM mmdb.create_dataset('theirs', 'SELECT i AS a, i AS y FROM"
    assert trainer.execute(f"{made} generate_series(1, 50) AS g (i)')").fetchall()


# -- what keys cannot hold, and what goes ---------------------------------------


def test_gc_and_the_doctor_find_rows_that_refer_to_nothing(pair: Pair) -> None:
    hop = (
        "INSERT INTO mmdb.hop SELECT 123456789, candidate_id, epoch, ordinal, seed, row_count,"
        " steps, loss, metrics, read_s, load_s, compute_s, store_s, total_s, state_in, state_out,"
        " state_bytes, worker, node, device, environment, started_at, finished_at"
        " FROM mmdb.hop ORDER BY candidate_id, ordinal LIMIT 1"
    )
    pair.citus.sql(hop)
    strays = [f for f in pair.citus.gc().found if f.what == "stray"]
    assert [(f.items, f.goes, f.reason) for f in strays] == [(1, False, "hops of no partition")]
    checks = {check.name: check for check in examine(url_of(pair.citus))}
    assert not checks["rows"].ok and not checks["places of hops"].ok
    for name in ("citus", "placement", "nodes", "spread", "nodes' version", "nodes' Python"):
        assert checks[name].ok, checks[name]
    pair.citus.sql("DELETE FROM mmdb.hop WHERE part_id = 123456789")


def test_garbage_and_dropped_datasets_go(pair: Pair) -> None:
    def collect(db: Database) -> list[tuple[Any, ...]]:
        db.drop_alias("layer", "prod")
        db.drop_model("layer", 2)
        found = db.gc(dry_run=False, grace="0 days").found
        return [(f.what, f.items, f.goes) for f in found]

    assert ("model", 1, True) in pair.same(collect)
    assert pair.same(lambda db: db.drop_dataset("measured", force=True)) > 0
    left = "SELECT DISTINCT d.name FROM mmdb.block INNER JOIN mmdb.partition USING (part_id)"
    left += " INNER JOIN mmdb.dataset AS d USING (dataset_id)"
    assert "measured" not in {name for (name,) in rows(pair.citus, left)}


# -- a newer version, and another node -------------------------------------------


def test_an_upgrade_puts_new_tables_where_they_belong(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "9001_more.sql").write_text(
        "CREATE TABLE mmdb.remark (run_id bigint NOT NULL, text text NOT NULL);\n"
        "ALTER TABLE mmdb.hop ADD COLUMN remark text;\n"
    )
    url = url_of(pair.citus)
    with pytest.raises(InvalidOption, match="spread over nodes"):
        install(url, engine="postgres", directory=tmp_path)
    install(url, directory=tmp_path)
    shown = "SELECT citus_table_type FROM citus_tables WHERE table_name = 'mmdb.remark'::regclass"
    assert rows(pair.citus, shown) == [("local",)]
    assert rows(pair.citus, "SELECT DISTINCT remark FROM mmdb.hop") == [(None,)]
    pair.citus.sql("DELETE FROM mmdb.migration WHERE number = 9001")  # as this version knows it


def test_a_new_node_gets_its_share_when_shards_are_spread_anew(
    citus: CitusCluster, pair: Pair
) -> None:
    added = citus.start_server()
    citus.prepare(added, "engine")
    citus.add_node("engine", added)
    query = "SELECT i AS a, i AS y FROM generate_series(1, 50) AS g (i)"
    before = pair.citus.create_dataset("before", query, partitions=5).content_hash
    pair.citus.sql(
        "SELECT rebalance_table_shards('mmdb.block', rebalance_strategy => 'by_partition',"
        " shard_transfer_mode => 'block_writes')"
    )
    held = pair.citus.sql("SELECT node, partitions FROM mmdb.node_status WHERE NOT is_coordinator")
    counts = sorted(row["partitions"] for row in held)
    assert len(counts) == 3 and counts[0] > 0 and counts[-1] - counts[0] <= 2
    with pytest.raises(AlreadyExists):
        pair.citus.create_dataset("before", query)
    assert pair.citus.create_dataset("after", query, partitions=5).content_hash == before
    places = Counter(row["node"] for row in pair.citus.sql(PLACES, {"name": "after"}))
    assert sorted(places.values()) == [2, 2, 2]
