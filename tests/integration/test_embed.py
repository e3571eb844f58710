"""Embeddings of rows, in tables and as rows are inserted: what hooks on a module see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
import torch
from torch import nn

import mmdb
from mmdb import errors
from mmdb.db.postgres import PostgresConnection
from mmdb.graph.factories import cnn, mlp
from mmdb.graph.libraries import transformers
from tests.cluster import Cluster

SMALL = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 300,
    "intermediate_size": 32, "max_position_embeddings": 32,
}  # fmt: skip
ROWS, MIXED = "SELECT id, v FROM points", "SELECT id, a, b FROM points"
TABLES = """
CREATE TABLE points AS SELECT i::bigint AS id, (i % 7 - 3)::real AS a, (i % 11 - 5)::real AS b,
    ARRAY[i % 7 - 3, i % 11 - 5]::real[] AS v, CASE WHEN i % 7 > 3 THEN 'yes' ELSE 'no' END AS y,
    'text ' || i AS said
FROM generate_series(1, 400) AS g (i)
"""
PICTURES = """
CREATE TABLE pictures AS SELECT id, y, x FROM (
    SELECT id, y, ARRAY[a, b, a, b, a, a, b, b, 1, a, b, 0, a, b, 1, b]::real[] AS x FROM points
) AS p
"""


@pytest.fixture(scope="module", params=["duckdb", "postgres", "vector"])
def filled(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[mmdb.Database]:
    """Yield a database with a model of each kind; on PostgreSQL also with pgvector."""
    name = f"embed_{request.param}"
    if request.param == "duckdb":
        url = f"duckdb:///{tmp_path_factory.mktemp('embed') / 'mmdb.duckdb'}"
    else:
        url = cluster.create_database(name, request.getfixturevalue("template"))
    if request.param == "vector":
        with psycopg.connect(url, autocommit=True) as session:
            if not session.execute(
                "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
            ).fetchall():
                pytest.skip("the extension vector is not installed")
            session.execute("CREATE SCHEMA apart; CREATE EXTENSION vector SCHEMA apart")
    with mmdb.connect(url) as db:
        db.sql(TABLES)
        db.sql(PICTURES)
        _save_models(db)
        yield db
    if request.param != "duckdb":
        cluster.drop_database(name)


def _save_models(db: mmdb.Database) -> None:
    db.create_dataset("d", "SELECT v, y FROM points", label="y", partitions=1)
    db.create_dataset("c", "SELECT a, b, y FROM points", label="y", partitions=1)
    db.create_dataset("p", "SELECT x, y FROM pictures", label="y", options={"shape": [1, 4, 4]})
    tokens = {"tokenize": {"said": {"function": "bytes", "length": 12}}}
    db.create_dataset("t", "SELECT said, y FROM points", label="y", options=tokens)
    torch.manual_seed(0)
    db.save("m", mlp((2,), 2, hidden=[8, 5]), architecture="mlp(hidden=[8, 5])", dataset="d")
    db.save("cnn", cnn((1, 4, 4), 2), architecture="cnn", dataset="p")
    bert = {"factory": "transformers:bert", "arguments": SMALL}
    module = transformers((12,), 2, name="bert", config=SMALL)
    db.save("bert", module, architecture=bert, dataset="t")
    db.create_run("tab", dataset="c", architecture="tabular(hidden=[6])", epochs=1).train()


@pytest.fixture
def db(filled: mmdb.Database) -> Iterator[mmdb.Database]:
    yield filled
    for table in ("e", "inbox"):
        filled.sql(f"DROP TABLE IF EXISTS {table}")
    filled.sql("DELETE FROM mmdb.scoring_failure")
    filled.sql("DELETE FROM mmdb.scoring")


def is_vector(db: mmdb.Database) -> bool:
    found = isinstance(db.connection, PostgresConnection) and db.connection.raw.info.dbname
    return found == "embed_vector"


def hooked(db: mmdb.Database, model: str, path: str, x: torch.Tensor, given: bool) -> np.ndarray:
    """Return what a layer of the recovered module returns for rows, or is given, pooled."""
    module, found = db.recover(model).eval(), []

    def note(_: nn.Module, args: Any, output: Any) -> None:
        found.append((args[0] if given else output).clone())

    module.get_submodule(path).register_forward_hook(note)
    with torch.no_grad():
        module(x)
    (one,) = found
    one = one.mean((2, 3)) if one.ndim == 4 else one.mean(1) if one.ndim == 3 else one
    return np.asarray(one)


def written(db: mmdb.Database, table: str = "e", column: str = "embedding") -> np.ndarray:
    """Return the vectors of a table by id."""
    text = f"{column}::text" if is_vector(db) else column
    rows = db.sql(f"SELECT id, {text} AS v FROM {table} ORDER BY id")
    vectors: list[Any] = [json.loads(r["v"]) if is_vector(db) else r["v"] for r in rows]
    return np.array(vectors, np.float32)


def inputs(db: mmdb.Database, model: str) -> tuple[str, torch.Tensor]:
    """Return the query of a model's rows, and what its module is given for them."""
    if model == "cnn":
        rows = db.sql("SELECT x FROM pictures ORDER BY id")
        return "SELECT id, x FROM pictures", torch.tensor([r["x"] for r in rows]).view(-1, 1, 4, 4)
    if model == "bert":
        ids = torch.zeros(400, 12, dtype=torch.int64)
        for place in range(400):
            said = [byte + 1 for byte in f"text {place + 1}".encode()]
            ids[place, : len(said)] = torch.tensor(said)
        return "SELECT id, said FROM points", ids
    rows = db.sql("SELECT v FROM points ORDER BY id")
    return ROWS, torch.tensor([r["v"] for r in rows])


