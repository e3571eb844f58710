"""Skips that are not in the list fail, wherever they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = """
import pytest

{head}

@pytest.mark.parametrize("x", {values})
def test_something(x):
    {body}
"""
#: What a file holds, by what becomes of it.
FILES = {
    "SKIPPED": {"body": "pytest.skip('this machine has no IPv6')"},
    "FAILED": {"body": "pytest.skip('no time')"},
    "FAILED_missing": {"body": "pytest.importorskip('numbai')"},
    "ERROR_marked": {"head": "pytestmark = pytest.mark.skip(reason='flaky')"},
    "ERROR_whole": {"head": "pytest.skip('not today', allow_module_level=True)"},
    "ERROR_empty": {"values": "[]"},
    "PASSED": {"body": "pass"},
}


def test_only_what_a_machine_lacks_may_be_skipped_for(tmp_path: Path) -> None:
    for name, given in FILES.items():
        text = FILE.format(**{"head": "", "body": "pass", "values": "[1]"} | given)
        (tmp_path / f"test_{name}.py").write_text(text)
    options = ["-p", "tests.skips", "-p", "no:xdist", "-rA", "--no-fold-skipped"]
    options += ["--continue-on-collection-errors"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^([A-Z]+) .*\btest_(\w+)\.py", done.stdout, re.MULTILINE)
    assert {name: outcome for outcome, name in found} == {
        name: name.partition("_")[0] for name in FILES
    }, done.stdout
