"""The command line: exit codes, and what a user's own mistake shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mmdb.cli import main


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
    duckdb_url: str,
    arguments: tuple[str, ...],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("MMDB_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    try:
        found = main([duckdb_url if a == "URL" else a for a in arguments])
    except SystemExit as end:  # argparse; what else is raised would be a traceback
        found = int(end.code or 0)
    shown = capsys.readouterr()
    output = shown.out + shown.err
    assert found == code, output
    assert any(word in output for word in said.split("|")), output
    assert "Traceback" not in output


def test_json_of_rows_is_valid_whatever_they_hold(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = "BLOB 'ab'" if database_url.startswith("duckdb") else "bytea 'ab'"
    numbers = "CAST('NaN' AS double precision) AS n, CAST('-Infinity' AS real) AS low"
    statement = f"SELECT {numbers}, {binary} AS b, ARRAY[CAST('inf' AS real), 1] AS many, NULL AS z"
    assert main(["sql", statement, "--json", "--database", database_url]) == 0
    (row,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    many = ["Infinity", 1.0]
    assert row == {"n": "NaN", "low": "-Infinity", "b": "\\x6162", "many": many, "z": None}


def test_the_exit_code_is_that_of_the_process(duckdb_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mmdb.cli", "train", "r", "--database", duckdb_url],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "RunNotFound" in done.stderr and "Traceback" not in done.stderr