@pytest.mark.parametrize(
    ("model", "layer", "path"),
    [
        ("m", None, "5"), ("m", "1", "1"), ("m", "2", "2"), ("cnn", None, "5"), ("cnn", "0", "0"),
        ("bert", None, "classifier"),
    ],
)  # fmt: skip
def test_a_table_holds_what_hooks_see(
    db: mmdb.Database, model: str, layer: str | None, path: str
) -> None:
    query, x = inputs(db, model)
    assert db.embed_into(model, query, "e", layer=layer) == 400
    found, wanted = written(db), hooked(db, model, path, x, layer is None)
    assert found.shape == wanted.shape and np.abs(found - wanted).max() < 1e-6
    one: dict[str, Any] = {"m": [-2.0, -4.0], "bert": {"said": "text 1"}}
    if model in one:
        assert db.embed(model, one[model], layer=layer) == pytest.approx(found[0], abs=1e-6)
        unit = np.array(db.embed(model, one[model], layer=layer, normalized=True))
        assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-6)
        assert unit * np.linalg.norm(found[0]) == pytest.approx(found[0], abs=1e-6)


def test_of_a_tabular_network_it_is_what_its_head_reads(db: mmdb.Database) -> None:
    db.embed_into("tab", MIXED, "e")
    assert written(db).shape == (400, 6)
    head = db.recover("tab").get_submodule("deep.head")
    db.embed_into("tab", MIXED, "e2", layer="deep", into_column="out")
    with torch.no_grad():
        wanted = head(torch.from_numpy(written(db))).numpy()
    assert np.abs(written(db, "e2", "out") - wanted).max() < 1e-5
    db.sql("DROP TABLE e2")


@pytest.mark.parametrize("search", [{}, {"space": {"freeze_up_to": "columns"}}])
def test_members_of_which_the_probabilities_are_the_mean_are_followed(
    db: mmdb.Database, search: dict[str, Any]
) -> None:
    arguments = {"hidden": [6], "ensemble": 3, "averages": "probabilities"}
    architecture = {"factory": "tabular", "arguments": arguments}  # of a run that names none
    run = db.create_run("run", dataset="c", architecture=architecture, epochs=1, search=search)
    run.train(workers=1)
    if not search:
        (row,) = db.sql("SELECT a, b FROM points WHERE id = 1")
        db.embed_into("run", MIXED, "e")
        assert db.embed("run", dict(row)) == pytest.approx(written(db)[0], abs=1e-6)
    db.drop_run("run")


