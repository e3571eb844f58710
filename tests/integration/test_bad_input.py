"""A mistake is refused by name, with a hint, by both engines and both ways in; nothing changes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db.check import shown
from mmdb.server.calls import declarations, duckdb_type
from tests.cluster import Cluster

Case = tuple[str, dict[str, Any], type[errors.MmdbError], str]
QUERY = "SELECT a, b, y FROM points"
ROWS = 60


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a database with a trained run `r`, a run `s` that is not, and a model `r`."""
    folder = tmp_path_factory.mktemp("bad")
    url = f"duckdb:///{folder}/zoo.duckdb"
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_bad_input", request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        fill(database)
        yield database
    if request.param == "postgres":
        cluster.drop_database("mmdb_bad_input")


def fill(db: Database) -> None:
    db.sql(
        "CREATE TABLE points AS SELECT i AS id, (i / 7.0)::real AS a, (i % 5)::real AS b, "
        "i % 2 AS y, CASE WHEN i % 3 = 0 THEN 'red' ELSE 'blue' END AS color, "
        "CASE WHEN i > 9 THEN i END AS gaps "
        f"FROM generate_series(1, {ROWS}) AS g (i)"
    )
    if db.connection.engine == "postgres":
        db.sql(
            "CREATE FUNCTION add_point(integer) RETURNS real LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO points (a) VALUES (1); RETURN 1; END $$"
        )
    for name in ("raises", "exits", "nothing", "one_output_more", "keeps_text"):
        db.register_factory(name, f"tests.broken:{name}")
    db.create_dataset("d", "SELECT a, color, y FROM points", partitions=2)
    db.create_dataset("other", "SELECT a, y FROM points", partitions=1)
    db.create_dataset("gone", QUERY, partitions=1)
    db.create_run("on-gone", dataset="gone", architecture="linear")
    db.drop_dataset("gone", force=True)
    db.create_run("s", dataset="d", architecture="linear", epochs=2)
    db.create_run("r", dataset="d", architecture="linear").train(workers=1)


def contents(db: Database) -> dict[str, int]:
    """Return the number of rows of every table, of mmdb and of the user."""
    tables = db.sql(
        "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables WHERE "
        "table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')"
    )
    each = (f"SELECT '{row['name']}' AS name, count(*) AS n FROM {row['name']}" for row in tables)
    counted = {row["name"]: int(row["n"]) for row in db.sql(" UNION ALL ".join(each))}
    assert "mmdb.hop" in counted and any(name.endswith(".points") for name in counted)
    return counted


def call(db: Database, how: str, function: str, arguments: dict[str, Any]) -> Any:
    """Call a function of mmdb by the Python API or in SQL, by argument names."""
    if how == "python":
        return getattr(db, function)(**arguments)
    declared = [d for d in declarations() if d.name == function][-1]  # of overloads, the json one
    types = {argument.name: argument.type for argument in declared.arguments}
    postgres = db.connection.engine == "postgres"
    items, values = [], {}
    for name, value in arguments.items():
        structured = isinstance(value, dict | list)
        mark = f"%({name})s::{types[name]}" if postgres else f"${name}::{duckdb_type(types[name])}"
        items.append(f"{name} => {mark}")
        values[name] = json.dumps(value) if structured else value
    invoked = f"mmdb.{function}({', '.join(items)})"
    return db.sql(f"SELECT {'* FROM ' * declared.is_set}{invoked}", values)


def space(**dimensions: Any) -> dict[str, Any]:
    return {"space": dimensions}


def dataset(error: type[errors.MmdbError], named: str, query: str = QUERY, **more: Any) -> Case:
    return "create_dataset", {"name": "new", "query": query} | more, error, named


def run(error: type[errors.MmdbError], named: str, **more: Any) -> Case:
    arguments = {"name": "new", "dataset": "d", "architecture": "linear"} | more
    return "create_run", arguments, error, named


def search(error: type[errors.MmdbError], named: str, **dimensions: Any) -> Case:
    return run(error, named, search=space(**dimensions))


def drawn(named: str, **dimensions: Any) -> Case:
    given = {"method": "random"} | space(**dimensions)
    return run(errors.InvalidHyperparameter, named, search=given)


def predict(error: type[errors.MmdbError], named: str, x: Any, model: str = "r") -> Case:
    return "predict", {"model": model, "x": x}, error, named


BAD_HYPER = errors.InvalidHyperparameter
WRITES = errors.NotASelect

