"""The examples of README.md and docs/, found in the pages and run for real.

A fenced block below the comment `<!-- run -->` is an example; a `text` block that follows one is
what it prints. Examples of one page run in order, in one folder:

- `console`: the lines that start with `$ `, in a shell;
- `python`: in one namespace, where `zoo.duckdb` holds the table `digits`;
- `sql`: by psql on a PostgreSQL database with the table `digits`; `<!-- run: duckdb -->` runs it
  on `zoo.duckdb` instead, `<!-- run: both -->` on both. All of a page's SQL is one psql's, as a
  reader's is; the file is closed where an example in another language may open it.

`<!-- run: analyst -->` and the marks of docs/bi.md are run by test_analyst.py.

`postgresql://NAME@localhost/shop` stands for the PostgreSQL database.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg

import mmdb
from mmdb.api import Database

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FILE = "duckdb:///zoo.duckdb"
WORKER, PASSWORD = "shop_worker", "secret"  # as in docs/running.md

_EXAMPLE = re.compile(
    r"<!-- run(?:: (?P<where>\w+))? -->\n```(?P<language>\w+)\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
_URL = re.compile(r"postgresql://(\w+)@localhost/shop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One block that is run."""

    place: str  # file and line
    language: str
    code: str
    output: str | None  # that the page shows
    where: str  # engines of SQL: "postgres", "duckdb" or "both"


def examples(page: Path) -> list[Example]:
    """Return a page's examples in order."""
    text = page.read_text()
    return [
        Example(
            place=f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 2}",
            language=match["language"],
            code=match["code"],
            output=match["output"],
            where=match["where"] or "postgres",
        )
        for match in _EXAMPLE.finditer(text)
    ]