def test_the_type_is_the_engines_and_the_call_is_recorded(db: mmdb.Database) -> None:
    db.embed_into("m", ROWS, "e", key="id", normalized=True)
    lengths = np.linalg.norm(written(db), axis=1)
    assert set(np.round(lengths, 5)) <= {0.0, 1.0} and 1.0 in np.round(lengths, 5)
    before = db.sql("SELECT * FROM mmdb.prediction_overview ORDER BY prediction_id DESC LIMIT 1")[0]
    assert (before["model"], before["table_name"], before["row_count"]) == ("m", "e", 400)
    assert json.loads(before["embedding"]) == {"layer": None, "normalized": True}
    edges = {(row["parent"], row["child"]) for row in db.lineage("model:m@1", "down", hops=False)}
    assert any(child.startswith("table:") and child.endswith(".e") for _, child in edges)
    types = db.sql(
        "SELECT data_type::text AS t, udt_name::text AS u FROM information_schema.columns"
        " WHERE table_name = 'e' AND column_name = 'embedding'"
        if isinstance(db.connection, PostgresConnection)
        else "SELECT data_type AS t, '' AS u FROM duckdb_columns() WHERE table_name = 'e'"
        " AND column_name = 'embedding'"
    )[0]
    wanted = (
        {"t": "USER-DEFINED", "u": "vector"} if is_vector(db) else {"t": "ARRAY", "u": "_float4"}
    )
    assert types == (
        wanted if isinstance(db.connection, PostgresConnection) else {"t": "FLOAT[5]", "u": ""}
    )


def refused(db: mmdb.Database, error: type[errors.MmdbError], *given: str, **more: Any) -> str:
    """Assert that a call raises and leaves no row and no record; return what it says."""
    count = "SELECT count(*) AS n FROM mmdb.prediction"
    before = db.sql(count)
    with pytest.raises(error) as raised:
        db.embed_into(*given, **more)
    assert db.sql(count) == before
    return f"{raised.value.message} {raised.value.hint}"


def test_what_does_not_fit_is_refused(db: mmdb.Database) -> None:
    assert "such as 0, 1" in refused(db, errors.CutNotFound, "m", ROWS, "e", layer="lost")
    assert "bert returns more" in refused(
        db, errors.NotACut, "bert", "SELECT id, said FROM points", "e", layer="bert"
    )
    refused(db, errors.UnknownColumn, "m", "SELECT v FROM points", "e")
    refused(db, errors.TargetMismatch, "m", ROWS, "e", into_column="Model")
    refused(db, errors.TargetMismatch, "m", ROWS, "e", into_column="id")
    refused(db, errors.InvalidName, "m", ROWS, "e", into_column="")
    refused(db, errors.ModelNotFound, "gone", ROWS, "e")
    db.sql("CREATE TABLE e (id bigint, embedding text, model text, predicted_at timestamptz)")
    assert "embedding" in refused(db, errors.TargetMismatch, "m", ROWS, "e")
    db.sql("DROP TABLE e")
    db.embed_into("m", ROWS, "e")
    if not isinstance(db.connection, PostgresConnection) or is_vector(db):  # real[] has no length
        said = refused(db, errors.TargetMismatch, "m", ROWS, "e", layer="1")
        assert "5" in said and "8" in said
    with pytest.raises(errors.CutNotFound):
        db.embed("m", [1.0, 2.0], layer="lost")
    db.save("bare", mlp((2,), 2, hidden=[3]))  # no architecture, no dataset
    with pytest.raises(errors.InvalidInput, match="without a dataset"):
        db.embed("bare", [1.0, 2.0])
    db.drop_model("bare")


@pytest.mark.filterwarnings("ignore:invalid value")
def test_numbers_that_are_none_leave_no_table(db: mmdb.Database) -> None:
    module = mlp((2,), 2, hidden=[3])
    with torch.no_grad():
        module.get_submodule("1").bias.fill_(float("inf"))  # type: ignore[operator]
    db.save("endless", module, architecture="mlp(hidden=[3])", dataset="d")
    assert "not finite" in refused(db, errors.NotFinite, "endless", ROWS, "e")
    db.drop_model("endless")
    assert db.embed_into("m", f"{ROWS} WHERE id < 0", "e") == 0 and len(written(db)) == 0


def test_odd_names_are_names(db: mmdb.Database) -> None:
    column = "a \"%s %% $1 ' é"
    assert db.embed_into("m", ROWS, '"odd "" %t"', into_column=column) == 400
    assert written(db, '"odd "" %t"', '"a ""%s %% $1 \' é"').shape == (400, 5)
    db.sql('DROP TABLE "odd "" %t"')


# -- as rows come in ----------------------------------------------------------