REFUSED: list[Case] = [
    # the query
    dataset(errors.NotOneStatement, "2 statements", f"{QUERY}; DELETE FROM points"),
    dataset(errors.NotOneStatement, "no statement", ""),
    dataset(WRITES, "INSERT", "INSERT INTO points (y) VALUES (1) RETURNING a, y"),
    dataset(WRITES, "UPDATE", "UPDATE points SET y = 1"),
    dataset(WRITES, "DELETE", "DELETE FROM points"),
    dataset(WRITES, "DELETE", "WITH x AS (DELETE FROM points RETURNING a, y) SELECT * FROM x"),
    dataset(WRITES, "INTO", "SELECT a, y INTO stolen FROM points"),
    dataset(WRITES, "CREATE", "CREATE TABLE stolen AS SELECT a, y FROM points"),
    dataset(WRITES, "schema mmdb", "SELECT mmdb.drop_dataset('other', true) AS a, y FROM points"),
    dataset(WRITES, "schema mmdb", "SELECT _mmdb_drop_dataset('other', true) AS a, y FROM points"),
    dataset(errors.QueryError, "line 1", "SELECT a, y FROM points) AS q; DROP TABLE points; --"),
    dataset(errors.QueryError, "nested", f"SELECT a, y FROM points WHERE {'(' * 5000}{')' * 5000}"),
    dataset(errors.QueryFailed, "nofunction", "SELECT nofunction(a) AS a, y FROM points"),
    dataset(errors.UnknownTable, "nowhere", "SELECT * FROM nowhere"),
    dataset(errors.UnknownColumn, "nothing", "SELECT nothing, y FROM points"),
    dataset(errors.QueryError, "two columns named 'a'", "SELECT a, a, y FROM points"),
    dataset(errors.UnknownColumn, "'z'", label="z"),
    dataset(errors.UnknownColumn, "DROP", label='y"; DROP TABLE points; --'),
    # the rows
    dataset(errors.NullValues, r"gaps \(9\)", "SELECT a, gaps FROM points", label="gaps"),
    dataset(
        errors.RaggedArray,
        "'v'",
        "SELECT CASE WHEN id > 5 THEN ARRAY[a] ELSE ARRAY[a, b] END AS v, y FROM points",
    ),
    dataset(errors.RaggedArray, "'v'", "SELECT ARRAY[]::real[] AS v, y FROM points"),
    dataset(errors.OneClass, "'y'", "SELECT a, 1 AS y FROM points"),
    dataset(errors.TooFewRows, f"{ROWS} rows", partitions=ROWS, validation=0.2),
    dataset(errors.TooFewRows, "no rows", "SELECT a, y FROM points WHERE id < 0"),
    dataset(errors.DataError, "no feature", "SELECT y FROM points"),
    dataset(errors.UnsupportedType, "'t'", "SELECT ARRAY['x'] AS t, y FROM points"),
    # names and options
    dataset(errors.AlreadyExists, "'d'", name="d"),
    dataset(errors.InvalidName, "a b", name="a b"),
    dataset(errors.InvalidOption, "partitions", partitions=0),
    dataset(errors.InvalidOption, "partitions is NULL", partitions=None),
    dataset(errors.InvalidOption, "validation", validation=-0.5),
    dataset(errors.InvalidOption, "validation", validation=math.nan),
    dataset(errors.InvalidOption, "validation is NULL", validation=None),
    dataset(errors.InvalidOption, "seed is NULL", seed=None),
    dataset(errors.InvalidOption, "task", options={"task": "ranking"}),
    dataset(errors.InvalidOption, "colour", options={"colour": 1}),
    dataset(errors.InvalidOption, "shape", options={"shape": [2**62, 2]}),
    run(errors.AlreadyExists, "'r'", name="r"),
    run(errors.InvalidName, "drop", name="a'; drop table points; --"),
    run(errors.InvalidName, "grün", name="grün"),
    run(errors.InvalidName, "xxx", name="x" * 201),
    run(errors.InvalidOption, "epochs is 0", epochs=0),
    run(errors.InvalidOption, "seed is NULL", seed=None),
    run(errors.InvalidOption, "horovod", strategy="horovod"),
    run(errors.InvalidOption, "strategy is NULL", strategy=None),
    run(errors.InvalidOption, "warm_start is NULL", warm_start=None),
    run(errors.DatasetNotFound, "dataset NULL", dataset=None),
    run(errors.InvalidOption, "strategy is", strategy=["mop"]),
    run(errors.ModelNotFound, "warm_start is 'nothing'", warm_start="nothing"),
    run(errors.ModelNotFound, "warm_start", warm_start="x'; DROP TABLE points; --"),
    run(errors.InvalidOption, "'off'", options={"warm_start": {}}),
    run(errors.InvalidOption, "warm_start", warm_start="auto", options={"warm_start": 0.5}),
    run(errors.InvalidOption, "colour", warm_start="auto", options={"warm_start": {"colour": 1}}),
    run(errors.InvalidOption, "shrink", warm_start="auto", options={"warm_start": {"shrink": 2}}),
    run(errors.InvalidOption, "colour", options={"colour": 1}),
    run(errors.InvalidOption, "order", options={"order": ["free"]}),
    run(errors.InvalidOption, "checkpoint", options={"checkpoint": "never"}),
    run(errors.InvalidOption, "hop_limit_s", options={"hop_limit_s": 0}),
    run(errors.InvalidOption, "budget_s", options={"budget_s": -1}),
    run(errors.InvalidOption, "budget", budget="5 parsecs"),
    run(errors.InvalidOption, "priority", options={"priority": 6}),
    run(errors.InvalidOption, "group", options={"group": 2}),
    run(errors.InvalidOption, "group", strategy="data_parallel", options={"group": 1}),
    run(errors.InvalidOption, "order", strategy="model_average", options={"order": "fixed"}),
    run(errors.InvalidOption, "speed", options={"metric": "speed"}),
    run(errors.InvalidOption, "metrics", options={"metrics": "accuracy"}),
    run(errors.InvalidOption, "patience", options={"patience": 0}),
    run(errors.DatasetNotFound, "OR", dataset="d' OR '1'='1"),
    run(errors.DatasetDropped, "'gone'", dataset="gone"),
    # architectures
    run(errors.UnknownFactory, "lstm", architecture="lstm"),
    run(errors.FactoryNotAllowed, "os:system", architecture="os:system"),
    run(errors.FactoryNotAllowed, "os:system", architecture='{"factory": "os:system"}'),
    run(errors.FactoryFailed, "KeyError.*no luck", architecture="raises"),
    run(errors.FactoryFailed, "SystemExit: no GPU", architecture="exits"),
    run(errors.FactoryFailed, "NoneType", architecture="nothing"),
    run(errors.FactoryFailed, "'nan' is no literal", architecture="mlp(dropout=nan)"),
    run(errors.FactoryFailed, "no tensor", architecture="keeps_text"),
    run(errors.FactoryFailed, "colour", architecture="mlp(colour=1)"),
    run(errors.FactoryFailed, "hidden", architecture="mlp(hidden=-1)"),
    run(errors.FactoryFailed, "images", architecture="cnn"),
    run(errors.OutputMismatch, r"\(2, 3\)", architecture="one_output_more"),
    run(errors.InvalidLayerGraph, "not JSON", architecture='{"layers": ['),
    run(errors.InvalidLayerGraph, "recursion", architecture='{"layers":' + "[" * 100_000),
    run(errors.InvalidLayerGraph, "1 to 10000", architecture='{"layers": []}'),
    # search
    run(errors.InvalidOption, "tpe", search={"method": ["tpe"]}),
    run(errors.InvalidOption, "annealing", search={"method": "annealing"}),
    run(errors.InvalidOption, "trials", search={"method": "grid", "trials": 3}),
    run(errors.InvalidOption, "eta", search={"method": "asha", "eta": 1}),
    run(errors.InvalidOption, "population", search={"method": "pbt", "space": {"lr": [0.1, 0.2]},
                                                    "population": 1}),
    run(errors.EmptySearch, "constraint", search={"space": {"lr": [0.1]},
                                                  "constraints": [["lr", ">", 1]]}),
    run(errors.InvalidOption, "colour", search={"colour": 1}),
    run(errors.InvalidOption, "not a", search=[1]),
    run(errors.InvalidOption, "object", search={"space": [1]}),
    run(errors.InvalidOption, "most", search={"method": "random", "trials": 10**12}),
    run(errors.EmptySearch, "trials", search={"method": "random", "trials": 0}),
    search(errors.EmptySearch, "'lr'", lr=[]),
    search(errors.InvalidOption, "1000000000", lr=[*range(1000)], loss=[*range(1000)],
           schedule=[*range(1000)]),
    search(BAD_HYPER, "learning_rate", learning_rate=[0.1]),
    search(BAD_HYPER, "lr is 'fast'", lr=["fast"]),
    search(BAD_HYPER, "lr is True", lr=[True]),
    search(BAD_HYPER, "lr is -1", lr=[0.1, -1]),
    search(BAD_HYPER, r"lr is about 1e400\.\n", lr=[10**400]),
    search(BAD_HYPER, "batch_size is 0", batch_size=[0]),
    search(BAD_HYPER, "batch_size is 1000", batch_size=[10**30]),
    search(BAD_HYPER, "loss is", loss=[["mse"]]),
    search(BAD_HYPER, "mse", loss=["mse"]),
    search(BAD_HYPER, "lion", optimizer=["lion"]),
    search(BAD_HYPER, "optimizer is", optimizer=[{"name": ["adam"]}]),
    search(BAD_HYPER, "beta", optimizer=[{"name": "adam", "beta": 1}]),
    search(BAD_HYPER, "'adam'", optimizer=[{"name": "adam", "betas": [0.9]}]),
    search(BAD_HYPER, "'step'", schedule=[{"name": "step", "step_size": 0}]),
    search(BAD_HYPER, "last_epoch", schedule=[{"name": "step", "step_size": 1, "last_epoch": 5}]),
    search(BAD_HYPER, "day", schedule=[{"name": "step", "step_size": 1, "per": "day"}]),
    search(errors.FactoryFailed, "colour", **{"architecture.colour": [1]}),
    search(BAD_HYPER, "range", lr={"low": 0.1, "high": 1}),
    drawn("lr", lr={"low": 1, "high": 10**400}),
    drawn("lr", lr={"low": 2, "high": 1}),
    drawn("lr", lr={"low": 1, "high": 3, "whole": "no"}),
    drawn("lr", lr={"low": 0, "high": 1, "log": True}),
    drawn("batch_size", batch_size={"low": 1.2, "high": 1.7, "whole": True}),
    # models
    predict(errors.ModelNotFound, "nope", [1.0], model="nope"),
    predict(errors.ModelNotFound, "r@9", [1.0], model="r@9"),
    predict(errors.ModelNotFound, "r@99", [1.0], model="r@" + "9" * 5000),
    predict(errors.InvalidInput, "2 values; 3 values", [1.0, 2.0, 3.0]),
    predict(errors.InvalidInput, "'color'", [1.0, [2.0]]),
    predict(errors.InvalidInput, "color", {"a": 1.0}),
    predict(errors.InvalidInput, "'a'", {"a": "much", "color": "red"}),
    predict(errors.InvalidInput, "'a'", {"a": 10**400, "color": "red"}),
    predict(errors.InvalidInput, "'a'", {"a": [1, 2], "color": "red"}),
    ("predict_query", {"model": "r", "query": "SELECT id, a FROM points"},
     errors.UnknownColumn, "'color'"),
    ("predict_query", {"model": "r", "query": "SELECT a, color FROM points"},
     errors.UnknownColumn, "'id'"),
    ("predict_query", {"model": "r", "query": "SELECT id, 'NaN'::real AS a, color FROM points"},
     errors.NotFinite, "NaN"),
    ("predict_query", {"model": "r", "query": "DELETE FROM points"}, WRITES, "DELETE"),
    ("evaluate", {"model": "r", "data": "other"}, errors.InvalidInput, "'color'"),
    ("evaluate", {"model": "r", "data": "gone"}, errors.DatasetDropped, "'gone'"),
    ("evaluate", {"model": "r", "data": "nope"}, errors.DatasetNotFound, "'nope'"),
    ("save_candidate", {"candidate_id": 999, "name": "x"}, errors.CandidateNotFound, "999"),
    ("save_candidate", {"candidate_id": 1, "name": "a b"}, errors.InvalidName, "a b"),
    ("save_candidate", {"candidate_id": 2, "name": "x"}, errors.StateNotFound, "2"),
    ("register_factory", {"name": "f", "target": "os"}, errors.FactoryFailed, "'os'"),
    ("register_factory", {"name": "f", "target": "os:sep"}, errors.FactoryFailed, "called"),
    ("register_factory", {"name": "f", "target": "nomodule:f"}, errors.FactoryFailed, "nomodule"),
    ("register_factory", {"name": "mlp", "target": "os:system"}, errors.AlreadyExists, "'mlp'"),
    ("drop_dataset", {"name": "nope"}, errors.DatasetNotFound, "'nope'"),
    ("drop_dataset", {"name": "d"}, errors.DatasetInUse, "'r'|'s'"),
    ("drop_dataset", {"name": "gone"}, errors.DatasetNotFound, "'gone'"),
    ("drop_dataset", {"name": "other", "force": None}, errors.InvalidOption, "force is NULL"),
    ("drop_run", {"run": "nope"}, errors.RunNotFound, "'nope'"),
    ("stop_candidate", {"candidate_id": 999}, errors.CandidateNotFound, "999"),
]  # fmt: skip


