"""README.md and docs/ say what is true: their examples run, and their lists are complete.

`.venv/bin/python -m tests.acceptance.test_docs` writes docs/errors.md anew.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import mmdb
from mmdb import cli, errors
from mmdb.data.features import Options
from mmdb.demo import load_digits
from mmdb.graph.factories import ACTIVATIONS
from mmdb.server.declarations import Declaration, declarations
from mmdb.train import config, runs, search
from tests.acceptance.pages import FILE, PAGES, ROOT, Runner, examples, missing
from tests.cluster import Cluster

DOCS = ROOT / "docs"
WORKER, PASSWORD = "mmdb_worker", "docs-worker"


def load(url: str) -> None:
    """Create the table `digits` that examples read."""
    with mmdb.connect(url) as db:
        load_digits(db)


@pytest.fixture
def shop_url(postgres_url: str, cluster: Cluster) -> Iterator[str]:
    """Yield the URL of a database with the digits, whose server knows the workers' password."""
    passwords = cluster.directory / ".pgpass"
    passwords.write_text(f"*:*:*:{WORKER}:{PASSWORD}\n")
    passwords.chmod(0o600)
    owner = cluster.directory.stat()
    passwords_owner(passwords, owner.st_uid, owner.st_gid)
    load(postgres_url)
    yield postgres_url
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {WORKER}".encode())
    passwords.unlink()


def passwords_owner(path: Path, user: int, group: int) -> None:
    """Give a file to the server's user, unless it is this one."""
    import os

    if os.getuid() == 0:
        os.chown(path, user, group)


def allow_workers(url: str) -> None:
    """Do what docs/running.md tells the owner to do, so that CALL mmdb.train can be run."""
    dsn = re.sub(r"//.*?@", f"//{WORKER}@", url)
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE ROLE {WORKER} LOGIN PASSWORD '{PASSWORD}'".encode())
        connection.execute(f"GRANT mmdb_trainer TO {WORKER}".encode())
        connection.execute(
            "INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %s)", (dsn,)
        )


WITH_EXAMPLES = [page for page in PAGES if examples(page)]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run_and_print_what_it_shows(
    page: Path, shop_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    load(FILE)
    if page.name != "running.md":  # which tells how
        allow_workers(shop_url)
    runner = Runner(shop_url)
    for example in examples(page):
        printed = runner.run(example)
        lost = missing(example.output or "", printed)
        assert not lost, f"{example.place} does not print:\n" + "\n".join(lost) + "\n\n" + printed