@pytest.fixture
def inbox(db: mmdb.Database) -> mmdb.Database:
    if not isinstance(db.connection, PostgresConnection):
        with pytest.raises(errors.InvalidOption, match="no triggers"):
            db.embed_on_insert("points", "m")
        return db
    kind = "apart.vector(5)" if is_vector(db) else "real[]"
    db.sql(f"CREATE TABLE inbox (id bigint PRIMARY KEY, v real[], embedding {kind}, y text)")
    return db


def test_each_new_row_has_its_vector(inbox: mmdb.Database) -> None:
    db = inbox
    if not isinstance(db.connection, PostgresConnection):
        return
    number = db.embed_on_insert("inbox", "m", normalized=True)
    db.score_on_insert("inbox", "m", "y")  # a column of each kind
    db.sql(f"INSERT INTO inbox {ROWS} WHERE id < 300")
    for key in range(300, 310):
        db.sql(f"INSERT INTO inbox {ROWS} WHERE id = {key}")
    db.embed_into("m", f"{ROWS} WHERE id < 310", "e", normalized=True)
    assert np.abs(written(db, "inbox") - written(db)).max() < 1e-6
    assert {row["y"] for row in db.sql("SELECT y FROM inbox")} <= {"yes", "no"}
    first = db.sql("SELECT * FROM mmdb.scoring_overview ORDER BY scoring_id")[0]
    assert first["scoring_id"] == number and json.loads(first["embedding"])["normalized"] is True
    db.stop_scoring("inbox", "embedding")
    db.sql(f"INSERT INTO inbox {ROWS} WHERE id = 310")
    (row,) = db.sql("SELECT embedding IS NULL AS bare FROM inbox WHERE id = 310")
    assert row["bare"]


def test_an_insert_never_fails_for_want_of_a_vector(inbox: mmdb.Database) -> None:
    db = inbox
    if not isinstance(db.connection, PostgresConnection):
        return
    for error, column, layer in [
        (errors.CutNotFound, "embedding", "lost"),
        (errors.TargetMismatch, "y", None),
        (errors.UnknownColumn, "z", None),
    ]:
        with pytest.raises(error):
            db.embed_on_insert("inbox", "m", column, layer=layer)
    if is_vector(db):
        with pytest.raises(errors.TargetMismatch, match=r"vector\(5\).*vector\(8\)"):
            db.embed_on_insert("inbox", "m", layer="1")
    with pytest.raises(errors.TargetMismatch, match="no primary key"):
        db.embed_on_insert("points", "m", "y")
    db.set_alias("m@1", "now")
    db.embed_on_insert("inbox", "m@now")
    db.sql("INSERT INTO inbox VALUES (1, '{1, 2}'), (2, '{NaN, 2}'), (3, '{2, 2}')")
    module = mlp(
        (2,), 2, hidden=[7, 6]
    )  # whose vectors the column does not take, where it is typed
    db.save("m", module, architecture="mlp(hidden=[7, 6])", dataset="d")
    db.set_alias("m@2", "now")
    db.sql("INSERT INTO inbox VALUES (4, '{1, 2}')")
    rows = db.sql("SELECT id, embedding IS NULL AS bare FROM inbox ORDER BY id")
    bare = [row["id"] for row in rows if row["bare"]]
    assert bare == ([2, 4] if is_vector(db) else [2])
    failed = db.sql("SELECT row_key FROM mmdb.scoring_failures ORDER BY scoring_failure_id")
    assert failed[0]["row_key"] == "2" and len(failed) == len(bare)
    db.drop_alias("m", "now")
    db.drop_model("m", 2)


def test_the_nearest_rows_are_found_in_sql(db: mmdb.Database) -> None:
    db.embed_into("m", ROWS, "e")
    vectors = written(db)
    near = np.argsort(((vectors - vectors[16]) ** 2).sum(1), kind="stable")[:3] + 1
    if is_vector(db):
        order = "e.embedding OPERATOR(apart.<->) q.embedding"
    elif isinstance(db.connection, PostgresConnection):
        order = "(SELECT sum((x - y) ^ 2) FROM unnest(e.embedding, q.embedding) AS u (x, y))"
    else:
        order = "list_distance(e.embedding, q.embedding)"
    found = db.sql(f"SELECT e.id FROM e, e AS q WHERE q.id = 17 ORDER BY {order}, e.id LIMIT 3")
    assert [row["id"] for row in found] == near.tolist()