def described(case: object) -> str | None:
    if isinstance(case, dict):
        return str([*case.values()][-1])[:40]
    return getattr(case, "__name__", None) or str(case)[:20]


@pytest.mark.parametrize("how", ["python", "sql"])
@pytest.mark.parametrize(("function", "arguments", "error", "named"), REFUSED, ids=described)
def test_a_mistake_is_refused_by_its_own_class_and_changes_nothing(
    db: Database,
    how: str,
    function: str,
    arguments: dict[str, Any],
    error: type[errors.MmdbError],
    named: str,
) -> None:
    before = contents(db)
    with pytest.raises(error, match=f"(?s){named}") as raised:
        call(db, how, function, arguments)
    assert type(raised.value) is error
    assert raised.value.hint not in ("", "None")
    assert "None" not in raised.value.message or "NoneType" in named
    assert contents(db) == before


#: What SQL's types cannot hold, or what its own parser refuses.
PYTHON_ONLY: list[Case] = [
    run(errors.InvalidOption, "epochs", epochs="abc"),
    run(errors.InvalidOption, "epochs", epochs=2**40),
    run(errors.InvalidOption, "seed", seed=2**63),
    run(errors.InvalidName, "NULL cannot", name=None),
    run(errors.InvalidName, "x00", name="a\0b"),
    run(errors.InvalidLayerGraph, "set", architecture={"factory": "mlp", "arguments": {"a": {1}}}),
    search(errors.InvalidOption, "JSON", lr=[math.nan]),
    search(errors.InvalidOption, "JSON", lr={1, 2}),
    search(errors.InvalidOption, "JSON", loss=["\ud800"]),
    dataset(errors.QueryError, "NULL", query=None),  # type: ignore[arg-type]
    dataset(errors.InvalidOption, "seed", seed=2**63),
    predict(errors.InvalidInput, "JSON", [math.nan, 1.0, 0.0]),
    predict(errors.InvalidInput, "'a'", ["a", 1.0]),
    predict(errors.InvalidInput, "NULL", None),
    predict(errors.ModelNotFound, "no model NULL", [1.0], model=None),  # type: ignore[arg-type]
    ("drop_dataset", {"name": "other", "force": "no"}, errors.InvalidOption, "force is 'no'"),
    ("stop_candidate", {"candidate_id": "1; drop"}, errors.InvalidOption, "'1; drop'"),
    ("stop_candidate", {"candidate_id": True}, errors.InvalidOption, "True"),
    ("stop_candidate", {"candidate_id": 10**30}, errors.CandidateNotFound, "10000"),
    ("resume_candidate", {"candidate_id": None}, errors.InvalidOption, "NULL"),
    ("clone_candidate", {"candidate_id": 2**70, "config": {}}, errors.CandidateNotFound, "1180"),
    ("save_candidate", {"candidate_id": 1.5, "name": "x"}, errors.InvalidOption, "1.5"),
    ("run", {"name": None}, errors.RunNotFound, "no run named NULL"),
    ("note", {"model": "r", "note": None}, errors.InvalidOption, "empty"),
]


