"""Which tests stay together when they are spread over processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spread import unit_of

SHARED = '@pytest.fixture(scope="module")\ndef database(): ...\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with files whose tests share a fixture or copies, and one of no such."""
    folder = tmp_path / "tests" / "integration"
    folder.mkdir(parents=True)
    (folder / "test_shared.py").write_text(SHARED)
    (folder / "test_copied.py").write_text("def db(copies: Copies): ...\n")
    (folder / "test_alone.py").write_text("def test_a(): ...\n")
    return tmp_path


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        ("tests/integration/test_alone.py::test_a", None),
        ("tests/integration/test_alone.py::test_a[duckdb-1]", None),
        ("tests/integration/test_shared.py::test_a", "tests/integration/test_shared.py"),
        (
            "tests/integration/test_shared.py::test_a[duckdb-x]",
            "tests/integration/test_shared.py[duckdb]",
        ),
        (
            "tests/integration/test_shared.py::test_a[postgres]",
            "tests/integration/test_shared.py[postgres]",
        ),
        (
            "tests/integration/test_copied.py::test_a[postgres]",
            "tests/integration/test_copied.py[postgres]",
        ),
        ("tests/unit/db/test_a.py::test_a[1]", "tests/unit/db/test_a.py"),
        ("mmdb/terminal.py::mmdb.terminal.table", "mmdb/terminal.py"),
    ],
)
def test_tests_that_share_a_fixture_stay_together(root: Path, test: str, unit: str | None) -> None:
    for path in ("tests/unit/db/test_a.py", "mmdb/terminal.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    assert unit_of(root, test) == (unit or test)
