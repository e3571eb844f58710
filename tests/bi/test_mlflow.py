"""MLflow for real: its server on SQLite takes an export, and its own client reads it back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.bi.conftest import WILD, Shop
from tests.bi.environments import Service, ask, output, program

QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a tracking server that holds nothing."""
    folder = tmp_path_factory.mktemp("mlflow")
    running = Service(
        *(program("mlflow", "mlflow"), "server", "--host", "127.0.0.1", "--port", "{port}"),
        *("--backend-store-uri", f"sqlite:///{folder}/store.db", "--workers", "1"),
        *("--default-artifact-root", str(folder / "artifacts")),
        log=folder / "server.log",
        variables=QUIET | {"HOME": str(folder)},
    )
    with running:
        running.wait()
        yield running


def export(shop: Shop, server: Service) -> Any:
    """Copy all runs and models as the reader, and return what the command says of it."""
    asked = ("--all", "--tracking-uri", server.url, "--database", shop.reader_url, "--json")
    return json.loads(output(Path(sys.executable).with_name("mmdb"), "mlflow", *asked))


@pytest.fixture(scope="module")
def copied(shop: Shop, server: Service) -> Any:
    """Export once."""
    return export(shop, server)


@pytest.fixture(scope="module")
def stored(copied: Any, server: Service) -> Any:
    """Return what MLflow's client reads after the export."""
    assert (copied["experiments"], copied["runs"], copied["versions"]) == (2, 5, 2)
    return ask("mlflow", "mlflow_read.py", server.url)


def rows(shop: Shop, query: str) -> list[tuple[Any, ...]]:
    """Return rows of mmdb itself."""
    with psycopg.connect(shop.reader_url) as connection:
        return connection.execute(query.encode()).fetchall()


def test_runs_are_experiments_and_candidates_runs(stored: Any) -> None:
    found = {name: len(runs) for name, runs in stored["experiments"].items() if name != "Default"}
    assert found == {"search": 4, WILD: 1}
    assert {run["status"] for run in stored["experiments"]["search"]} == {"FINISHED"}
    assert all(run["begun"] < run["ended"] for run in stored["experiments"]["search"])


def test_params_are_the_configurations(stored: Any, shop: Shop) -> None:
    said = {
        (
            config["optimizer"]["name"]
            if isinstance(config["optimizer"], dict)
            else config["optimizer"],
            str(config["lr"]),
        )
        for (config,) in rows(shop, "SELECT config FROM mmdb.leaderboard WHERE run = 'search'")
    }
    found = {(r["params"]["optimizer"], r["params"]["lr"]) for r in stored["experiments"]["search"]}
    assert len(said) == 4 and found == said


def test_metrics_are_the_learning_curves(stored: Any, shop: Shop) -> None:
    query = (
        "SELECT candidate_id::text, epoch, objective, training_loss, validation_loss"
        " FROM mmdb.candidate_progress WHERE run = 'search' ORDER BY candidate_id, epoch"
    )
    found = []
    for run in stored["experiments"]["search"]:
        curves = [run["metrics"][k] for k in ("accuracy", "training_loss", "validation_loss")]
        for points in zip(*curves, strict=True):
            assert len({step for step, _, _ in points}) == 1
            found.append((run["tags"]["mmdb.candidate"], points[0][0], *(v for _, v, _ in points)))
    assert sorted(found) == sorted(rows(shop, query)) and len(found) == 12


def test_losses_that_went_astray_are_kept_whole(stored: Any, shop: Shop) -> None:
    (run,) = stored["experiments"][WILD]
    (said,) = rows(shop, f"SELECT training_loss FROM mmdb.leaderboard WHERE run = '{WILD}'")
    assert run["metrics"]["training_loss"][0][1] == said[0] > 1e6


def test_models_have_their_versions_tags_and_aliases(stored: Any) -> None:
    model = stored["models"]["search"]
    assert model["aliases"] == {"champion": 1}
    version = model["versions"]["1"]
    assert version["tags"]["stage"] == "trial" and version["source"] == "mmdb:/search/1"
    best = {run["id"] for run in stored["experiments"]["search"]}
    assert version["run"] in best


def test_a_second_export_adds_nothing(shop: Shop, server: Service, stored: Any) -> None:
    again = export(shop, server)
    assert (again["experiments"], again["runs"], again["versions"]) == (0, 0, 0)
    assert again["kept_runs"] == 5 and again["kept_versions"] == 2
    assert ask("mlflow", "mlflow_read.py", server.url) == stored
