"""What hints send people to is there: queries run, commands and pages exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmdb import api, cli, errors

ROOT = Path(__file__).resolve().parents[2]


def hints() -> Iterator[str]:
    """Yield the texts of each hint that the source gives, and of each error's own."""
    yield from (hint for kind in vars(errors).values() if (hint := _default(kind)))
    for file in (ROOT / "mmdb").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            given = [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
            given += node.args[2:] if ast.unparse(node.func) == "unfit" else []
            for said in given:
                texts = [n.value for n in ast.walk(said) if isinstance(n, ast.Constant)]
                yield "…".join(text for text in texts if isinstance(text, str))


def _default(kind: object) -> str:
    return kind.default_hint if isinstance(kind, type) and hasattr(kind, "default_hint") else ""


#: A view of clusters, as the error that names it is of clusters.
_ON_CITUS = {"SELECT * FROM mmdb.node_status"}

QUERIES = sorted(
    {
        query
        for hint in hints()
        for query in re.findall(r"SELECT (?:\*|[\w, ]+) FROM mmdb\.\w+(?![\w(])", hint)
    }
    - _ON_CITUS
)


def test_hints_are_found() -> None:
    assert len(QUERIES) >= 10 and sum(1 for _ in hints()) > 350


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_of_a_hint_runs(query: str, database_url: str) -> None:
    with api.connect(database_url) as db:
        db.sql(query)


def test_commands_and_pages_of_hints_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(hints())
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    commands = set(re.findall(r"`mmdb ([a-z]+)", text))
    known = re.findall(r"^ {4}([a-z]+)(?: |$)", capsys.readouterr().out, re.M)
    assert len(commands) >= 5 and commands <= set(known)
    pages = set(re.findall(r"docs/[\w/]+\.md", text))
    assert len(pages) >= 3 and all((ROOT / page).is_file() for page in pages)
