"""A trained database for BI tools, and a login that may only look.

These tests are slow and want programs that `make test` does without, so `pytest` and `pytest tests`
pass them over; `make test-bi` (or `pytest tests/bi`) runs them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from playwright.sync_api import Browser, sync_playwright
from psycopg import sql

import mmdb
from mmdb.cli.demo import load_digits
from tests.browser import find_browser
from tests.cluster import Cluster

collect_ignore = ["clients"]  # they run in environments of their own
READER, PASSWORD = "analyst", "a reader's"
#: More rows of one view than a BI tool looks at.
METRICS = 12_000
WILD = "wild"  # a run that goes astray, with losses of nine digits


@dataclass(frozen=True, slots=True)
class Shop:
    """A database with a trained run, as its owner and as its readers reach it."""

    owner_url: str
    reader_url: str
    port: int
    name: str


@pytest.fixture(scope="session")
def shop(cluster: Cluster, template: str) -> Iterator[Shop]:
    """Yield a database with the digits, two runs, and what people say of their models.

    The login is made as docs/bi.md says.
    """
    owner = cluster.create_database("mmdb_bi", template)
    _train(owner)
    _make_reader(owner)
    place = f"127.0.0.1:{cluster.port}/mmdb_bi"
    yield Shop(owner, f"postgresql://{READER}:{quote(PASSWORD)}@{place}", cluster.port, "mmdb_bi")
    cluster.drop_database("mmdb_bi")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield a headless Chromium that reaches this machine alone: Superset counts its users."""
    path = find_browser()
    assert path, "No Chromium. Run: .venv/bin/python -m scripts.system_packages"
    options = ["--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")  # for root it has none
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=options)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Return the folder that screenshots are kept in, to be looked at after the tests."""
    folder = Path(tempfile.gettempdir()) / f"mmdb-bi-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    print(f"\nScreenshots: {folder}")
    return folder


def _train(url: str) -> None:
    with mmdb.connect(url) as db:
        load_digits(db)
        db.create_dataset("digits", "SELECT pixels, digit FROM digits", label="digit", partitions=4)
        space = {"lr": [0.1, 0.01], "optimizer": ["adam", "sgd"]}
        run = db.create_run(
            "search", dataset="digits", architecture="mlp", search={"space": space}, epochs=3
        )
        run.train(workers=2)
        wild = {"space": {"lr": [1e9], "optimizer": ["sgd"]}}
        db.create_run(WILD, dataset="digits", architecture="linear", search=wild).train(workers=1)
        db.set_alias("search", "champion", version=1)
        db.tag("search", stage="trial")
        db.note("search", "The first one.")
        db.predict_into("search", "SELECT id, pixels FROM digits WHERE id < 100", "public.guess")
        db.sql(
            "INSERT INTO mmdb.model_metric (model_id, metric, dataset, value)"
            " SELECT m.model_id, 'recall ' || k, 'digits',"
            " CASE WHEN k = 1 THEN 'NaN' ELSE sin(k) END"
            f" FROM mmdb.model AS m, generate_series(1, {METRICS}) AS k WHERE m.name = 'search'"
        )


def _make_reader(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE mmdb_reader")
        connection.execute(made.format(sql.Identifier(READER), sql.Literal(PASSWORD)))
        for setting in ("default_transaction_read_only = on", "statement_timeout = '30s'"):
            connection.execute(f"ALTER ROLE {READER} SET {setting}".encode())
