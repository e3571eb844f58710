"""`lineage` over rows of every kind, of `tests/lineage_rows.py`; equal on both engines."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import networkx as nx
import psycopg
import pytest

import mmdb
from mmdb.api import Database
from mmdb.db.queries import sql_directory
from mmdb.errors import AmbiguousEntity, DefinitionMissing, EntityNotFound, InvalidOption
from mmdb.lineage import finding
from mmdb.lineage.entity import OUTSIDE, kind_of
from mmdb.report.notebook import LineageRows
from tests.cluster import Cluster
from tests.lineage_rows import fill

Steps = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def opened(
    cluster: Cluster,
    template: str,
    installed_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Database]]:
    """Yield the same rows on either engine."""
    file = tmp_path_factory.mktemp("lineage") / "zoo.duckdb"
    shutil.copy(installed_file, file)
    urls = {
        "duckdb": f"duckdb:///{file}",
        "postgres": cluster.create_database("mmdb_lineage", template),
    }
    databases = {engine: mmdb.connect(url) for engine, url in urls.items()}
    for db in databases.values():
        fill(db)
    yield databases
    for db in databases.values():
        db.close()
    cluster.drop_database("mmdb_lineage")


@pytest.fixture(params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest, opened: dict[str, Database]) -> Database:
    return opened[str(request.param)]


def steps(db: Database, *given: Any, **options: Any) -> Steps:
    return [tuple(row.values()) for row in db.lineage(*given, **options)]


def edges(found: Steps) -> set[tuple[str, str, str]]:
    return {step[2:] for step in found}


def far_ends(db: Database, kind: str, *given: Any, **options: Any) -> list[str]:
    far = 3 if "down" in given else 2
    return sorted({step[far] for step in steps(db, *given, **options) if step[1] == kind})


def graph_of(db: Database) -> nx.MultiDiGraph:
    graph = nx.MultiDiGraph()
    for row in db.sql("SELECT parent, child, via FROM mmdb.lineage_edge"):
        graph.add_edge(row["parent"], row["child"], row["via"])
    return graph


# -- the whole graph ----------------------------------------------------------


def test_every_walk_is_what_the_view_says_and_nothing_is_left_out(db: Database) -> None:
    graph = graph_of(db)
    ways = (("down", graph), ("up", graph.reverse()))
    nodes = sorted(node for node in graph if kind_of(node) != "unresolved")
    of_kinds = [list(of_kind) for _, of_kind in groupby(nodes, kind_of)]
    for start in [of_kind[place] for of_kind in of_kinds for place in {0, len(of_kind) // 2}]:
        for direction, way in ways:
            depths = nx.single_source_shortest_path_length(way, start)
            wanted = set()
            for near, far, via in way.out_edges(depths, keys=True):
                ends = (near, far) if direction == "down" else (far, near)
                wanted.add((depths[near] + 1, kind_of(far), *ends, via))
            # The function itself is called in other tests: a call costs milliseconds.
            found = finding.lineage(db.connection, start, direction, hops=True)
            assert found == sorted(wanted), (start, direction)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_the_graph_has_the_rows_as_edges(db: Database, direction: str) -> None:
    rows = db.lineage("r@1", direction, hops=True)
    graph = rows.graph()
    assert isinstance(graph, nx.DiGraph) and not graph.is_multigraph()
    found = {(parent, child, via) for parent, child, of in graph.edges(data="via") for via in of}
    assert found == {(row["parent"], row["child"], row["via"]) for row in rows}
    assert graph.graph == {"direction": direction, "entity": "model:r@1"}
    assert graph.nodes["model:r@1"] == {"depth": 0, "kind": "model", "name": "r", "version": 1}
    way = graph if direction == "down" else graph.reverse()
    assert dict(graph.nodes(data="depth")) == nx.single_source_shortest_path_length(
        way, "model:r@1"
    )


def test_an_entity_without_lineage_has_an_empty_graph() -> None:
    assert not LineageRows().graph()


def test_a_model_without_an_architecture_has_no_graph(db: Database) -> None:
    with pytest.raises(DefinitionMissing, match=r"architecture of model r@1 is not known"):
        _ = db.model("r@1").architecture


def test_both_engines_give_the_same_rows(opened: dict[str, Database]) -> None:
    duckdb, postgres = opened["duckdb"], opened["postgres"]
    assert set(graph_of(duckdb).edges(keys=True)) == set(graph_of(postgres).edges(keys=True))
    for entity in ("r@1", "chain@40", "column:shop.t.a", "candidate:1"):
        for direction in ("up", "down"):
            for hops in (True, False):
                rows = [steps(db, entity, direction, hops=hops) for db in opened.values()]
                assert rows[0] == rows[1], (entity, direction, hops)
    view = "SELECT * FROM mmdb.column_impact ORDER BY table_name, column_name, model_id"
    assert len(duckdb.sql(view)) == len(postgres.sql(view)) > 0


def test_every_kind_of_edge_is_in_the_view(db: Database) -> None:
    rows = db.sql("SELECT DISTINCT parent_kind, child_kind, via FROM mmdb.lineage_edge")
    found = {(row["parent_kind"], row["child_kind"], row["via"]) for row in rows}
    assert found == {
        ("table", "column", "column"),
        ("column", "dataset", "x"),
        ("column", "dataset", "y"),
        ("column", "dataset", "y through shop.v > shop.w"),
        ("column", "dataset", "filter"),
        ("table", "dataset", "z (column unresolved)"),
        ("unresolved", "dataset", "q (column unresolved)"),
        ("column", "table", "x"),
        ("table", "table", "x (column unresolved)"),
        ("dataset", "partition", "train"),
        ("dataset", "partition", "validation"),
        ("dataset", "run", "train"),
        ("dataset", "model", "train"),
        ("run", "candidate", "search"),
        ("partition", "hop", "train"),
        ("partition", "hop", "validation"),
        ("candidate", "hop", "begin"),
        ("checkpoint", "hop", "train"),
        ("hop", "checkpoint", "train"),
        ("hop", "checkpoint", "validation"),
        ("checkpoint", "candidate", "clone"),
        ("candidate", "candidate", "clone"),
        ("checkpoint", "candidate", "warm start"),
        ("checkpoint", "model", "save"),
        ("model", "candidate", "warm start"),
        ("model", "model", "update"),
        ("model", "model", "fine-tune"),
        ("model", "model", "derived"),
        ("model", "model", "warm start"),
        ("model", "table", "predict"),
        ("file", "model", "import"),
        ("database", "model", "pull"),
    }


# -- what people ask ----------------------------------------------------------


def test_the_way_up_from_a_model_ends_at_tables(db: Database) -> None:
    found = steps(db, "r@1")
    assert found[0] == (1, "checkpoint", "checkpoint:1/2", "model:r@1", "save")
    assert {step[1] for step in found if step[0] == 2} == {"hop"}
    assert far_ends(db, "hop", "r@1") == [f"hop:1/{e}/{p}" for e in range(3) for p in (3, 4)]
    assert far_ends(db, "column", "r@1", hops=False) == [
        'column:"my.schema"."we"".ird"."two.parts"',  # of tuned@1, which predicted the next
        "column:shop.scores.prediction",  # by which cycle@1 was trained, who writes to shop.t
        "column:shop.t.a",
        "column:shop.t.b",
        "column:shop.t.c",
    ]
    assert ("table:shop.u", "dataset:d", "z (column unresolved)") in edges(found)
    assert ("unresolved:dataset:d.q", "dataset:d", "q (column unresolved)") in edges(found)


def test_the_way_down_from_a_column_ends_at_descendants_of_its_models(db: Database) -> None:
    found = steps(db, "column:shop.t.a", "down")
    assert [step[1:] for step in found if step[0] == 1] == [
        ("dataset", "column:shop.t.a", "dataset:d", "x"),
        ("table", "column:shop.t.a", "table:shop.scores", "x"),
    ]
    assert {step[1] for step in found}.isdisjoint({"hop", "partition"})
    models = far_ends(db, "model", "column:shop.t.a", "down")
    assert {"model:r@1", "model:r@2", "model:net@1", "model:tuned@1", "model:chain@40"} < {*models}
    assert {"model:imported@1", "model:grown@1", "model:pulled@1"}.isdisjoint(models)


def test_without_hops_states_follow_upon_candidates(db: Database) -> None:
    assert edges(steps(db, "run:r", "down", max_depth=3)) == {
        ("run:r", "candidate:1", "search"),
        ("run:r", "candidate:2", "search"),
        ("run:r", "candidate:3", "search"),  # of candidate 4 nothing was made
        ("candidate:2", "candidate:4", "clone"),  # from a state that is not known any more
        ("candidate:2", "checkpoint:2/1", "train"),
        ("checkpoint:2/1", "candidate:6", "warm start"),
        ("candidate:1", "checkpoint:1/0", "train"),  # of which candidate 3 is a clone
        ("candidate:3", "checkpoint:3/0", "train"),
        ("checkpoint:1/0", "checkpoint:1/2", "train"),
        ("checkpoint:1/0", "candidate:3", "clone"),
        ("checkpoint:3/0", "model:r@2", "save"),
    }
    assert edges(steps(db, "r@2", hops=False, max_depth=4)) == {
        ("checkpoint:3/0", "model:r@2", "save"),
        ("candidate:3", "checkpoint:3/0", "train"),
        ("run:r", "candidate:3", "search"),
        ("checkpoint:1/0", "candidate:3", "clone"),
        ("dataset:d", "run:r", "train"),
        ("candidate:1", "checkpoint:1/0", "train"),
    }


def test_a_state_of_which_nothing_was_made_is_on_the_way_as_well(db: Database) -> None:
    assert edges(steps(db, "checkpoint:1/1", "down", max_depth=2)) == {
        ("checkpoint:1/1", "checkpoint:1/2", "train"),
        ("checkpoint:1/2", "model:r@1", "save"),
    }
    assert edges(steps(db, "hop:1/1/3", "down", max_depth=2, hops=False)) == {
        ("hop:1/1/3", "checkpoint:1/1", "train"),
        ("checkpoint:1/1", "checkpoint:1/2", "train"),
    }
    assert edges(steps(db, "checkpoint:1/1", max_depth=2, hops=False)) == {
        ("checkpoint:1/0", "checkpoint:1/1", "train"),
        ("candidate:1", "checkpoint:1/0", "train"),
    }


def test_hops_are_shown_on_the_way_up_and_where_a_walk_begins_at_one(db: Database) -> None:
    hop = ("partition:3", "hop:1/0/3", "train")
    assert hop in edges(steps(db, "r@1")) and hop in edges(steps(db, "partition:3", "down"))
    assert hop not in edges(steps(db, "r@1", hops=False))
    assert hop not in edges(steps(db, "dataset:d", "down"))
    assert hop in edges(steps(db, "dataset:d", "down", hops=True))


def test_a_cycle_through_a_table_of_predictions_ends(db: Database) -> None:
    down, up = edges(steps(db, "tuned", "down")), edges(steps(db, "tuned", "up"))
    ring = {
        ("model:tuned@1", "table:shop.scores", "predict"),
        ("table:shop.scores", "column:shop.scores.prediction", "column"),
        ("column:shop.scores.prediction", "dataset:again", "y"),
        ("dataset:again", "model:cycle@1", "train"),
        ("model:cycle@1", "table:shop.t", "predict"),
        ("table:shop.t", "column:shop.t.a", "column"),
        ("model:net@1", "model:tuned@1", "fine-tune"),
    }
    assert ring <= down and ring <= up


def test_a_long_chain_of_updates_is_followed_to_its_end(db: Database) -> None:
    found = steps(db, "cycle", "down")
    assert (40, "model", "model:chain@39", "model:chain@40", "update") in found
    assert (40, "model", "model:cycle@1", "model:chain@1", "update") in steps(db, "chain")


def test_columns_say_which_models_saw_them(db: Database) -> None:
    rows = db.sql(
        "SELECT DISTINCT column_name, resolution, output_name, is_direct FROM mmdb.column_impact "
        "WHERE dataset = 'd' AND model = 'r' AND version = 1 ORDER BY output_name"
    )
    assert [tuple(row.values()) for row in rows if row["output_name"]] == [
        (None, "unresolved", "q", True),
        ("a", "column", "x", True),
        ("b", "column", "y", True),
        (None, "table", "z", True),
    ]
    assert [tuple(r.values()) for r in rows if not r["output_name"]] == [
        ("c", "column", None, False)
    ]


# -- names --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entity", "node"),
    [
        ("net", "model:net@1"),  # the second version was dropped
        ("net@prod", "model:net@1"),
        ("model:net@2", "model:net@2"),
        ("r", "model:r@2"),  # the model of that name before the run
        ("run:r", "run:r"),
        ("d", "dataset:d"),
        ("dataset:d#1", "dataset:d#1"),
        ("dataset:d#2", "dataset:d"),
        ("table:scores", "table:shop.scores"),
        ("shop.t", "table:shop.t"),
        ("SHOP.T", "table:shop.t"),
        ("shop.t.A", "column:shop.t.a"),
        ("t.b", "column:shop.t.b"),
        ("column:t.a", "column:t.a"),  # of an older dataset: its schema is not known
        ("u", "table:shop.u"),
        ('"my.schema"."we"".ird"."two.parts"', 'column:"my.schema"."we"".ird"."two.parts"'),
        ('table:"we"".ird"', 'table:"my.schema"."we"".ird"'),
        ("file:/models/a:b.pt", "file:/models/a:b.pt"),
        ("database:postgresql://far/zoo", "database:postgresql://far/zoo"),
        ("candidate:01", "candidate:1"),
        ("hop:1/2/4", "hop:1/2/4"),
    ],
)
def test_what_a_text_stands_for(db: Database, entity: str, node: str) -> None:
    up = steps(db, entity, hops=True, max_depth=1)
    down = steps(db, entity, "down", hops=True, max_depth=1)
    assert {step[3] for step in up} | {step[2] for step in down} == {node}
    assert up or kind_of(node) in {*OUTSIDE, "table"}


def test_names_that_are_several_are_listed(db: Database) -> None:
    with pytest.raises(AmbiguousEntity, match="dataset:grown, model:grown@1"):
        db.lineage("grown")
    with pytest.raises(AmbiguousEntity, match=r"table:depot.t, table:shop.t, table:t"):
        db.lineage("T")
    with pytest.raises(AmbiguousEntity, match=r"column:depot.t.a, column:shop.t.a, column:t.a"):
        db.lineage("t.a")
    assert steps(db, "model:grown") and steps(db, "dataset:grown", "down", hops=True)


@pytest.mark.parametrize(
    "entity",
    [
        "nothing", "model:nothing", "net@9", "net@nobody", "run:net", "dataset:d#9", "d#x",
        "table:nowhere.t", "column:t.nothing", "column:t", "shop.t.a.b", "hop:1/2", "hop:9/9/9",
        "candidate:99", "candidate:x", "partition:99", "checkpoint:1/7", "file:/nowhere", "",
        "unresolved:dataset:d.q", "model:", "net@" + "9" * 5000, '"' * 5000,
        "candidate:" + "9" * 5000, "'; DROP TABLE mmdb.model; --", None,
    ],
)  # fmt: skip
def test_what_is_not_there_is_said(db: Database, entity: Any) -> None:
    with pytest.raises(EntityNotFound):
        db.lineage(entity)


def test_wrong_arguments_are_refused(db: Database) -> None:
    with pytest.raises(InvalidOption, match="entity is 7"):
        db.lineage(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="direction is 'left'"):
        db.lineage("net", "left")
    with pytest.raises(InvalidOption, match="max_depth is 0"):
        db.lineage("net", max_depth=0)
    assert {step[0] for step in steps(db, "chain", max_depth=2)} == {1, 2}


def test_sql_has_the_contracts_columns_and_defaults(db: Database) -> None:
    rows = db.sql("SELECT depth, kind, parent, child, via FROM mmdb.lineage('net@1')")
    assert [tuple(row.values()) for row in rows] == steps(db, "net@1")
    named = "SELECT * FROM mmdb.lineage('net', direction => 'down', max_depth => 1, hops => false)"
    assert {row["child"] for row in db.sql(named)} == {"model:tuned@1", "model:net@2"}


# -- who may, and how ---------------------------------------------------------


def test_a_reader_may_call_it_and_read_its_views(opened: dict[str, Database]) -> None:
    db = opened["postgres"]
    wanted = steps(db, "shop.t.a", "down")
    with psycopg.connect(db.connection.url) as session:
        session.execute("SET ROLE mmdb_reader")
        session.execute("SET default_transaction_read_only = on")
        found = session.execute("SELECT * FROM mmdb.lineage('shop.t.a', 'down')").fetchall()
        assert found == wanted
        for view in ("lineage_edge", "lineage_entity", "column_impact"):
            session.execute(f"SELECT * FROM mmdb.{view}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SELECT * FROM mmdb.dataset_source")


def test_no_query_of_the_walk_is_recursive() -> None:
    for name in ("queries/lineage.sql", "views/08_edges.sql", "views/08_lineage.sql"):
        assert "recursive" not in (sql_directory("sql") / name).read_text().lower()
