"""dbt for real: it parses the documented source, runs its tests, and builds upon it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.bi.conftest import Shop
from tests.bi.environments import output, program
from tests.cluster import ROOT

BUILDER, PASSWORD = "builder", "secret"
PROJECT = """
name: shop
version: "1.0"
profile: shop
model-paths: [models]
models:
  shop:
    +materialized: table
"""
PROFILE = """
shop:
  target: test
  outputs:
    test:
      type: postgres
      host: 127.0.0.1
      port: {port}
      user: {user}
      password: {password}
      dbname: {name}
      schema: reports
      threads: 2
"""


def model_of_the_page() -> str:
    """Return the model that docs/bi.md shows."""
    text = (ROOT / "docs" / "bi.md").read_text()
    (found,) = re.findall(r"^```sql-jinja\n(.*?)^```", text, re.M | re.S)
    return str(found)


@pytest.fixture(scope="module")
def project(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with the source and a model; its login reads views and has a schema."""
    with psycopg.connect(shop.owner_url, autocommit=True) as connection:
        for statement in (
            f"CREATE ROLE {BUILDER} LOGIN PASSWORD '{PASSWORD}' IN ROLE mmdb_reader",
            f"CREATE SCHEMA reports AUTHORIZATION {BUILDER}",
        ):
            connection.execute(statement.encode())
    folder = tmp_path_factory.mktemp("dbt")
    (folder / "models").mkdir()
    (folder / "dbt_project.yml").write_text(PROJECT)
    profile = PROFILE.format(port=shop.port, user=BUILDER, password=PASSWORD, name=shop.name)
    (folder / "profiles.yml").write_text(profile)
    (folder / "models" / "best.sql").write_text(model_of_the_page())
    mmdb = Path(sys.executable).with_name("mmdb")
    source = str(folder / "models" / "sources.yml")
    output(mmdb, "dbt", "--database", shop.reader_url, "--out", source)
    return folder


def dbt(project: Path, command: str) -> Any:
    """Run a command of dbt and return the file that it leaves."""
    output(
        program("bi", "dbt"),
        *(command, "--project-dir", str(project), "--profiles-dir", str(project)),
        folder=project,
        limit_s=240,
        variables={"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "HOME": str(project)},
    )
    left = {"parse": "manifest.json", "build": "run_results.json"}[command]
    return json.loads((project / "target" / left).read_text())


def test_the_source_has_every_view_with_its_comments(project: Path, shop: Shop) -> None:
    found = {source["name"]: source for source in dbt(project, "parse")["sources"].values()}
    with psycopg.connect(shop.owner_url) as connection:
        said = connection.execute(
            "SELECT c.relname::text, obj_description(c.oid), a.attname::text,"
            " col_description(c.oid, a.attnum)"
            " FROM pg_class AS c INNER JOIN pg_attribute AS a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'v' AND a.attnum > 0"
        ).fetchall()
    assert set(found) == {view for view, *_ in said}
    for view, about, column, comment in said:
        assert found[view]["schema"] == "mmdb" and found[view]["description"] == about
        assert found[view]["columns"][column]["description"] == comment, f"{view}.{column}"


def test_its_tests_pass_and_a_model_is_built_on_it(project: Path, shop: Shop) -> None:
    results = dbt(project, "build")["results"]
    assert {result["status"] for result in results} <= {"pass", "success"}
    assert sum(".source_" in result["unique_id"] for result in results) > 5
    with psycopg.connect(shop.owner_url) as connection:
        built = connection.execute("SELECT model, version FROM reports.best").fetchall()
    assert sorted(built) == [("search", 1), ("wild", 1)]