@pytest.mark.parametrize(("function", "arguments", "error", "named"), PYTHON_ONLY, ids=described)
def test_a_value_of_a_wrong_python_type_is_refused(
    db: Database,
    function: str,
    arguments: dict[str, Any],
    error: type[errors.MmdbError],
    named: str,
) -> None:
    test_a_mistake_is_refused_by_its_own_class_and_changes_nothing(
        db, "python", function, arguments, error, named
    )


SQL_ONLY: list[tuple[str, type[errors.MmdbError], str]] = [
    ("SELECT * FROM mmdb.create_run('n', 'd', 'linear', '{bad')", errors.InvalidOption, "(?i)json"),
    ("SELECT * FROM mmdb.create_run('n', 'd', 'linear', NULL)", errors.InvalidOption, "search"),
    ("SELECT * FROM mmdb.train_hop(999, 1)", errors.PartitionNotFound, "999"),
    ("SELECT * FROM mmdb.train_hop(1, 999)", errors.CandidateNotFound, "999"),
    ("SELECT * FROM mmdb.train_hop(NULL, NULL)", errors.CandidateNotFound, "Candidate NULL"),
    ("SELECT mmdb.predict('r', ARRAY['NaN'::real, 1, 0])", errors.InvalidInput, "2 values; 3"),
    ("SELECT mmdb.predict('r', NULL::real[])", errors.InvalidInput, "NULL"),
    ("SELECT mmdb.note_model('r', NULL)", errors.InvalidOption, "empty"),
    ("SELECT * FROM mmdb.drop_model(NULL, 1)", errors.ModelNotFound, "no model NULL"),
    ("SELECT * FROM mmdb.train_group(ARRAY[1], 1, 0, '{}')", errors.InvalidOption, "member is"),
]


