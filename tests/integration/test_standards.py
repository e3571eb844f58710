"""What other tools read, made from filled databases; the same on both engines."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
import yaml  # type: ignore[import-untyped]

import mmdb
from mmdb.api import Database
from mmdb.cli import main
from mmdb.db.columnar import find_views
from mmdb.errors import FileNotWritten, InvalidOption, ModelNotFound, RightsMissing, RunNotFound
from mmdb.standards.mlflow_export import key_text
from mmdb.standards.model_card import model_card
from mmdb.standards.openlineage_events import lineage_events
from tests.cluster import Cluster
from tests.openlineage_classes import check
from tests.run_rows import START, Writer, add_run, ids, insert
from tests.saved_models import net

CONFIG = {"lr": 0.1, "architecture.hidden": [8, 4], 'we"ird $.key': "x", "none": None}
SECRET = "a reader's"


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a database with a dataset of a table, a run of two candidates and three models."""
    cluster: Cluster | None = None
    if request.param == "duckdb":
        url = f"duckdb:///{tmp_path_factory.mktemp('standards') / 'zoo.duckdb'}"
    else:
        cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_standards", request.getfixturevalue("template"))
    with mmdb.connect(url) as opened:
        _fill(opened)
        yield opened
    if cluster is not None:
        cluster.drop_database("mmdb_standards")


def _fill(db: Database) -> None:
    db.sql("CREATE TABLE visits (id bigint, minutes double precision, paid integer)")
    db.sql("INSERT INTO visits SELECT i, i * 0.5, i % 2 FROM generate_series(1, 40) AS g (i)")
    query = "SELECT minutes, paid FROM visits WHERE id > 0"
    db.create_dataset("buyers", query, label="paid", partitions=2)
    (dataset_id,) = ids(db, "dataset", "dataset_id")
    add_run(db, "search", dataset_id, metric="rmse", maximize=False, epochs=2, strategy="mop")
    writer = Writer(db, "search")
    writer.candidate(CONFIG)
    writer.candidate({"lr": 0.01})
    writer.epoch(0, 0, 0.5)
    writer.epoch(0, 1, float("nan"))
    writer.epoch(1, 0, None)
    happened = (
        ("started", 0),
        ("interrupted", 3),
        ("started", 4),
        ("replanned", 9),
        ("finished", 60),
    )
    for event, second in (*happened, ("finished", 60)):
        time = START + dt.timedelta(seconds=second)
        insert(db, "run_event", run_id=writer.run_id, happened_at=time, event=event, workers=1)
    db.save("search", net(1, 2), metrics={"rmse": 0.5}, dataset="buyers")
    db.save("search", net(1, 2, seed=1), metrics={"rmse": 0.25}, parent="search@1")
    db.save("shop/other", net(1, 2, seed=2))
    first = ids(db, "model", "model_id")[0]
    update = f"SET candidate_id = {writer.candidates[0]}, epoch = 0 WHERE model_id = {first}"
    db.sql(f"UPDATE mmdb.model {update}")
    db.set_alias("search", "best", version=2)
    db.tag("search@1", stage="trial")
    db.note("search@1", "Only *for* <b>tests</b> | nothing else.")


# -- OpenLineage ------------------------------------------------------------------------------


def test_events_of_a_database_are_openlineages(db: Database) -> None:
    found = list(lineage_events(db.connection, hops=True))
    for event in found:
        check(event)
    kinds = {e["job"]["facets"]["jobType"]["jobType"] for e in found}
    assert kinds == {"DATASET", "TRAINING", "HOP", "MODEL"}
    runs = [e for e in found if e["job"]["name"] == "run.search"]
    assert [e["eventType"] for e in runs] == ["START", "ABORT", "START", "COMPLETE"]
    (left,) = runs[-1]["outputs"]
    assert left["name"].endswith(".mmdb.model.search.1")
    assert len([e for e in found if e["job"]["name"] == "run.search.hop"]) == 2 * 8
    lineage = found[1]["outputs"][0]["facets"]["columnLineage"]
    assert {k: v["inputFields"][0]["field"] for k, v in lineage["fields"].items()} == {
        "minutes": "minutes",
        "paid": "paid",
    }
    assert [f["field"] for f in lineage["dataset"]] == ["id"]
    scheme = "postgres" if db.connection.engine == "postgres" else "duckdb"
    assert all(d["namespace"].startswith(f"{scheme}://") for e in found for d in e["inputs"])
    assert "postgres:" not in json.dumps(found).replace("postgres://", "")  # no password


