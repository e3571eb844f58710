"""Reports of runs and models through the views, on both engines, and for whoever may only read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import mmdb
from mmdb.api import Database
from mmdb.cli import main
from mmdb.errors import InvalidOption, ModelNotFound, NotFound, RunNotFound
from mmdb.report.facts import connected_to_read
from mmdb.report.file import make_report, write_report
from mmdb.report.subject_reports import model_report, run_report
from tests.cluster import Cluster
from tests.run_rows import Writer, add_run, ids, insert

QUERY = "SELECT i * 0.01 AS a, i % 7 AS b, i % 3 AS y FROM generate_series(1, 300) AS g (i)"
GRID = {"space": {"lr": [0.1, 0.01]}}


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as opened:
        opened.create_dataset("points", QUERY, partitions=2)
        yield opened


def create(db: Database, name: str = "search") -> mmdb.Run:
    return db.create_run(
        name, dataset="points", architecture="mlp(hidden=[8])", search=GRID, epochs=2
    )


def sections(db: Database, run: str) -> list[str]:
    return [section.key for section in run_report(db.connection, run).sections]


def test_a_report_grows_with_its_run(db: Database, tmp_path: Path) -> None:
    run = create(db)
    assert sections(db, "search") == ["leaderboard", "plan", "lineage"]
    explained = run.explain({"workers": 1})
    plan = run_report(db.connection, "search").sections[1]
    assert len(plan.charts) == 2 and plan.warnings
    run.train(workers=1)
    trained = ["leaderboard", "learning", "workers", "plan", "outcome", "storage", "lineage"]
    assert sections(db, "search") == trained
    file = tmp_path / "search.json"
    run.report(file)
    found = json.loads(file.read_text())
    assert found["facts"]["dataset"] == "points" and found["facts"]["status"] == "finished"
    assert found["facts"]["models"] == ["search@1"]
    # train asks for a plan too, of what it may choose from: the one that tells more is shown
    assert len(found["sections"]["plan"]["ways"]) == len(explained.estimates)
    (worker,) = found["sections"]["workers"]["workers"]
    assert worker["hops"] == found["facts"]["hops_done"] == 2 * 2 * 3
    (outcome,) = db.sql("SELECT * FROM mmdb.plan_outcome")
    for phase in ("compute", "read", "hop", "validation"):  # counted the same way
        assert worker[f"{phase}_s"] == pytest.approx(outcome[f"actual_{phase}_s"], abs=1e-6)
    run.explain().plot(tmp_path / "plan.svg")
    assert b"Planned and taken" in (tmp_path / "plan.svg").read_bytes()


def test_a_run_of_failures_has_a_report(db: Database) -> None:
    (dataset_id,) = ids(db, "dataset", "dataset_id")
    add_run(db, "bad", dataset_id, metric="accuracy", maximize=True, epochs=2, strategy="mop")
    assert sections(db, "bad") == ["plan", "lineage"]  # it has no candidates yet
    writer = Writer(db, "bad")
    for lr in (0.1, 0.2):
        writer.candidate({"lr": lr})
    writer.epoch(0, 0, float("nan"))
    for candidate in writer.candidates:
        insert(db, "candidate_event", candidate_id=candidate, event="failed", message="<b>no</b>")
    report = run_report(db.connection, "bad")
    assert "2, 2 failed" in [fact.text for fact in report.facts]
    board = report.sections[0].tables[0]
    assert [row["error"] for row in board.rows] == ["<b>no</b>"] * 2
    assert "workers" in [section.key for section in report.sections]


def test_a_model_has_a_report(db: Database, tmp_path: Path) -> None:
    create(db).train(workers=1)
    db.set_alias("search", "best", version=1)
    db.predict_into("search@1", f"SELECT a AS id, a, b FROM ({QUERY}) AS q", "foretold")
    (row,) = db.sql("SELECT candidate_id, epoch FROM mmdb.model_overview")
    report = model_report(db.connection, "search@best")
    assert report.title == "Model search@1"
    told = {fact.key: fact.text for fact in report.facts}
    assert told["aliases"] == "best" and told["dataset"] == "points"
    assert told["run"].endswith(f"candidate {row['candidate_id']}, epoch {row['epoch'] + 1}")
    assert told["architecture"] == "mlp(hidden=[8])"
    found = {section.key: section for section in report.sections}
    parts = ["lineage", "versions", "predictions", "training", "storage", "outcome"]
    assert list(found) == parts
    (written,) = found["predictions"].tables[0].rows
    assert written["table_name"] == "foretold" and written["row_count"] == 300
    assert found["lineage"].lineage is not None
    names = [node.name for node in found["lineage"].lineage.graph.nodes]
    assert {"points", "search", "search@1", "foretold", f"candidate {row['candidate_id']}"} <= set(
        names
    )
    assert len(found["storage"].tables[0].rows) == 4  # tensors of the perceptron
    assert len(found["training"].charts) == 2
    write_report(report, tmp_path / "model.json")
    values = json.loads((tmp_path / "model.json").read_text())
    assert values["model"] == "search@1"
    assert values["sections"]["versions"]["versions"][0]["accuracy"] is not None
    (subject,) = (n for n in values["sections"]["lineage"]["nodes"] if n["kind"] == "model")
    assert subject["entity"] == "model:search@1"
    _check_names(db)
    db.drop_alias("search", "best")
    db.drop_model("search", 1)
    report = model_report(db.connection, "search@1")  # a dropped one by its number
    assert "dropped" in {fact.key for fact in report.facts}
    assert "storage" not in {section.key for section in report.sections}
    for reference in ("search", "search@best", "search@2", "search@1@2", "nothing@1"):
        with pytest.raises(ModelNotFound):
            model_report(db.connection, reference)


def _check_names(db: Database) -> None:
    """A name is a run's, and else a model's."""
    assert make_report(db.connection, "search").kind == "run"
    assert make_report(db.connection, "search", "model").kind == "model"
    assert make_report(db.connection, "search@1").kind == "model"
    with pytest.raises(RunNotFound):
        make_report(db.connection, "search@1", "run")
    with pytest.raises(NotFound, match="run or model"):
        make_report(db.connection, "nothing")
    with pytest.raises(InvalidOption, match="dataset"):
        make_report(db.connection, "points", "dataset")


def test_there_is_no_report_of_nothing(db: Database) -> None:
    with pytest.raises(RunNotFound, match="nothing"):
        run_report(db.connection, "nothing")


def test_whoever_may_only_read_can_make_a_report(
    postgres_url: str, cluster: Cluster, tmp_path: Path
) -> None:
    with mmdb.connect(postgres_url) as owner:
        owner.create_dataset("points", QUERY, partitions=2)
        create(owner).explain({"workers": 1})
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE reader LOGIN PASSWORD '{cluster.password}'".encode())
        connection.execute("GRANT mmdb_reader TO reader")
    try:
        url = postgres_url.replace("//postgres:", "//reader:")
        assert url != postgres_url
        with connected_to_read(url) as connection_of_reader:
            made = {s.key: s for s in run_report(connection_of_reader, "search").sections}
        assert made["plan"].charts and made["lineage"].lineage
        assert main(["report", "search", "--out", str(tmp_path / "r.json"), "--database", url]) == 0
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP OWNED BY reader")
            connection.execute("DROP ROLE reader")


def test_the_command_writes_each_format(
    installed_duckdb_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mmdb.connect(installed_duckdb_url) as db:
        db.create_dataset("points", QUERY, partitions=2)
        create(db).explain({"workers": 2})

    def report(*arguments: Any) -> int:
        return main(["report", *map(str, arguments), "--database", installed_duckdb_url])

    for name, start in (("r.html", b"<!DOCTYPE html>"), ("r.json", b"{"), ("r.png", b"\x89PNG")):
        assert report("search", "--out", tmp_path / name) == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    assert report("search", "--out", tmp_path / "page", "--format", "json", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["format"] == "json"
    assert report("nothing", "--out", tmp_path / "r.html") == 1
    assert report("search", "--out", tmp_path / "r.pdf") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "no run or model" in said and "InvalidOption" in said
    plot = tmp_path / "plan.png"
    done = main(["explain", "search", "--plot", str(plot), "--database", installed_duckdb_url])
    assert done == 0 and plot.stat().st_size > 20_000