@pytest.mark.parametrize(("statement", "error", "named"), SQL_ONLY)
def test_a_mistake_in_sql_is_refused(
    db: Database, statement: str, error: type[errors.MmdbError], named: str
) -> None:
    before = contents(db)
    with pytest.raises(error, match=named) as raised:
        db.sql(statement)
    assert type(raised.value) is error
    assert raised.value.hint not in ("", "None")
    assert contents(db) == before


def parts_of(db: Database, run: str) -> tuple[int, list[int]]:
    """Return a run's candidate and the ids of its partitions, validation last."""
    (row,) = db.sql(f"SELECT candidate_id FROM mmdb.leaderboard WHERE run = '{run}'")
    parts = db.sql(
        "SELECT p.part_id FROM mmdb.partition_overview p JOIN mmdb.dataset_overview d "
        "ON d.name = p.dataset WHERE p.dataset = 'd' ORDER BY p.role, p.ordinal"
    )
    return int(row["candidate_id"]), [int(p["part_id"]) for p in parts]


def test_a_hop_out_of_turn_is_refused_with_the_hop_whose_turn_it_is(db: Database) -> None:
    candidate, (first, second, held_out) = parts_of(db, "s")
    before = contents(db)
    refused = []
    for part, epoch in [(held_out, 0), (first, 1), (second, 1), (first, 7), (first, -1),
                        (first, -(2**31)), (first, 2**31 - 1)]:  # fmt: skip
        with pytest.raises(errors.OutOfTurn, match=f"partition {part}") as raised:
            db.sql(f"SELECT * FROM mmdb.train_hop({part}, {candidate}, {epoch})")
        refused.append(raised.value.hint)
    assert len(set(refused)) == 1 and "epoch 0" in refused[0]
    assert contents(db) == before
    done, _ = parts_of(db, "r")
    with pytest.raises(errors.OutOfTurn, match="all its 1 epochs"):
        db.sql(f"SELECT * FROM mmdb.train_hop({first}, {done}, 1)")
    assert contents(db) == before


