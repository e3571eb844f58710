"""The runbook's queries about nodes run on a coordinator, and show a node."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.acceptance.pages import ROOT, examples

pytestmark = pytest.mark.citus


def test_the_queries_about_nodes_run(new_citus_database: Callable[[str], str]) -> None:
    page = ROOT / "docs" / "runbook" / "node-lost.md"
    found = [example for example in examples(page) if example.where == "citus"]
    with psycopg.connect(new_citus_database("runbook"), autocommit=True) as connection:
        for example in found:
            for statement in example.code.split(";\n"):
                if statement.strip():
                    assert connection.execute(statement.encode()).fetchall(), statement
    assert len(found) == 2
