"""README.md and docs/ say what is true: their lists are complete, their links lead somewhere.

`.venv/bin/python -m tests.acceptance.test_docs` writes docs/errors.md anew.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping

import psycopg
import pytest

from mmdb import cli, errors
from mmdb.data.options import Options
from mmdb.server.calls import Declaration, declarations
from mmdb.train import search
from mmdb.train.drive import run_creation
from mmdb.train.ledger.run_options import CHOICES, KNOWN
from tests.acceptance.pages import PAGES, ROOT, examples

DOCS = ROOT / "docs"
WITH_EXAMPLES = [page for page in PAGES if examples(page)]


def test_every_page_has_examples_but_the_lists() -> None:
    without = {page.name for page in PAGES} - {page.name for page in WITH_EXAMPLES}
    # Architectures have tests of their own; a cluster is made by tests/citus.
    lists = {"architecture.md", "architectures.md", "citus.md", "figures.md", "install.md"}
    assert without <= {*lists, "scale.md"}


# -- the lists are complete ---------------------------------------------------


def words(text: str) -> str:
    """Return a text with all white space alike."""
    return " ".join(text.split())


def section(page: str, heading: str) -> str:
    """Return what stands below a heading of a page, to the next one of its level or above."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,}} |\Z)", text, re.M | re.S)
    assert found, f"docs/{page} has no heading {heading!r}"
    return found[2]


def first_cells(text: str) -> list[str]:
    """Return the names in backticks in the first column of a table, in order."""
    rows = re.findall(r"^\| (`[^|]*?) \|", text, re.M)
    return [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]


def signature(declaration: Declaration) -> str:
    """Return a function as docs/sql.md shows it."""
    arguments = ", ".join(
        f"{a.name} {a.type}" + (f" => {a.default}" if a.default is not None else "")
        for a in declaration.arguments
    )
    columns = ", ".join(f"{name} {kind}" for name, kind in declaration.columns)
    call = "" if declaration.returns else "CALL "
    return f"{call}mmdb.{declaration.name}({arguments}) -> {columns or declaration.returns}"


@pytest.mark.parametrize("declaration", declarations(), ids=lambda d: d.name)
def test_every_function_is_in_the_reference_with_its_signature(declaration: Declaration) -> None:
    shown = words(section("sql.md", declaration.name)).replace("( ", "(").replace(" )", ")")
    assert signature(declaration) in shown
    assert f"mmdb.{declaration.name}(" in "".join(
        example.code for example in examples(DOCS / "sql.md")
    )


def test_every_view_is_in_the_reference_with_its_columns(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        views: Mapping[str, list[str]] = dict(
            connection.execute(
                "SELECT c.table_name, array_agg(c.column_name ORDER BY c.ordinal_position)::text[]"
                " FROM information_schema.columns AS c"
                " INNER JOIN information_schema.views AS v USING (table_schema, table_name)"
                " WHERE c.table_schema = 'mmdb' GROUP BY 1"
            ).fetchall()
        )
    assert {name: first_cells(section("sql.md", name)) for name in views} == views


def test_every_heading_of_the_reference_is_a_function_or_a_view(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute(
            "SELECT table_name FROM information_schema.views WHERE table_schema = 'mmdb'"
        ).fetchall()
    headings = set(re.findall(r"^### (\w+)", (DOCS / "sql.md").read_text(), re.M))
    assert headings == {d.name for d in declarations()} | {name for (name,) in rows}


def test_every_command_and_option_is_in_the_docs() -> None:
    text = "".join(page.read_text() for page in PAGES)
    for name, parser in commands().items():
        assert re.search(rf"mmdb {name}\b|\b{name} \||\| {name}\b", text), name
        for action in parser._actions:
            for option in set(action.option_strings) - {"-h", "--help", "--key"}:
                assert option in text, f"mmdb {name} {option}"


def commands() -> Mapping[str, argparse.ArgumentParser]:
    """Return the parser of each command of `mmdb`."""
    for action in cli._parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise AssertionError("mmdb has no commands")


def test_every_search_method_is_in_the_docs() -> None:
    methods = first_cells(section("search.md", "Methods"))
    assert methods[1 : 1 + len(search.METHODS)] == list(search.METHODS)


def test_every_option_is_in_the_docs() -> None:
    assert first_cells(section("datasets.md", "Options")) == list(Options.__dataclass_fields__)
    named = first_cells(section("search.md", "Options of a run"))
    assert {f"options.{name}" for name in KNOWN} == {n for n in named if n.startswith("options.")}
    text = section("search.md", "Options of a run")
    for value in (*run_creation.STRATEGIES, *(v for values in CHOICES.values() for v in values)):
        assert f"`{value}`" in text


def test_every_environment_variable_is_in_the_docs() -> None:
    read = {
        name
        for path in (ROOT / "mmdb").rglob("*.py")
        for name in re.findall(r"\bMMDB_\w+", path.read_text())
    }
    assert read == set(re.findall(r"\bMMDB_\w+", (DOCS / "running.md").read_text()))


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_files_that_contributors_are_sent_to_are_there() -> None:
    for page in (DOCS / "architecture.md", ROOT / "CONTRIBUTING.md"):
        named = re.findall(r"`((?:mmdb|sql|tests|udf)/[\w/.*]+)`", page.read_text())
        assert len(named) > 20
        for name in named:
            pattern = name.replace("NN_subject", "*")
            assert list(ROOT.glob(pattern)), f"{page.name}: {name}"


def test_the_page_of_the_architecture_names_a_file_once() -> None:
    named = re.findall(r"`(mmdb/[\w/]+\.py)`", (DOCS / "architecture.md").read_text())
    assert sorted(named) == sorted(set(named))


# -- errors.md is made from the code ------------------------------------------

#: What stands below this line is made; above it is written by hand.
MARK = "<!-- Made from mmdb/errors.py by `.venv/bin/python -m tests.acceptance.test_docs`. -->\n"


def errors_page() -> str:
    """Return docs/errors.md with the table that mmdb/errors.py gives."""
    head = (DOCS / "errors.md").read_text().partition(MARK)[0]
    titles = "\n| class | SQLSTATE | meaning | hint |\n|---|---|---|---|\n"
    return head + MARK + titles + "".join(_rows(errors.MmdbError, 0))


def _rows(kind: type[errors.MmdbError], depth: int) -> Iterator[str]:
    meaning = words((kind.__doc__ or "").split("\n\n")[0])
    indent = "&emsp;" * depth
    hint = kind.default_hint.replace("|", "\\|")
    yield f"| {indent}`{kind.__name__}` | {kind.sqlstate} | {meaning} | {hint} |\n"
    for child in sorted(kind.__subclasses__(), key=lambda child: child.sqlstate):
        yield from _rows(child, depth + 1)


def test_the_page_of_errors_is_that_of_the_code() -> None:
    command = "Run: .venv/bin/python -m tests.acceptance.test_docs"
    assert (DOCS / "errors.md").read_text() == errors_page(), command


def test_every_error_code_that_the_docs_name_exists() -> None:
    text = "".join(page.read_text() for page in PAGES)
    for code in set(re.findall(r"\bMM\d{3}\b", text)):
        assert errors.from_sqlstate(code, ""), code


if __name__ == "__main__":
    (DOCS / "errors.md").write_text(errors_page())