def test_nothing_is_trained_on_a_dropped_dataset(db: Database) -> None:
    before = contents(db)
    with pytest.raises(errors.DatasetDropped, match="gone"):
        db.run("on-gone").train(workers=1)
    (row,) = db.sql("SELECT candidate_id FROM mmdb.leaderboard WHERE run = 'on-gone'")
    (part, *_) = db.sql("SELECT part_id FROM mmdb.partition_overview WHERE dataset = 'gone'")
    with pytest.raises(errors.DatasetDropped, match="gone"):
        db.sql(f"SELECT * FROM mmdb.train_hop({part['part_id']}, {row['candidate_id']})")
    assert contents(db) == before


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, "2"])
def test_a_number_of_workers_that_is_none_is_refused(db: Database, workers: Any) -> None:
    before = contents(db)
    with pytest.raises(errors.InvalidOption, match="workers"):
        db.run("s").train(workers=workers)
    assert contents(db) == before


def test_too_few_workers_for_a_group_are_counted(db: Database) -> None:
    given = {"strategy": "data_parallel", "options": {"group": 3}}
    run = db.create_run("grouped", dataset="d", architecture="linear", **given)  # type: ignore[arg-type]
    for workers, said in ((1, "there is 1"), (2, "there are 2")):
        with pytest.raises(errors.InvalidOption, match=said):
            run.train(workers=workers)


def test_what_is_no_number_of_seconds_and_no_folder_is_refused(db: Database) -> None:
    for timeout in ("x", math.nan, -1, True):
        with pytest.raises(errors.InvalidOption, match="timeout_s is") as raised:
            db.run("s").wait(timeout_s=timeout)  # type: ignore[arg-type]
        assert "seconds" in raised.value.hint
    for folder in (None, 3, ""):
        with pytest.raises(errors.InvalidOption, match="folder is") as raised:
            db.run("r").tensorboard(folder)  # type: ignore[arg-type]
        assert "path" in raised.value.hint


