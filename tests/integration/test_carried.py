"""Transforms go wherever a model goes: files, zoos, other databases, replays, cards, lineage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset
from mmdb.graph.tabular import tabular
from mmdb.standards.openlineage_events import lineage_events
from mmdb.store.sync.push_pull import copy_model
from mmdb.train.replay.recipe_replay import recover_module
from mmdb.train.replay.saving import save_candidate
from tests.cluster import Cluster
from tests.integration.test_tables import create, fill
from tests.openlineage_classes import check

SEARCH = {"space": {"lr": 0.01, "batch_size": 64}}
#: Rows that no training saw: NULLs, a category, a tail, numbers and dates that are new.
STRANGE = """
    SELECT id + 1000 AS id, CASE WHEN id % 2 = 0 THEN a * 10 END AS a, b,
    seen + interval '400 days' AS seen, born, clock, took,
    CASE id % 3 WHEN 0 THEN 'pink' WHEN 1 THEN color END AS color, tail || 'x' AS tail, mark, flag,
    price, empty FROM thing WHERE id <= 40
    UNION ALL
    SELECT id, a, b, seen, born, clock, took, color, tail, mark, flag, price, empty
    FROM thing WHERE id <= 60
"""


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[mmdb.Database]:
    """Yield a database with the model `m`, which tests add to."""
    url = f"duckdb:///{tmp_path_factory.mktemp('carried') / 'mmdb.duckdb'}"
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_carried", request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        train(database)
        yield database
    if request.param == "postgres":
        cluster.drop_database("mmdb_carried")


def train(db: mmdb.Database) -> None:
    """Save `m`, trained on raw rows."""
    fill(db)
    create(db, "things", "SELECT * FROM thing")
    how: dict[str, Any] = {"architecture": "tabular", "search": SEARCH, "epochs": 2}
    db.create_run("m", dataset="things", **how).train(workers=1)


def predicted(db: mmdb.Database, model: str, query: str = STRANGE) -> dict[str, dict[str, float]]:
    """Return the probabilities of each row by its key."""
    rows = db.predict_query(model, query, key="id", probabilities=True)
    return {row["key"]: json.loads(row["probabilities"]) for row in rows}


def same(one: dict[str, dict[str, float]], other: dict[str, dict[str, float]]) -> bool:
    return one.keys() == other.keys() and all(
        one[key][name] == pytest.approx(other[key][name], abs=1e-6)
        for key in one
        for name in one[key]
    )


def columns_of(db: mmdb.Database, query: str) -> dict[str, list[Any]]:
    rows = db.sql(query)
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("target", ["folder", "m.safetensors"])
def test_an_exported_model_predicts_raw_rows_without_a_database(
    db: mmdb.Database, tmp_path: Path, target: str
) -> None:
    db.export_model("m", tmp_path / target)
    rows = columns_of(db, STRANGE)
    given = mmdb.read_transforms(tmp_path / target)
    x = given.inputs(rows)
    assert isinstance(x, np.ndarray) and x.dtype == np.float32
    own = find_dataset(db.connection, "things").decoding
    assert given.decoding == own
    about = Path(tmp_path / target)
    weights = about / "model.safetensors" if about.is_dir() else about
    module = tabular(x.shape[1:], 2, columns=_runs(db))
    module.load_state_dict(load_file(weights))
    with torch.no_grad():
        found = torch.softmax(module.eval()(torch.from_numpy(x)), 1).tolist()
    names = [str(name) for name in given.decoding.classes or ()]
    made = {
        str(key): dict(zip(names, row, strict=True))
        for key, row in zip(rows["id"], found, strict=True)
    }
    assert same(made, predicted(db, "m"))


def _runs(db: mmdb.Database) -> Any:
    (row,) = db.sql("SELECT CAST(architecture AS text) AS a FROM mmdb.model_overview")
    return json.loads(row["a"])["arguments"]["columns"]


class Given:
    """The transforms of a model with one input."""

    def __init__(self, path: Path) -> None:
        self.transforms = mmdb.read_transforms(path)

    def inputs(self, rows: Any) -> np.ndarray:
        found = self.transforms.inputs(rows)
        assert isinstance(found, np.ndarray)
        return found


def test_values_are_those_of_python_numpy_and_pandas(db: mmdb.Database, tmp_path: Path) -> None:
    import pandas as pd

    db.export_model("m", tmp_path / "folder")
    given = Given(tmp_path / "folder" / "mmdb.json")
    rows = columns_of(db, STRANGE)
    expected = given.inputs(rows)
    assert np.array_equal(expected, given.inputs(pd.DataFrame(rows)))
    assert np.array_equal(expected, given.inputs(rows | {"seen": _as(rows["seen"], np.datetime64)}))
    assert np.array_equal(expected, given.inputs(rows | {"seen": _as(rows["seen"], str)}))
    missing = given.inputs(rows | {"a": [float("nan")] * 100, "seen": [pd.NaT] * 100})
    nothing = given.inputs(rows | {"a": [None] * 100, "seen": np.full(100, "NaT", "M8[s]")})
    assert np.array_equal(missing, nothing)
    with pytest.raises(errors.InvalidInput, match="lacks a, tail"):
        given.inputs({name: rows[name] for name in rows if name not in ("a", "tail")})
    with pytest.raises(errors.InvalidInput, match="columns have"):
        given.inputs(rows | {"a": [1.0]})
    with pytest.raises(errors.InvalidInput, match="'a' holds"):
        given.inputs(rows | {"a": ["much"] * 100})


def _as(values: list[datetime], kind: Any) -> list[Any]:
    return [kind(value) if kind is np.datetime64 else value.isoformat() for value in values]


def test_transforms_are_read_without_torch(db: mmdb.Database, tmp_path: Path) -> None:
    db.export_model("m", tmp_path / "folder")
    code = (
        "import sys, mmdb; t = mmdb.read_transforms(sys.argv[1]);"
        "names = [c.name for c in t.decoding.features];"
        "print(t.inputs({n: [None] for n in names}).shape, 'torch' in sys.modules)"
    )
    folder = str(tmp_path / "folder")
    done = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, env=os.environ
    )
    assert done.stdout.endswith("False\n"), done.stderr


def test_what_names_no_columns_is_said(db: mmdb.Database, tmp_path: Path) -> None:
    db.save("plain", {"w": torch.ones(3)})
    db.export_model("plain", tmp_path / "plain")
    with pytest.raises(errors.FileNotRead, match="names no columns"):
        mmdb.read_transforms(tmp_path / "plain")
    with pytest.raises(errors.FileNotRead):
        mmdb.read_transforms(tmp_path / "nowhere")
    (tmp_path / "plain" / "mmdb.json").write_text('{"dataset": {"columns": [1]}}')
    with pytest.raises(errors.FileDamaged):
        mmdb.read_transforms(tmp_path / "plain")


@pytest.fixture
def other(
    request: pytest.FixtureRequest, db: mmdb.Database, tmp_path: Path
) -> Iterator[mmdb.Database]:
    """Yield a database on the other engine, with the raw rows and no dataset."""
    url = f"duckdb:///{tmp_path / 'other.duckdb'}"
    if db.connection.engine == "duckdb":
        url = request.getfixturevalue("postgres_url")
    with mmdb.connect(url) as database:
        fill(database)
        yield database


@pytest.mark.parametrize("how", ["folder", "m.safetensors", "zoo", "push"])
def test_a_model_arrives_with_its_transforms_on_the_other_engine_and_goes_back(
    db: mmdb.Database, other: mmdb.Database, tmp_path: Path, how: str
) -> None:
    expected = predicted(db, "m")
    if how == "zoo":
        db.export_zoo(tmp_path / "zoo")
        other.import_zoo(tmp_path / "zoo")
        other.import_zoo(tmp_path / "zoo")
    elif how == "push":
        copy_model(db.connection, other.connection, "m", replay=recover_module)
    else:
        db.export_model("m", tmp_path / how)
        other.import_model(tmp_path / how, "m")
    assert same(predicted(other, "m"), expected)
    shown = other.sql("SELECT * FROM mmdb.transform_overview ORDER BY ordinal")
    assert len(shown) == 14 and "fitted on the train rows" in other.model_card("m")
    one: dict[str, Any] = {"a": None, "color": "pink", "seen": "2014-02-03T04:05:06"}
    one |= {name: None for name in ("b", "born", "clock", "took", "tail", "mark", "flag", "price")}
    assert other.predict("m", one)[0] == pytest.approx(db.predict("m", one)[0], abs=1e-6)
    other.export_model("m", tmp_path / "back")
    db.import_model(tmp_path / "back", "back")
    assert same(predicted(db, "back"), expected)


def broken() -> Iterator[tuple[str, Any]]:
    """Yield what anybody may write into a file: where, and what."""
    yield "columns", []
    yield "columns", 3
    yield "labels", []
    yield "inputs", []
    yield "name", "a\0b"
    yield "content_hash", "no"
    for column in (
        {"kind": "odd"},
        {"width": 2**40},
        {"width": -1},
        {"name": 7},
        {"name": "b"},
        {"transform": {"kind": "robust"}},
    ):
        yield "column", column
    changed: tuple[dict[str, Any], ...] = (
        {"kind": "odd"},
        {"statistics": {}},
        {"statistics": {"missing": 1, "fill": float("nan"), "median": 0.0, "scale": 1.0}},
        {"statistics": {"missing": 1, "fill": "x", "median": 0.0, "scale": 1.0}},
        {"kind": "picture", "source": "picture", "statistics": {"shape": [2**20, 2**20, 3]}},
        {"source": "text", "kind": "hash", "parameters": {"buckets": 2**60}},
        {"source": "text", "kind": "words", "parameters": {"length": 2**40, "buckets": 9}},
        {"source": "text", "kind": "one_hot", "categories": ["\0"]},
        {"source": "text", "kind": "one_hot", "categories": ["\ud800"]},
    )
    for transform in changed:
        yield "transform", transform


def test_columns_of_ill_will_are_refused_and_leave_nothing(
    db: mmdb.Database, tmp_path: Path
) -> None:
    db.export_model("m", tmp_path / "folder")
    file = tmp_path / "folder" / "mmdb.json"
    text = file.read_text()
    before = db.sql("SELECT count(*) AS n FROM mmdb.dataset_overview")
    for where, what in broken():
        own = json.loads(text)
        found = own["dataset"]
        column = next(c for c in found["columns"] if c["name"] == "a")
        if where == "column":
            column |= what
        elif where == "transform":
            column["transform"] |= what
        else:
            found[where] = what
        file.write_text(json.dumps(own))
        with pytest.raises(errors.FileDamaged):
            db.import_model(tmp_path / "folder", "x")
    own = json.loads(text)
    tail = next(c for c in own["dataset"]["columns"] if c["name"] == "tail")
    tail["transform"]["categories"] = sorted({*tail["transform"]["categories"], "n1000"})
    file.write_text(json.dumps(own))
    with pytest.raises(errors.MmdbError):
        mmdb.read_transforms(tmp_path / "folder" / "nothing.json")
    assert db.sql("SELECT count(*) AS n FROM mmdb.dataset_overview") == before
    # A hash that is another content's is not believed.
    db.import_model(tmp_path / "folder", "x")
    (row,) = db.sql(
        "SELECT d.content_hash FROM mmdb.model AS m JOIN mmdb.dataset AS d"
        " ON d.dataset_id = m.dataset_id WHERE m.name = 'x'"
    )
    assert bytes(row["content_hash"]).hex() != own["dataset"]["content_hash"]


def test_a_recipe_gives_the_same_bits_and_the_same_predictions(db: mmdb.Database) -> None:
    candidate = db.run("m").leaderboard()[0]["candidate_id"]
    save_candidate(db.connection, candidate, "kept", approach="provenance")
    own, again = db.recover("m").state_dict(), db.recover("kept").state_dict()
    assert db.sql("SELECT approach FROM mmdb.model WHERE name = 'kept'") == [
        {"approach": "provenance"}
    ]
    assert own.keys() == again.keys()
    assert all(torch.equal(own[path], again[path]) for path in own)
    assert predicted(db, "kept") == predicted(db, "m")


def test_lineage_names_the_columns_and_events_what_they_become(db: mmdb.Database) -> None:
    names = {row["parent"].rpartition(".")[2] for row in db.lineage("m")}
    assert names >= {"a", "seen", "color", "tail", "y"}
    events = list(lineage_events(db.connection, "m"))
    found = [event for event in events if event["job"]["name"] == "dataset.things"]
    for event in found:
        check(event)
    fields = found[-1]["outputs"][0]["facets"]["columnLineage"]["fields"]
    how = {name: field["inputFields"][0]["transformations"] for name, field in fields.items()}
    (robust,), (plain,) = how["a"], how["y"]
    assert robust["subtype"] == "TRANSFORMATION"
    assert robust["description"].startswith("robust: less the median ")
    assert plain == {"type": "DIRECT"}
    card = db.model_card("m")
    assert "| tail | categorical | index | a code for each of " in card
    assert "| a | numeric | robust | less the median " in card


def test_a_plan_of_a_run_on_raw_rows_says_what_each_way_takes(db: mmdb.Database) -> None:
    run = db.create_run("planned", dataset="things", architecture="tabular", search=SEARCH)
    ways = run.explain({"strategies": ["mop", "task"]}).estimates
    assert {way["strategy"] for way in ways} >= {"mop", "task"}