class Runner:
    """Runs the examples of one page in the current folder; a context, at whose end they end.

    Args:
        postgres_url: what `postgresql://NAME@localhost/shop` stands for, whatever the name.
    """

    def __init__(self, postgres_url: str) -> None:
        self._url = postgres_url
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._file: Database | None = None
        self._psql_session: Psql | None = None
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()
        self._close_file()

    def run(self, example: Example) -> str:
        """Run an example and return what it printed."""
        if example.language != "sql":
            self._close_file()
        if example.language == "python":
            return self._python(example)
        if example.language == "console":
            return self._console(example)
        assert example.language == "sql", f"{example.place}: {example.language} cannot be run"
        printed = ""
        if example.where in ("duckdb", "both"):
            printed += self._duckdb(example)
        if example.where in ("postgres", "both"):
            printed += self._psql(example)
        return printed

    def _named(self, code: str) -> str:
        """Return code with the stand-in for the database's URL replaced."""
        parts = urlsplit(self._url)
        place = f"{parts.hostname}:{parts.port}{parts.path}"
        return _URL.sub(
            lambda m: f"postgresql://{m[1]}@{place}" if m[1] == WORKER else self._url, code
        )

    def _python(self, example: Example) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(self._named(example.code), example.place, "exec"), self._names)
        return printed.getvalue()

    def _console(self, example: Example) -> str:
        lines = self._named(example.code).splitlines()
        commands = "\n".join(line[2:] for line in lines if line.startswith("$ "))
        environment = {k: v for k, v in os.environ.items() if k != "MMDB_URL"}
        bin_folder = Path(sys.executable).parent
        return _output_of(
            ["bash", "-euc", commands],
            example.place,
            environment | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": "80"},
        )

    def _psql(self, example: Example) -> str:
        if self._psql_session is None:
            self._psql_session = self._exits.enter_context(Psql(self._url))
        return self._psql_session.run(self._named(example.code), example.place)

    def _duckdb(self, example: Example) -> str:
        if self._file is None:
            self._file = mmdb.connect(FILE)
        rows = [self._file.sql(text) for text in example.code.split(";\n") if text.strip()]
        return "".join(f"{found}\n" for found in rows)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Psql:
    """A psql that is given one text after another; a context."""

    def __init__(self, url: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            ["psql", url, "-Xq", "-v", "ON_ERROR_STOP=1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._errors.close()

    def run(self, code: str, place: str) -> str:
        """Run a text and return what it printed.

        Raises:
            AssertionError: a statement failed, which ends psql; the message names the place.
        """
        assert self._process.stdin and self._process.stdout
        end = f"-- {secrets.token_hex(8)}\n"  # which no example prints
        self._process.stdin.write(f"{code}\n\\echo '{end.strip()}'\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line == end:
                return "".join(lines)
            lines.append(line)
        self._errors.seek(0)
        raise AssertionError(f"{place}: {''.join(lines)}{self._errors.read()}")


def _output_of(command: list[str], place: str, environment: dict[str, str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{place}: {done.stdout}{done.stderr}"
    return done.stdout


_HASH = re.compile(r"\b[0-9a-f]{16,}\b")
_NUMBER = re.compile(r"-?\b\d[\d.,:]*(?:e-?\d+)?")
_SECONDS = re.compile(r"^ (s|ms|min|h)\b")  # behind a number
#: Columns and keys whose numbers are another machine's, or another run's.
FREE = ("seconds", "best_candidate_id")


def shape(line: str) -> str:
    """Return a line without its numbers and the widths of its table.

    >>> shape("  1 |   0.9526 | adam"), shape("----+------"), shape("d5e67e4c6a776f09 in 3.4 s")
    ('0 | 0 | adam', '-', '0 in 0 s')
    """
    line = _NUMBER.sub("0", _HASH.sub("0", line))
    line = re.sub(r"[-+─━╸╺]{2,}", "-", line)
    return " ".join(line.split())


def numbers(line: str, titles: Sequence[str] = ()) -> list[str | None]:
    """Return the numbers of a line; None for one that differs from machine to machine.

    Args:
        titles: of its columns, where it is a table's row.

    >>> numbers('2 hops in 3.4 s, "seconds": 0.02')
    ['2', None, None]
    >>> numbers("12 | 0.5", ["hops", "seconds"])
    ['12', None]
    """
    found: list[str | None] = []
    line = _HASH.sub("", line)
    for match in _NUMBER.finditer(line):
        before = line[: match.start()]
        column = before.count("|")
        is_free = (
            _SECONDS.match(line[match.end() :])
            or before.endswith(tuple(f'"{name}": ' for name in FREE))
            or (column < len(titles) and titles[column] in FREE)
        )
        found.append(None if is_free else match[0])
    return found


def is_close(shown: str | None, printed: str | None) -> bool:
    """Return whether one number may stand for the other: whole ones are equal, others near.

    >>> is_close("12", "13"), is_close("0.93", "0.9164"), is_close("0.9", "0.2")
    (False, True, False)
    """
    if shown is None or printed is None or shown == printed:
        return True
    try:
        values = float(shown), float(printed)
    except ValueError:  # times and lists
        return False
    return not (shown.isdigit() and printed.isdigit()) and isclose(*values, rel_tol=0.1)


def missing(shown: str, printed: str) -> list[str]:
    """Return the lines that a page shows and that were not printed, or with other numbers.

    >>> missing("hops\\n  12\\n", "hops\\n  13\\n"), missing(" 0.93\\n", "0.92\\n")
    (['  12'], [])
    """
    found: dict[str, list[str]] = {}
    for line in printed.splitlines():
        found.setdefault(shape(line), []).append(line)
    lost, titles, before = [], [""], ""
    for line in shown.splitlines():
        if shape(line) == "-":
            titles = [title.strip() for title in before.split("|")]
        before = line
        wanted = numbers(line, titles if line.count("|") == len(titles) - 1 else ())
        is_there = any(
            all(map(is_close, wanted, numbers(other))) for other in found.get(shape(line), ())
        )
        if line.strip() not in ("", "...") and not is_there:
            lost.append(line)
    return lost


def run_page(page: Path, postgres_url: str) -> list[str]:
    """Run a page's examples in the current folder; return what each printed.

    Raises:
        AssertionError: one failed, or did not print what the page shows.
    """
    found = []
    with Runner(postgres_url) as runner:
        for example in examples(page):
            printed = runner.run(example)
            lost = "\n".join(missing(example.output or "", printed))
            assert not lost, f"{example.place} does not print:\n{lost}\n\n{printed}"
            found.append(printed)
    return found


def allow_workers(url: str) -> None:
    """Do what docs/running.md tells the owner to do, so that CALL mmdb.train can be run."""
    dsn = re.sub(r"//.*?@", f"//{WORKER}@", url)
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE ROLE {WORKER} LOGIN PASSWORD '{PASSWORD}'".encode())
        connection.execute(f"GRANT mmdb_trainer TO {WORKER}".encode())
        connection.execute(
            "INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %s)", (dsn,)
        )