def test_an_empty_statement_returns_no_rows(db: Database) -> None:
    assert db.sql("") == db.sql(" -- nothing") == []


def test_an_unknown_run_is_not_found(db: Database) -> None:
    with pytest.raises(errors.RunNotFound, match="nope"):
        db.run("nope")
    if db.connection.engine == "duckdb":
        with pytest.raises(errors.RunNotFound, match="nope"):
            db.sql("SELECT mmdb.train('nope')")


def test_training_inside_a_transaction_is_refused_and_leaves_it_open(db: Database) -> None:
    db.sql("BEGIN")
    db.sql("CREATE TABLE scratch (a integer)")
    with pytest.raises(errors.InTransaction) as raised:
        db.run("s").train(workers=1)
    assert "outside BEGIN" in raised.value.hint
    with pytest.raises(errors.InTransaction):
        db.create_dataset("new", QUERY)
    db.sql("INSERT INTO scratch VALUES (1)")
    db.sql("ROLLBACK")
    assert not any("scratch" in name for name in contents(db))


# -- PostgreSQL alone ---------------------------------------------------------


@pytest.mark.parametrize("db", ["postgres"], indirect=True)
def test_a_function_that_writes_is_refused_by_postgres(db: Database) -> None:
    before = contents(db)
    for how in ("python", "sql"):
        query = "SELECT add_point(id) AS a, y FROM points"
        with pytest.raises(errors.NotASelect):
            call(db, how, "create_dataset", {"name": "new", "query": query})
        assert contents(db) == before


@pytest.mark.parametrize("db", ["postgres"], indirect=True)
def test_train_in_sql_needs_the_owners_login_and_no_transaction(db: Database) -> None:
    with pytest.raises(errors.NoWorkerLogin) as raised:
        db.sql("CALL mmdb.train('s')")
    assert "worker_dsn" in raised.value.hint
    dsn = {"dsn": shown(db.connection.url)}
    db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
    db.sql("BEGIN")
    with pytest.raises(errors.InTransaction):
        db.sql("CALL mmdb.train('s')")
    db.sql("ROLLBACK")
    with pytest.raises(errors.RunNotFound, match="nope"):
        db.sql("CALL mmdb.train('nope')")
    with pytest.raises(errors.InvalidOption, match="workers"):
        db.sql("CALL mmdb.train('s', 0)")
    nowhere = {"dsn": "postgresql://nobody@127.0.0.1:1/none"}
    db.sql("UPDATE mmdb.setting SET value = %(dsn)s WHERE name = 'worker_dsn'", nowhere)
    with pytest.raises(errors.WrongUrl, match="'worker_dsn' does not work") as wrong:
        db.sql("CALL mmdb.train('s')")
    assert "docs/running.md" in wrong.value.hint
    db.sql("DELETE FROM mmdb.setting WHERE name = 'worker_dsn'")


# -- connecting ---------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "zoo.duckdb",
        "mysql://user:secret@host/database",
        "http://[::1",
        "duckdb:////nowhere/at/all/zoo.duckdb",
        "duckdb:///zoo.duckdb?access_mode=read_only",
        "duckdb:////nowhere/clock/zoo.duckdb",  # no lock: the folder is not there
        "postgresql://user:secret@127.0.0.1:1/database",
        "postgresql://user:secret@127.0.0.1:port/database",
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(errors.WrongUrl) as raised:
        mmdb.connect(url)
    assert "secret" not in str(raised.value)
    assert raised.value.hint


