"""Parents whose model was trained on other columns, categories or classes, or in another order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.data.dataset import find_dataset
from mmdb.data.reader import read_partition
from mmdb.graph.factories import mlp
from mmdb.graph.tabular import tabular
from tests.warm_runs import ONE, first_weights, warm

HIDDEN = "mlp(hidden=[16, 8])"
PARENT_ROWS = "SELECT a, b, c, color, y FROM t WHERE color <> 'violet' AND y <> 'maybe'"
TABLE = """
    CREATE TABLE t AS SELECT sin(i) AS a, cos(i * 0.7) AS b, sin(i * 0.3) AS c,
    CASE i % 4 WHEN 0 THEN 'red' WHEN 1 THEN 'blue' WHEN 2 THEN 'green' ELSE 'violet' END AS color,
    CASE WHEN i % 7 = 3 THEN 'maybe' WHEN sin(i) + cos(i * 0.7) > 0 THEN 'yes' ELSE 'no' END AS y
    FROM {series} AS s(i)
"""
#: Numbers as they are: what was fitted on other rows would make other numbers of them.
AS_THEY_ARE = {"transforms": dict.fromkeys("abc", "passthrough")}
HOW: dict[str, Any] = {"partitions": 2, "seed": 1, "options": AS_THEY_ARE}


@pytest.fixture
def columns(database_url: str) -> Iterator[Database]:
    """Yield a database with the table `t`, and the model `parent` on some of its rows."""
    with mmdb.connect(database_url) as db:
        is_duckdb = db.connection.engine == "duckdb"
        series = "range(240)" if is_duckdb else "generate_series(0, 239)"
        db.sql(TABLE.format(series=series))
        db.create_dataset("d", PARENT_ROWS, **HOW)
        db.create_run("parent", dataset="d", architecture=HIDDEN, search=ONE, epochs=2).train()
        yield db


def rows_of(db: Database, dataset: str) -> tuple[Tensor, list[str]]:
    """Return the rows of a dataset, and the names of their numbers."""
    parts = db.sql(
        "SELECT p.part_id, p.content_hash FROM mmdb.partition AS p JOIN mmdb.dataset AS d"
        f" ON d.dataset_id = p.dataset_id WHERE d.name = '{dataset}' ORDER BY p.ordinal"
    )
    read = [read_partition(db.connection, p["part_id"], bytes(p["content_hash"])) for p in parts]
    names = []
    decoding = find_dataset(db.connection, dataset).decoding
    for column, _ in decoding.spans(decoding.inputs[0]):
        names += [f"{column.name}={part or ''}" for part in column.parts]
    return torch.cat([torch.from_numpy(one.plain[0]) for one in read]), names


def as_parent_reads(x: Tensor, names: list[str], wanted: list[str]) -> Tensor:
    """Return rows in the order in which the parent's numbers are."""
    found = torch.zeros(len(x), len(wanted))
    for place, name in enumerate(wanted):
        if name in names:
            found[:, place] = x[:, names.index(name)]
    return found


def begun(db: Database, dataset: str) -> tuple[Mapping[str, Any], Tensor, Tensor]:
    """Return what a run's candidate began with, what it computes, and what its parent does."""
    run = db.create_run(
        dataset, dataset=dataset, architecture=HIDDEN, search=ONE, warm_start="auto"
    )
    db.sql(f"SELECT * FROM mmdb.begin_candidate({run.leaderboard()[0]['candidate_id']})")
    (row,) = warm(db, dataset)
    x, names = rows_of(db, dataset)
    _, wanted = rows_of(db, "d")
    classes = find_dataset(db.connection, dataset).classes or ()
    child = mlp((x.shape[1],), len(classes), hidden=[16, 8]).eval()
    child.load_state_dict(first_weights(db, row))
    with torch.no_grad():
        return row, child(x), db.recover("parent")(as_parent_reads(x, names, wanted))


def test_columns_in_another_order_keep_their_weights(columns: Database) -> None:
    columns.create_dataset("other", PARENT_ROWS.replace("a, b, c, color", "color, c, b, a"), **HOW)
    row, found, expected = begun(columns, "other")
    assert torch.allclose(found, expected, atol=1e-5)
    assert row["coverage"] == 1 and "computes what the parent does" in row["reason"]
    assert "another order" in row["reason"]


@pytest.mark.parametrize("arguments", [{}, {"ensemble": 2}, {"periodic": False}])
def test_the_network_for_tables_keeps_the_weights_of_columns_in_another_order(
    columns: Database, arguments: dict[str, Any]
) -> None:
    given = {"hidden": [8], "averages": "probabilities", **arguments}
    architecture = {"factory": "tabular", "arguments": given}
    how: dict[str, Any] = {"architecture": architecture, "search": ONE}
    columns.create_run("table", dataset="d", epochs=1, **how).train(workers=1)
    others = PARENT_ROWS.replace("a, b, c, color", "color, c, a AS new, b, a")
    columns.create_dataset("other", others, **HOW)
    run = columns.create_run("other", dataset="other", warm_start="table", **how)
    columns.sql(f"SELECT * FROM mmdb.begin_candidate({run.leaderboard()[0]['candidate_id']})")
    (row,) = warm(columns, "other")
    x, names = rows_of(columns, "other")
    runs: list[list[str | int]] = [["plain", 3], ["number", 4]]
    child = tabular((x.shape[1],), 2, columns=runs, **given).eval()
    child.load_state_dict(first_weights(columns, row))
    expected = columns.recover("table").eval()(as_parent_reads(x, names, rows_of(columns, "d")[1]))
    assert torch.allclose(child(x), expected, atol=1e-5)
    assert 0.5 < row["coverage"] < 1 and "column new is new" in row["reason"]