def test_ids_are_the_same_at_each_export(db: Database, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    assert db.export_openlineage(file=first, hops=True) > 20
    db.export_openlineage(file=second, hops=True)
    assert first.read_bytes() == second.read_bytes()
    of_run = list(lineage_events(db.connection, "search", jobs="shop"))
    assert {e["job"]["name"] for e in of_run} == {"dataset.buyers", "run.search"}
    assert {e["job"]["namespace"] for e in of_run} == {"shop"}
    known = {json.loads(line)["run"]["runId"] for line in first.read_text().splitlines()}
    assert {e["run"]["runId"] for e in of_run} < known


def test_what_cannot_be_exported_is_said(db: Database, tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        db.export_openlineage("none", file=tmp_path / "x")
    with pytest.raises(InvalidOption, match="a file or to a URL"):
        db.export_openlineage()
    with pytest.raises(RunNotFound):
        db.export_mlflow("http://127.0.0.1:9", "none")
    with pytest.raises(InvalidOption, match="no view 'x; DROP'"):
        db.export_parquet(tmp_path, ["x; DROP"])
    with pytest.raises(ModelNotFound):
        db.model_card("search@9")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(FileNotWritten):
        db.export_parquet(tmp_path / "file", ["run_progress"])


# -- MLflow's shape ---------------------------------------------------------------------------


def view(db: Database, name: str, order: str) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in db.sql(f"SELECT * FROM mmdb.{name} ORDER BY {order}")]


def test_views_have_mlflows_shape(db: Database) -> None:
    begun = 1_767_225_600_000  # START in ms
    (experiment,) = view(db, "mlflow_experiments", "1")
    assert experiment[1:] == (
        *("search", "active", begun, begun + 60_000),
        *("buyers", "rmse", "mop", 2),
    )
    first, second = view(db, "mlflow_runs", "1")
    assert first[1] == "search-0" and first[3:6] == ("FINISHED", begun, begun + 6_000)
    assert second[3:6] == ("RUNNING", begun + 6_000, None)
    params = {r[0]: r[1] for r in view(db, "mlflow_params", "2") if r[2] == first[0]}
    assert {**params, "architecture.hidden": json.loads(params["architecture.hidden"])} == {
        **CONFIG,
        "lr": "0.1",
    }
    metrics = {(r[0], r[4]): (r[1], r[5]) for r in view(db, "mlflow_metrics", "1") if r[3] == "1"}
    assert metrics == {
        ("training_loss", 0): (1.0, False),
        ("training_loss", 1): (2.0, False),
        ("validation_loss", 0): (1.0, False),
        ("validation_loss", 1): (2.0, False),
        ("rmse", 0): (0.5, False),
        ("rmse", 1): (0.0, True),
    }
    models = view(db, "mlflow_registered_models", "1")
    assert [(m[0], m[3]) for m in models] == [("search", 2), ("shop/other", 1)]
    versions = view(db, "mlflow_model_versions", "1, 2")
    assert [v[5] for v in versions] == ["mmdb:/search/1", "mmdb:/search/2", "mmdb:/shop/other/1"]
    assert versions[0][6] == first[0] and versions[1][10] == "search@1"


def test_names_that_mlflow_does_not_allow_are_mended() -> None:
    assert key_text('we"ird $.key') == "we_ird _.key" and len(key_text("k" * 999)) == 250


# -- cards ------------------------------------------------------------------------------------


def test_a_card_says_what_is_known(db: Database) -> None:
    content = db.model_card("search@1")
    schema = "public" if db.connection.engine == "postgres" else "main"
    head = yaml.safe_load(content.split("---")[1])
    assert head["datasets"] == ["buyers"] and head["tags"] == ["mmdb", "snapshot", "stage:trial"]
    (result,) = head["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "rmse", "value": 0.5}]
    for line in (
        "# search@1",
        "| candidate | 1 of 2 |",
        "| lr | 0.1 |",
        f"| {schema}.visits | minutes | minutes |",
        f"| {schema}.visits | id | nothing: it decides which rows |",
        "SELECT minutes, paid FROM visits WHERE id > 0",
        "| rmse | the validation rows | 0.5 |",
        "| models made from it | search@2 |",
    ):
        assert line in content.splitlines(), line
    assert r"Only \*for\* \<b\>tests\</b\> \| nothing else." in content
    assert db.model_card("search@best") == db.model_card("search") == db.model_card("search@2")
    assert "| aliases | best |" in db.model_card("search")
    assert "what it was trained on is not known here" in db.model_card("shop/other")


# -- Parquet ----------------------------------------------------------------------------------


def test_every_view_is_a_parquet_file_with_its_rows(db: Database, tmp_path: Path) -> None:
    written = {w.view: w for w in db.export_parquet(tmp_path / "bi")}
    about = json.loads((tmp_path / "bi" / "views.json").read_text())["views"]
    views = find_views(db.connection)
    assert list(written) == [v["view"] for v in about] == [v.name for v in views]
    with duckdb.connect() as reader:
        reader.execute("SET TimeZone = 'UTC'")
        for found in views:
            file = tmp_path / "bi" / written[found.name].file
            cursor = reader.execute("SELECT * FROM read_parquet(?)", [str(file)])
            assert [c[0] for c in cursor.description or ()] == [c.name for c in found.columns]
            types = [column.type for column in found.columns]
            # What the server counts of itself, in the last column, has moved on meanwhile.
            some = slice(-1) if found.name == "server_metric" else slice(None)
            rows = sorted(repr(plain(row, types)[some]) for row in cursor.fetchall())
            said = db.sql(f'SELECT * FROM mmdb."{found.name}"')
            assert rows == sorted(repr(plain(r.values(), types)[some]) for r in said), found.name
            assert written[found.name].rows == len(rows)
    schema = pq.read_schema(tmp_path / "bi" / "leaderboard.parquet")
    assert b"the best first" in schema.metadata[b"comment"]
    assert str(
        pq.read_schema(tmp_path / "bi" / "hop_timeline.parquet").field("started_at").type
    ) == ("timestamp[us, tz=UTC]")
    assert sum(w.rows for w in written.values()) > 30


def plain(row: Iterable[Any], types: list[str]) -> list[Any]:
    """Return values without what differs between drivers: zones, decimals, whether JSON is text."""
    return [
        json.loads(value)
        if kind.lower() in ("json", "jsonb") and isinstance(value, str)
        else value.astimezone(dt.UTC).isoformat()
        if isinstance(value, dt.datetime)
        else float(value)
        if isinstance(value, Decimal)
        else value
        for value, kind in zip(row, types, strict=True)
    ]


def test_some_views_alone(db: Database, tmp_path: Path) -> None:
    (only,) = db.export_parquet(tmp_path, "model_overview")
    assert only.rows == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model_overview.parquet", "views.json"]


# -- rights and commands ----------------------------------------------------------------------


@pytest.fixture
def reader_url(db: Database, cluster: Cluster) -> Iterator[str]:
    """Yield the URL of a login that may select from the views."""
    db.sql(f"CREATE ROLE standards_reader LOGIN PASSWORD '{SECRET.replace(chr(39), chr(39) * 2)}'")
    db.sql("GRANT mmdb_reader TO standards_reader")
    place = cluster.url("mmdb_standards").partition("@")[2]
    yield f"postgresql://standards_reader:a%20reader%27s@{place}"
    db.sql("DROP ROLE standards_reader")


@pytest.mark.parametrize("db", ["postgres"], indirect=True)  # DuckDB has no logins
def test_a_reader_may_write_all_but_events(reader_url: str, tmp_path: Path) -> None:
    assert main(["card", "search@1", "--out", f"{tmp_path}/c.md", "--database", reader_url]) == 0
    assert main(["parquet", "--out", f"{tmp_path}/bi", "--database", reader_url]) == 0
    assert main(["dbt", "--out", f"{tmp_path}/s.yml", "--database", reader_url]) == 0
    connection = mmdb.db.url.connect(reader_url)
    with pytest.raises(RightsMissing):
        list(lineage_events(connection))
    connection.close()


@pytest.mark.parametrize("db", ["postgres"], indirect=True)  # a DuckDB file would be open here
def test_the_commands(db: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = db.connection.url
    out = str(tmp_path / "e.ndjson")
    assert main(["openlineage", "search", "--out", out, "--database", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"events": 6, "to": out}
    assert main(["openlineage", "--all", "--out", out, "--hops", "--database", url]) == 0
    assert main(["card", "search@1", "--database", url]) == 0
    assert model_card(db.connection, "search@1") in capsys.readouterr().out
    wrong = (
        ["openlineage", "search", "--all", "--out", out],
        ["openlineage", "--out", out],
        ["openlineage", "--all"],
        ["openlineage", "--all", "--url", "http://127.0.0.1:9", "--api-key-env", "NO_SUCH_KEY"],
        ["mlflow", "--tracking-uri", "http://127.0.0.1:9"],
    )
    for arguments in wrong:
        assert main([*arguments, "--database", url]) == 2, arguments
    assert main(["openlineage", "none", "--out", out, "--database", url]) == 1
    assert "There is no run named 'none'" in capsys.readouterr().err
