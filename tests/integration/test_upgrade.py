"""Databases of every published schema come over, with the same answers and the same bytes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import mmdb
from mmdb.db.install import install, migrations
from mmdb.db.queries import Query
from mmdb.db.url import connect as open_connection
from mmdb.store.verify import verify_at
from tests import published
from tests.cluster import Cluster
from tests.integration.test_migration import DUCKDB_CATALOG, POSTGRES_CATALOG, described
from tests.integration.test_privileges import listing

ANSWERS = json.loads((published.FOLDER / "answers.json").read_text())
STATES = [f"{engine}-{state}" for engine in ("duckdb", "postgres") for state in published.STATES]
_numbers = count(1)
NEWEST = Query("newest", "", "SELECT max(number) AS number FROM mmdb.migration")


def described_whole(url: str) -> dict[str, Any]:
    """Return what the catalog says of schema mmdb, and who may do what with it."""
    if url.startswith("duckdb"):
        return described(url, DUCKDB_CATALOG)
    return described(url, POSTGRES_CATALOG) | {"privileges": listing(url)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that the archives were unpacked into."""
    found = tmp_path_factory.mktemp("published")
    for archive in ("duckdb", "postgres"):
        published.unpack(archive, found)
    return found


@pytest.fixture(scope="module")
def fresh(cluster: Cluster, template: str, installed_file: Path) -> Callable[[str], dict[str, Any]]:
    """Return the description of a fresh database by engine."""
    known: dict[str, dict[str, Any]] = {}

    def find(engine: str) -> dict[str, Any]:
        if engine not in known:
            is_file = engine == "duckdb"
            url = f"duckdb:///{installed_file}" if is_file else cluster.url(template)
            known[engine] = described_whole(url)
        return known[engine]

    return find


@pytest.fixture
def old_url(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """Yield the URL of a database of a published schema."""
    engine, _, state = request.param.partition("-")
    if engine == "duckdb":
        tmp_path: Path = request.getfixturevalue("tmp_path")
        yield f"duckdb:///{shutil.copy(folder / f'{state}.duckdb', tmp_path)}"
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    request.getfixturevalue("template")  # its install makes the roles that the dump names
    name = f"mmdb_published_{next(_numbers)}"
    url = cluster.create_database(name, "template0")
    psql: list[str | Path] = [
        "psql",
        "-Xq",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        url,
        "-f",
        folder / f"{state}.sql",
    ]
    done = subprocess.run(psql, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    yield url
    cluster.drop_database(name)


@pytest.mark.parametrize("old_url", STATES, indirect=True)
def test_a_published_database_comes_over(
    request: pytest.FixtureRequest, old_url: str, fresh: Callable[[str], dict[str, Any]]
) -> None:
    engine, _, state = request.node.callspec.params["old_url"].partition("-")
    assert newest_of(old_url) == max(n for n in numbers(engine) if n <= int(state))
    install(old_url)
    described_now = described_whole(old_url)
    for kind, found in fresh(old_url.partition(":")[0]).items():
        assert described_now[kind] == found, kind
    checks = verify_at(old_url)
    assert [check.name for check in checks] == [
        "blocks", "tensors", "models", "checkpoints", "features"
    ]  # fmt: skip
    looked_at = [check for check in checks if not check.detail.startswith("0 ")]
    assert [check.name for check in looked_at] == ["blocks", "tensors", "models", "checkpoints"]
    assert all(check.ok for check in checks)
    with mmdb.connect(old_url) as db:
        assert published.rows(db) == {name: ANSWERS[name] for name in ("leaderboard", "hops")}


@pytest.mark.parametrize("old_url", ["postgres-00"], indirect=True)
def test_the_oldest_database_predicts_and_trains_on(old_url: str) -> None:
    install(old_url)
    with mmdb.connect(old_url) as db:
        for row, answer in zip(published.predictions(db), ANSWERS["predictions"], strict=True):
            assert row[:2] == answer[:2] and row[2] == pytest.approx(answer[2], rel=1e-4)
        db.run("later").train(workers=1)
        rows = db.sql("SELECT run, status FROM mmdb.run_progress ORDER BY run")
        assert [tuple(row.values()) for row in rows] == [
            ("later", "finished"),
            ("search", "finished"),
        ]


def newest_of(url: str) -> int:
    """Return the last migration that a database says it has."""
    connection = open_connection(url)
    try:
        (row,) = connection.rows(NEWEST)
    finally:
        connection.close()
    return int(row["number"])


def test_every_migration_is_of_a_published_schema_or_not_published_yet() -> None:
    newest = int(published.STATES[-1])
    both = numbers("duckdb") | numbers("postgres")
    assert {number for number in both if number > newest} == published.UNPUBLISHED
    assert {int(state) for state in published.STATES} <= both
    assert published.names("duckdb") == {f"{state}.duckdb" for state in published.STATES}
    assert published.names("postgres") == {f"{state}.sql" for state in published.STATES}


def numbers(engine: str) -> set[int]:
    """Return the migrations of an engine; 0 is the schema that came before them."""
    return {0, *(migration.number for migration in migrations(engine))}
