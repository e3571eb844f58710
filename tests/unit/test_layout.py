"""Imports inside mmdb go one way."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import gate

PACKAGE = Path(__file__).resolve().parents[2] / "mmdb"

# A part imports parts of its own row or of rows above, and never in a circle.
ROWS = [
    {"errors", "messages", "arguments", "argument_types"},
    {"memory"},
    {"graph", "db"},
    {"data", "store", "lineage"},
    {"train"},
    {"plan", "probe", "judge"},
    {"report", "standards"},
    {"server"},
    {"api", "orm"},
    {"__init__"},
    {"terminal", "ui"},
    {"bench"},
    {"cli", "__main__"},
]
ROW_OF = {part: number for number, row in enumerate(ROWS) for part in row}
FILES = sorted(PACKAGE.rglob("*.py"))


#: Names that users import out of mmdb or mmdb.plan, and out of mmdb.orm, where tables give them.
TWICE = {"Estimate", "Model", "Recipe", "Run"}


def test_no_two_classes_have_one_name() -> None:
    trees = [ast.parse(file.read_text()) for file in FILES]
    names = Counter(
        node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == TWICE


def part_of(module: tuple[str, ...]) -> str:
    """Return the part that a module below mmdb belongs to.

    >>> part_of(("store", "tensors")), part_of(())
    ('store', '__init__')
    """
    return module[0] if module else "__init__"


def module_of(file: Path) -> tuple[str, ...]:
    """Return the path of a file's module below mmdb."""
    names = file.relative_to(PACKAGE).with_suffix("").parts
    return names if len(names) == 1 else tuple(name for name in names if name != "__init__")


def imported_parts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the part of each import of mmdb in a file, wherever it stands."""
    package = file.relative_to(PACKAGE).parent.parts
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top, *rest = alias.name.split(".")
                if top == "mmdb":
                    yield node.lineno, part_of(tuple(rest))
        elif isinstance(node, ast.ImportFrom):
            base = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                base = ("mmdb", *package[: len(package) - node.level + 1], *base)
            if base == ("mmdb",):  # `from mmdb import x`: a part, or a public name
                for alias in node.names:
                    yield node.lineno, alias.name if alias.name in ROW_OF else "__init__"
            elif base[:1] == ("mmdb",):
                yield node.lineno, part_of(base[1:])


def test_every_part_is_known() -> None:
    assert {part_of(module_of(file)) for file in FILES} <= set(ROW_OF)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_file_imports_nothing_that_stands_above_it(file: Path) -> None:
    here = ROW_OF[part_of(module_of(file))]
    wrong = [
        f"line {line}: {part}"
        for line, part in imported_parts(file)
        if ROW_OF.get(part, len(ROWS)) > here
    ]
    assert not wrong


def test_the_package_imports_no_tests() -> None:
    wrong = [file for file in FILES if re.search(r"\b(from|import) tests\b", file.read_text())]
    assert not wrong


def test_parts_do_not_import_each_other_in_a_circle() -> None:
    imports: dict[str, set[str]] = {}
    for file in FILES:
        part = part_of(module_of(file))
        others = {other for _, other in imported_parts(file)} - {part}
        imports.setdefault(part, set()).update(others)
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as circle:
        pytest.fail(f"circle: {' <- '.join(circle.args[1])}")


def test_folders_of_train_do_not_import_each_other_in_a_circle() -> None:
    imports: dict[str, set[str]] = {}
    for file in (PACKAGE / "train").glob("*/*.py"):
        folder = file.parent.name
        found = re.findall(
            r"^\s*(?:from|import) mmdb\.train\.(\w+)", file.read_text(), re.MULTILINE
        )
        imports.setdefault(folder, set()).update({*found} - {folder})
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as circle:
        pytest.fail(f"circle: {' <- '.join(circle.args[1])}")


def test_what_the_gate_leaves_out_is_there() -> None:
    assert not [path for path in sorted(gate.PATHS) if not path.exists()]


#: Names in Python of what the package has, as docstrings and comments point to it.
NAMES = re.compile(r"`(mmdb(?:\.\w+){2,})`")


def test_what_docstrings_point_to_is_there() -> None:
    for name in sorted({name for file in FILES for name in NAMES.findall(file.read_text())}):
        pkgutil.resolve_name(name)
