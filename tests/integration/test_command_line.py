"""The command line: exit codes, and what a user's own mistake shows."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "MMDB_URL"}
    return subprocess.run(
        [sys.executable, "-m", "mmdb.cli", *arguments],
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "COMMAND"),
        (("nonsense",), 2, "nonsense"),
        (("train",), 2, "run"),
        (("train", "r"), 2, "--database"),
        (("train", "r", "--workers", "two", "--database", "URL"), 2, "two"),
        (("train", "r", "--database", "URL"), 1, "RunNotFound"),
        (("train", "r", "--workers", "0", "--database", "URL"), 1, "InvalidOption|RunNotFound"),
        (("predict", "m", "SELECT 1 AS id", "--database", "URL"), 1, "ModelNotFound"),
        (("sql", "SELEC 1", "--database", "URL"), 1, "DatabaseFailed"),
        (("sql", "SELECT 1 AS one", "--database", "URL"), 0, "one"),
        (("sql", "", "--database", "URL"), 0, "(no rows)"),
        (("sql", "SELECT 1", "--database", "ftp://host"), 1, "WrongUrl"),
        (("install", "ftp://host"), 1, "WrongUrl"),
    ],
)
def test_the_command_line_says_what_is_wrong_and_shows_no_traceback(
    duckdb_url: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = command(*(duckdb_url if a == "URL" else a for a in arguments))
    output = done.stdout + done.stderr
    assert done.returncode == code, output
    assert any(word in output for word in said.split("|")), output
    assert "Traceback" not in output
