"""Plans of odd runs, of runs that changed, and with options that cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import mmdb
from mmdb.api import Database
from mmdb.errors import DatasetDropped, EmptySearch, InvalidOption, MmdbError, RunNotFound
from mmdb.report.explanation import Explanation

QUERY = "SELECT i * 0.01 AS a, i % 7 AS b, i % 3 AS y FROM generate_series(1, 240) AS g (i)"
HUGE = 10**400
BAD: list[dict[str, Any]] = [
    {"workers": 0},
    {"workers": -1},
    {"workers": 1.5},
    {"workers": True},
    {"workers": "2"},
    {"workers": [2]},
    {"workers": HUGE},
    {"workers": 10**6},
    {"group": -3},
    {"group": {}},
    {"rows": 0},
    {"rows": HUGE},
    {"objective": None},
    {"objective": ["time"]},
    {"objective": "speed"},
    {"strategies": []},
    {"strategies": [["mop"]]},
    {"strategies": {"mop": 1}},
    {"strategies": "mop"},
    {"strategies": [None]},
    {"strategies": ["mop"] * 1000},
    {"batches": []},
    {"batches": [[1]]},
    {"batches": [0]},
    {"batches": [HUGE]},
    {"batches": "32"},
    {"batches": list(range(1, 100))},
    {"partitions": []},
    {"partitions": [None]},
    {"partitions": [193]},
    {"partitions": [1000000]},
    {"bytes_limit": -1},
    {"bytes_limit": "1"},
    {"bytes_limit": HUGE},
    {"cluster": 3},
    {"cluster": []},
    {"cluster": {"nodes": 0}},
    {"cluster": {"nodes": []}},
    {"cluster": {"nodes": [[]]}},
    {"cluster": {"nodes": 1001}},
    {"cluster": {"nodes": HUGE}},
    {"cluster": {"nodes": [{"name": "a"}, {"name": "a"}]}},
    {"cluster": {"nodes": [{"name": 3}]}},
    {"cluster": {"slots": HUGE}},
    {"cluster": {"slots": 10**9}},
    {"cluster": {"memory_bytes": 0}},
    {"cluster": {"memory_bytes": HUGE}},
    {"cluster": {"slowdown": []}},
    {"cluster": {"slowdown": [0]}},
    {"cluster": {"slowdown": ["1"]}},
    {"cluster": {"link": {"bytes_per_s": 0}}},
    {"cluster": {"link": {"bytes_per_s": 1e-300}}},
    {"cluster": {"link": {"latency_s": -1}}},
    {"cluster": {"link": {"latency_s": 1e300}}},
    {"cluster": {"link": [1]}},
    {"cluster": {"deviation": 1e9}},
    {"cluster": {"open_s": -1}},
    {"cluster": {"shards": "yes"}},
    {"cluster": {"cluster": {"cluster": {}}}},
    {"probe_s": -1},
    {"probe_s": []},
    {"nothing": 1},
    {"": None},
]
TEXTS = ["", "{", "[]", "3", '"x"', "nan", '{"workers": NaN}', '{"bytes_limit": Infinity}',
         '{"cluster": {"memory_bytes": Infinity}}', '{"cluster": {"meet_s": -Infinity}}',
         "[" * 100_000]  # fmt: skip


@pytest.fixture(scope="module")
def kept() -> Iterator[Database]:
    with mmdb.connect("duckdb://") as opened:
        opened.create_dataset("points", QUERY, partitions=3)
        opened.create_run("search", dataset="points", architecture="linear", search=space([0.1]))
        opened.register_function("letters", "tests.multimodal:letters", "tokenizer")
        opened.register_factory("reviews", "tests.multimodal:reviews")
        yield opened


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as opened:
        opened.create_dataset("points", QUERY, partitions=3)
        opened.create_run(
            "search", dataset="points", architecture="linear", search=space([0.1, 0.01])
        )
        yield opened


def space(rates: list[float]) -> dict[str, Any]:
    return {"space": {"lr": rates}}


@pytest.mark.parametrize("options", BAD, ids=lambda options: json.dumps(options)[:40])
def test_options_that_cannot_be_are_refused(kept: Database, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        kept.run("search").explain(options)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:40])
def test_texts_that_are_no_options_are_refused(kept: Database, text: str) -> None:
    with pytest.raises(MmdbError) as caught:
        kept.sql("SELECT * FROM mmdb.explain_train('search', options => $t)", {"t": text})
    assert caught.value.sqlstate == InvalidOption.sqlstate


@pytest.mark.parametrize("options", [BAD[1], BAD[16], BAD[40], BAD[52]], ids=json.dumps)
def test_postgres_refuses_them_too(db: Database, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        db.run("search").explain(options)
    assert db.sql("SELECT * FROM mmdb.plan") == []


@pytest.mark.parametrize("name", ["", "nothing", "a'b", "x" * 10_000, "\n"])
def test_a_run_that_is_not_there_is_named(kept: Database, name: str) -> None:
    with pytest.raises(RunNotFound):
        kept.sql("SELECT * FROM mmdb.explain_train($n)", {"n": name})


def test_what_is_asked_at_the_edge_is_planned(kept: Database) -> None:
    edge: list[dict[str, Any]] = [
        {"partitions": [192], "batches": [1000000, None, 1]},
        {"bytes_limit": 0},
        {"cluster": {"nodes": 1000, "slots": 4096}, "rows": 1},
        {"cluster": {"link": {"bytes_per_s": 1, "latency_s": 1e6}}},
        {"strategies": ["task", "task"], "objective": "worker_hours", "workers": 4096},
        {"cluster": None, "workers": None, "bytes_limit": None},
    ]
    for options in edge:
        plan = kept.run("search").explain(options)
        assert all(row["t_p50"] > 0 for row in plan.estimates)
        assert str(plan).startswith("Plan of run search")
    plan = kept.run("search").explain({"strategies": ["data_parallel"], "group": 50})
    assert plan.estimates == []
    assert any("Nothing of what was asked" in note for note in plan.notes)
    assert "Nothing of what was asked" in str(plan)


# -- odd runs -----------------------------------------------------------------

PLAIN = {"query": QUERY, "label": "y"}
ODD: dict[str, dict[str, Any]] = {
    "one-row": {"query": "SELECT 1.0 AS a, 0.5 AS y", "partitions": 1, "validation": 0.0,
        "options": {"transforms": {"a": "passthrough"}}},
    "one-partition": {"query": QUERY, "partitions": 1, "validation": 0.0},
    "a-row-each": {"query": f"{QUERY} LIMIT 4", "partitions": 4, "validation": 0.0},
    "regression": {"query": QUERY, "label": "a"},
    "tokens": {
        "query": "SELECT 'abc' || i AS said, i % 2 AS y FROM generate_series(1, 50) AS g (i)",
        "options": {"tokenize": {"said": {"function": "letters", "length": 8}}},
    },
    "several-inputs": {
        "query": "SELECT 'abc' || i AS said, i AS n, i % 2 AS y, i > 4 AS odd FROM range(9) g (i)",
        "options": {
            "tokenize": {"said": {"function": "letters", "length": 8}},
            "inputs": {"meta": ["n"], "review": ["said"]},
            "labels": ["odd"],
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_datasets_are_planned(kept: Database, name: str) -> None:
    given = dict(ODD[name])
    kept.create_dataset(name, given.pop("query"), **given)
    architecture: Any = "linear"
    if name == "several-inputs":
        architecture = "reviews"
    if name == "tokens":
        sizes = {"num_embeddings": 64, "embedding_dim": 4}
        layers = [
            {"name": "read", "op": "Embedding", "args": sizes},
            {"name": "flat", "op": "Flatten"},
            {"name": "head", "op": "Linear", "args": {"out_features": "$outputs"}},
        ]
        architecture = {"layers": layers}
    kept.create_run(name, dataset=name, architecture=architecture)
    plan = kept.run(name).explain()
    assert plan.estimates[0]["feasible"] and plan.estimates[0]["executed"]
    assert plan.chosen is not None
    assert all(row["t_p10"] <= row["t_p50"] <= row["t_p90"] for row in plan.estimates)


# -- runs that change ---------------------------------------------------------


def ids(db: Database) -> list[int]:
    rows = db.sql("SELECT candidate_id FROM mmdb.candidate ORDER BY candidate_id")
    return [row["candidate_id"] for row in rows]


def notes(plan: Explanation) -> str:
    return "\n".join(plan.notes)


def test_a_candidate_that_was_stopped_is_not_planned(db: Database) -> None:
    first, second = ids(db)
    whole = db.run("search").explain({"workers": 1, "strategies": ["mop"]}).estimates[0]
    db.stop_candidate(first)
    plan = db.run("search").explain({"workers": 1, "strategies": ["mop"]})
    assert "1 of 2 candidates has failed or was stopped" in notes(plan)
    assert plan.estimates[0]["t_p50"] < 0.8 * whole["t_p50"]
    db.resume_candidate(first)
    assert "stopped" not in notes(db.run("search").explain())
    db.stop_candidate(first)
    db.stop_candidate(second)
    with pytest.raises(EmptySearch):
        db.run("search").explain()


def test_what_was_planned_is_shown_of_the_run_that_was_trained(db: Database) -> None:
    run = db.run("search")
    run.train(workers=1)
    trained = run.explain()
    assert [row for row in trained if row["actual_s"] is not None]
    assert "planned" not in notes(trained)
    again = run.explain({"workers": 1})
    assert "8 hops of the run are done already" in notes(again)
    db.clone_candidate(ids(db)[0], {"lr": 0.05})
    grown = run.explain()
    assert not [row for row in grown if row["actual_s"] is not None]
    assert db.sql("SELECT max(candidates) AS n FROM mmdb.plan")[0]["n"] == 3


def test_a_trained_run_is_shown_when_its_dataset_is_gone(db: Database) -> None:
    run = db.run("search")
    run.train(workers=1)
    db.drop_dataset("points", force=True)
    db.create_dataset("points", QUERY, partitions=2)
    plan = run.explain()
    assert [row for row in plan if row["actual_s"] is not None]
    assert "has been dropped" in notes(plan)
    with pytest.raises(DatasetDropped):
        run.explain({"workers": 1})


def test_a_run_that_trained_less_than_was_planned_says_so(db: Database) -> None:
    run, (first, _) = db.run("search"), ids(db)
    db.stop_candidate(first)
    run.explain()
    db.resume_candidate(first)
    connection = db.connection
    from mmdb.train.drive.train_run import train

    train(connection, "search", workers=1)  # without another plan
    plan = run.explain()
    assert "4 hops were planned, 8 were done" in notes(plan)
    assert not db.sql("SELECT is_comparable FROM mmdb.plan_outcome")[0]["is_comparable"]