def frozen(db: Database, dataset: str, name: str, **search: Any) -> Tensor:
    """Return the first weights of a model whose first layer is frozen, its columns by name."""
    space = {"space": {"freeze_up_to": "1", "lr": 0.01, **search}}
    how: dict[str, Any] = {"architecture": HIDDEN, "search": space, "epochs": 1}
    db.create_run(name, dataset=dataset, warm_start="parent", **how).train(workers=1)
    weight: Tensor = db.recover(name).state_dict()["1.weight"]
    return weight


def test_frozen_layers_read_their_columns_by_name(columns: Database) -> None:
    columns.create_dataset("other", PARENT_ROWS.replace("a, b, c, color", "color, c, b, a"), **HOW)
    own = columns.recover("parent").state_dict()["1.weight"]
    its, wanted = rows_of(columns, "other")[1], rows_of(columns, "d")[1]
    expected = own[:, [wanted.index(name) for name in its]]
    adapter = {"name": "lora", "rank": 2}
    # In one session, whose networks are kept: the same model in one order, and in the other.
    assert torch.equal(frozen(columns, "d", "same"), own)
    assert torch.equal(frozen(columns, "other", "moved"), expected)
    assert torch.equal(frozen(columns, "other", "adapted", adapter=adapter), expected)
    assert torch.equal(frozen(columns, "d", "again"), own)


def test_frozen_layers_of_the_network_for_tables_read_their_columns_by_name(
    columns: Database,
) -> None:
    columns.sql(
        "CREATE TABLE u AS SELECT a, y, 'k' || CAST(b * 5 AS integer) AS k,"
        " 'l' || CAST(c * 4 AS integer) AS l FROM t"
    )
    columns.create_dataset("own", "SELECT a, k, l, y FROM u")
    columns.create_dataset("other", "SELECT l, k, a, y FROM u")
    how: dict[str, Any] = {"architecture": "tabular(hidden=[8])", "epochs": 1}
    columns.create_run("table", dataset="own", search=ONE, **how).train(workers=1)
    parent = columns.recover("table").eval()
    own = parent.state_dict()
    for name, further in (
        ("frozen", {"freeze_up_to": "columns"}),
        ("adapted", {"freeze_up_to": "columns", "adapter": {"name": "lora", "rank": 2}}),
    ):
        space = {"space": {"lr": 0.01, **further}}
        run = columns.create_run(name, dataset="other", warm_start="table", search=space, **how)
        run.train(workers=1)
        found = columns.recover(name).state_dict()
        for n, other in enumerate((1, 0)):
            key = "columns.embeddings.{}.weight"
            assert torch.equal(found[key.format(n)], own[key.format(other)]), name


def test_frozen_layers_that_lack_a_column_or_a_category_are_an_error(columns: Database) -> None:
    rows = "FROM t WHERE y <> 'maybe'"
    columns.create_dataset("category", f"SELECT a, b, c, color, y {rows}", **HOW)
    columns.create_dataset("column", f"SELECT a, a AS d, b, c, y {rows}", **HOW)
    for dataset, named in (("category", "'violet' of color is new"), ("column", "color")):
        with pytest.raises(errors.BackboneMismatch, match=named):
            frozen(columns, dataset, dataset)


def test_a_new_category_costs_no_weights(columns: Database) -> None:
    query = "SELECT a, b, c, color, y FROM t WHERE y <> 'maybe'"
    columns.create_dataset("other", query, **HOW)
    row, found, expected = begun(columns, "other")
    assert torch.allclose(found, expected, atol=1e-5)
    assert 0.8 < row["coverage"] < 1 and "'violet' of color is new" in row["reason"]
    assert "computes what the parent does" in row["reason"]


def test_what_was_fitted_on_other_rows_is_not_said_to_be_exact(columns: Database) -> None:
    few = "SELECT a, b, c, color, y FROM t WHERE a > 0"
    scaled, ranked = (
        {"transforms": AS_THEY_ARE["transforms"] | {"c": kind}}
        for kind in ("standardize", "quantile")
    )
    columns.create_dataset("all", few.replace("a > 0", "true"), options=scaled)
    how: dict[str, Any] = {"architecture": HIDDEN, "search": ONE}
    columns.create_run("scaled", dataset="all", epochs=1, **how).train(workers=1)
    for name, options, said in (
        ("few", scaled, "c has other statistics than the parent's"),
        ("ranked", ranked, "c is transformed otherwise than the parent's"),
    ):
        columns.create_dataset(name, few, options=options)
        run = columns.create_run(name, dataset=name, warm_start="scaled", **how)
        columns.sql(f"SELECT * FROM mmdb.begin_candidate({run.leaderboard()[0]['candidate_id']})")
        (row,) = warm(columns, name)
        assert "computes something else than the parent" in row["reason"]
        assert said in row["reason"]


def test_layers_that_embed_other_categories_are_not_frozen(columns: Database) -> None:
    columns.sql("CREATE TABLE u AS SELECT a, b, c, y, CAST(round(b * 9) AS text) AS k FROM t")
    space = {"space": {"freeze_up_to": "1", "lr": 0.01}}
    how: dict[str, Any] = {"architecture": "mlp(hidden=[8])", "epochs": 1}
    for name, k in (("k", "k"), ("moved", "'a' || k AS k")):
        columns.create_dataset(name, f"SELECT a, {k}, y FROM u")
    columns.create_run("k", dataset="k", search=ONE, **how).train(workers=1)
    columns.create_run("same", dataset="k", warm_start="k", search=space, **how).train(workers=1)
    run = columns.create_run("moved", dataset="moved", warm_start="k", search=space, **how)
    with pytest.raises(errors.BackboneMismatch, match="categories of k have other codes"):
        run.train(workers=1)
