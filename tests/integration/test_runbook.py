"""The runbook's queries run, show what its pages say, and its links and codes lead somewhere."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.store.verify import verify_at
from tests.acceptance.pages import ROOT, examples
from tests.cluster import Cluster
from tests.points import fill

FOLDER = ROOT / "docs" / "runbook"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
HEADINGS = ["You see", "The query", "Why", "Do"]

#: What is done to a database with one of each: a page's first query shows it, and before nothing.
PROVOKED = {
    "run-stands-still": "INSERT INTO mmdb.run_event (run_id, event) VALUES (1, 'started')",
    "worker-lost": """
        INSERT INTO mmdb.worker (name, process, node, device, mode)
        VALUES ('w', 'p', 'n', 'cpu', 'server');
        INSERT INTO mmdb.worker_beat (worker_id, beat_at)
        VALUES (1, now() - interval '1 minute')""",
    "request-waits": "INSERT INTO mmdb.run_request (run_id, request) VALUES (1, 'submit')",
    "candidate-failed": """
        INSERT INTO mmdb.candidate_event (candidate_id, event, sqlstate, message)
        VALUES (1, 'failed', 'MM204', 'The loss became NaN.')""",
    "vacuum-behind": "ALTER TABLE mmdb.block SET (autovacuum_enabled = off)",
    "damaged-bytes": "DELETE FROM mmdb.tensor_chunk WHERE ordinal = 1",
    "sequence-behind": "SELECT setval('mmdb.model_model_id_seq', 1, false)",
    "views-slow": "INSERT INTO mmdb.run_event (run_id, event) VALUES (1, 'finished')",
}


def statements(page: Path) -> list[str]:
    """Return the statements of a page's queries, in order."""
    found = [example for example in examples(page) if example.where == "postgres"]
    assert all(example.language == "sql" for example in found)
    return [text for example in found for text in example.code.split(";\n") if text.strip()]


@pytest.fixture(scope="module")
def filled(cluster: Cluster, template: str) -> Iterator[str]:
    """Yield the name of a database with a dataset, a run and a model of two chunks."""
    url = cluster.create_database("mmdb_runbook", template)
    torch.manual_seed(0)
    with mmdb.connect(url) as db:
        fill(db, rows=40)
        db.create_run("r", dataset="d", architecture="linear", epochs=1)
        db.save("m", {"large": torch.randn(300, 300)})
    yield "mmdb_runbook"
    cluster.drop_database("mmdb_runbook")


@pytest.fixture
def url(cluster: Cluster, filled: str) -> Iterator[str]:
    """Yield the URL of a copy."""
    yield cluster.create_database(f"{filled}_copy", filled)
    cluster.drop_database(f"{filled}_copy")


@pytest.fixture
def session(url: str) -> Iterator[psycopg.Connection]:
    """Yield a superuser's session with a copy."""
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        yield connection


def rows(session: psycopg.Connection, statement: str) -> list[tuple[object, ...]]:
    """Return what a statement of a page returns."""
    return session.execute(statement.encode()).fetchall()


def test_every_query_runs(cluster: Cluster, filled: str) -> None:
    with psycopg.connect(cluster.url(filled), autocommit=True) as connection:
        for page in PAGES:
            for statement in statements(page):
                try:
                    rows(connection, statement)
                except psycopg.Error as error:
                    pytest.fail(f"{page.name}: {error}\n{statement}")


@pytest.mark.parametrize("name", list(PROVOKED))
def test_the_query_shows_the_failure(name: str, session: psycopg.Connection) -> None:
    first = statements(FOLDER / f"{name}.md")[0]
    assert rows(session, first) == []
    session.execute(PROVOKED[name].encode())
    assert len(rows(session, first)) == 1


def test_an_old_transaction_and_who_waits_for_it_are_shown(
    url: str, session: psycopg.Connection
) -> None:
    oldest, waiting = statements(FOLDER / "long-transaction.md")
    assert rows(session, oldest) == rows(session, waiting) == []
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE mmdb.run")
        (row,) = rows(session, oldest)
        assert row[0] == other.info.backend_pid and row[3] == "idle in transaction"


def test_a_damaged_tensor_is_mended_from_a_backup(
    url: str, session: psycopg.Connection, cluster: Cluster, filled: str, tmp_path: Path
) -> None:
    session.execute("UPDATE mmdb.tensor_chunk SET data = substr(data, 2) WHERE ordinal = 0")
    assert not all(check.ok for check in verify_at(url))
    text = (FOLDER / "damaged-bytes.md").read_text()
    commands = re.findall(r"^ *\$ (psql .*)$", text, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        line = command.replace("BACKUP", cluster.url(filled)).replace("URL", url)
        done = subprocess.run(["bash", "-euc", line], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert all(check.ok for check in verify_at(url))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_is_seen_shown_why_and_what_to_do(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert examples(page), "no query"
    for code in set(re.findall(r"\bMM\d{3}\b", text)):
        assert errors.from_sqlstate(code, ""), code
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", text):
        assert (FOLDER / target).exists(), target


def test_the_list_has_every_page_and_the_doctor_names_no_other() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == [page.name for page in PAGES]
    code = "".join(path.read_text() for path in (ROOT / "mmdb").rglob("*.py"))
    named = set(re.findall(r"docs/runbook/([\w-]+\.md)", code))
    assert named and named <= set(listed)
