"""Whoever follows a hint or a page installs this mmdb, in the tested versions, and no other."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = PROJECT["name"]

_COMMAND = re.compile(r"\bpip3? (?:install|wheel)\b([^`\n]*)")
#: `mmdb`, `mmdb[ui]` or `mmdb-learn[ui]==1` as a requirement: no path, no file, no other name.
_REQUIREMENT = re.compile(r"(?<![\w./@-])(mmdb(?:-learn)?)(?:\[([\w,]+)\])?(?![\w/.-])")
_OURS = re.compile(r"""\s['"]?\.(?:\[[\w,]+\])?['"]?(?=[\s`)&]|$)|\bmmdb_learn-\S*whl""")


def texts() -> Iterator[tuple[Path, str]]:
    """Yield each file that people read or run, with its lines that go on joined."""
    folders = ("mmdb", "docs", "docker", "scripts", "sql", "udf")
    inside = (file for folder in folders for file in (ROOT / folder).rglob("*"))
    for file in (ROOT / "README.md", *inside):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, re.sub(r"\\\n\s*", " ", file.read_text())


def wrong_commands(text: str) -> Iterator[str]:
    """Yield each command of a text that installs another's package, or untested versions of ours.

    >>> list(wrong_commands("pip install 'mmdb[ui]'"))
    ["pip install 'mmdb[ui]'"]
    >>> list(wrong_commands("pip install ."))
    ['pip install .']
    """
    for command in _COMMAND.finditer(text):
        arguments = command[1]
        extras = PROJECT["optional-dependencies"]
        others = any(
            name != NAME or not set(wanted.split(",") if wanted else ()) <= set(extras)
            for name, wanted in _REQUIREMENT.findall(arguments)
        )
        if others or (_OURS.search(arguments) and "--constraint constraints.txt" not in arguments):
            if not arguments.strip().startswith("--no-deps --wheel-dir"):
                yield command[0].strip()


def test_no_command_installs_a_strangers_package_or_untested_versions() -> None:
    commands = [line for _, text in texts() for line in _COMMAND.findall(text)]
    assert sum("mmdb-learn[" in line for line in commands) >= 5  # the hints of each extra
    assert sum(bool(_OURS.search(line)) for line in commands) >= 4
    wrong = [
        f"{file.relative_to(ROOT)}: {line}"
        for file, text in texts()
        for line in wrong_commands(text)
    ]
    assert not wrong


@pytest.mark.parametrize(
    "command",
    [
        "pip install mmdb",
        "pip install -U 'mmdb==1.0'",
        'pip install "mmdb[report]"; a report as JSON needs none',
        "pip install 'mmdb-learn[reports]'",
        "/opt/mmdb/bin/pip install .",
        "pip install '.[ui]'",
        "pip install dist/mmdb_learn-0.1.0-py3-none-any.whl",
    ],
)
def test_a_wrong_command_is_found(command: str) -> None:
    assert list(wrong_commands(command))


def test_no_other_name_has_the_extras() -> None:
    assert not [
        file for file, text in texts() if re.search(r"\bmmdb\[(?:ui|orm|report|demo)", text)
    ]


def test_the_command_and_the_version_are_this_distributions() -> None:
    commands = entry_points(group="console_scripts", name="mmdb")
    assert NAME in {command.dist.name for command in commands if command.dist}
    assert version(NAME) == PROJECT["version"]