HALF = "\ud800"  # a lone surrogate: no database and no file holds it
WRONG_TYPES: list[tuple[str, dict[str, Any], str]] = [
    ("refresh_dataset", {"name": "keyed", "grows": 5}, "grows is 5"),
    ("refresh_dataset", {"name": "keyed", "grows": HALF}, r"grows is '\\ud800'|no column"),
    ("forget", {"dataset": "keyed", "condition": HALF}, r"condition is '\\ud800'"),
    ("evaluate", {"model": "r", "data": "d", "metrics": 5}, "metrics is 5"),
    ("evaluate", {"model": "r", "data": "d", "metrics": []}, r"metrics is \[\]"),
    ("compare_models", {"a": "r", "b": "r", "data": "d", "metrics": 5}, "metrics is 5"),
    (
        "predict_query",
        {"model": "r", "query": "SELECT id, a, color FROM points", "probabilities": None},
        "probabilities is NULL",
    ),
    ("export_model", {"model": "r", "max_shard_bytes": None}, "max_shard_bytes is NULL"),
    ("export_model", {"model": "r", "target": 5}, "target is 5"),
    ("sql", {"statement": HALF}, r"statement is '\\ud800'"),
    ("save_probe", {"name": "p", "summary": 5}, "summary is 5"),
    ("save_probe", {"name": "p", "summary": 5, "model": HALF}, "summary is 5"),
    ("save", {"name": "n", "module": nn.Linear(2, 1), "provenance": 5}, "provenance is 5"),
    ("evaluate", {"model": "r", "data": "d", "metrics": {"a": object()}}, "metrics holds"),
    ("forget", {"dataset": "keyed", "condition": "id = 1", "note": 5}, "note is 5"),
    ("calibrate_model", {"model": {5: 5}, "data": "d"}, "model is {5: 5}"),
    ("calibrate_model", {"model": "r", "data": "d", "positive": HALF}, "positive is"),
    ("calibration", {"model": "r", "data": "d", "bins": [5]}, r"bins is \[5\]"),
    ("lineage", {"entity": HALF}, r"entity is '\\ud800'"),
    ("drop_alias", {"model": HALF, "alias": "a"}, r"model is '\\ud800'"),
    ("transformed", {"dataset": "d", "row_count": True}, "row_count is True"),
]


@pytest.fixture(scope="module")
def keyed(db: Database) -> Database:
    """Return the database with a dataset that has a key."""
    db.create_dataset("keyed", "SELECT id, a, y FROM points", options={"roles": {"id": "key"}})
    return db


@pytest.mark.parametrize(("function", "given", "named"), WRONG_TYPES)
def test_a_value_of_a_wrong_type_is_named(
    keyed: Database, function: str, given: dict[str, Any], named: str, tmp_path: Path
) -> None:
    given = ({"target": tmp_path / "model"} if function == "export_model" else {}) | given
    before = contents(keyed)
    with pytest.raises(errors.InputError, match=named) as raised:
        getattr(keyed, function)(**given)
    assert raised.value.hint
    assert contents(keyed) == before


def test_a_note_of_a_wrong_type_is_named(keyed: Database) -> None:
    with pytest.raises(errors.InvalidOption, match=r"note is '\\ud800'"):
        keyed.forget("keyed", "id = 1", note=HALF)


def test_what_watches_a_run_is_named_where_it_is_none(db: Database) -> None:
    with pytest.raises(errors.InvalidOption, match="watch is 5") as raised:
        db.run("s").train(workers=1, watch=5)  # type: ignore[arg-type]
    assert raised.value.hint == "It is a Watch or None."


def test_an_error_of_python_that_no_argument_explains_is_left_as_it_is(db: Database) -> None:
    def interrupt(sent: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db.push("r", to="duckdb://", on_progress=interrupt)
    with pytest.raises(TypeError, match="colour"):
        db.predict("r", [1, "red"], colour=1)  # type: ignore[call-arg]


def test_a_database_or_password_that_is_wrong_is_named(postgres_url: str) -> None:
    with pytest.raises(errors.WrongUrl, match='"nodatabase"'):
        mmdb.connect(postgres_url.rpartition("/")[0] + "/nodatabase")
    head, _, tail = postgres_url.partition("@")
    with pytest.raises(errors.WrongUrl, match="password"):
        mmdb.connect(f"{head}wrong@{tail}")


def test_one_url_to_read_from_is_no_list_of_letters(postgres_url: str) -> None:
    with pytest.raises(errors.WrongUrl, match="'ftp://host'"):
        mmdb.connect(postgres_url, reads="ftp://host")
    with pytest.raises(errors.InvalidOption, match="reads is 5"):
        mmdb.connect(postgres_url, reads=5)  # type: ignore[arg-type]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letter.duckdb"
    path.write_text("Dear Sir or Madam, " * 1000)
    with pytest.raises(errors.WrongUrl, match="letter"):
        mmdb.connect(f"duckdb:///{path}")


def test_a_file_that_another_process_has_open_is_refused(duckdb_url: str) -> None:
    code = f"import mmdb; db = mmdb.connect({duckdb_url!r}); print('open', flush=True); input()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as other:
        assert other.stdin and other.stdout
        assert other.stdout.readline() == "open\n"
        with pytest.raises(errors.DatabaseLocked, match=r"mmdb\.duckdb"):
            mmdb.connect(duckdb_url)
        other.communicate("\n")
    mmdb.connect(duckdb_url).close()
