"""`mmdb demo` and the README, as someone meets them who has just installed mmdb."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.acceptance.pages import ROOT, allow_workers, run_page

WIDTH = 80


def shell(command: str, folder: Path, **variables: str) -> str:
    """Run a command line in a folder and return what it printed."""
    kept = {name: value for name, value in os.environ.items() if name != "MMDB_URL"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env=kept | {"PATH": path, "COLUMNS": str(WIDTH)} | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def next_commands(printed: str) -> list[str]:
    """Return the commands that the demo ends with."""
    return [line.strip() for line in printed.splitlines() if line.startswith("  mmdb ")]


def test_the_readme_runs_and_the_commands_that_its_demo_prints_do_too(
    shop_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    allow_workers(shop_url)
    printed, *_ = run_page(ROOT / "README.md", shop_url)
    for title in ("Leaderboard", "Predictions of digits-search@1", "Lineage of digits-search@1"):
        assert title in printed
    assert "digits.pixels" in printed and "200 hops in" in printed
    commands = next_commands(printed)
    assert [command.split()[1] for command in commands] == ["sql", "predict", "train"]
    for command in commands:
        assert len(shell(command, tmp_path).splitlines()) > 10, command
    others = [line for line in printed.splitlines() if line.strip() not in commands]
    assert max(map(len, others)) <= WIDTH
    assert "…" not in printed


def test_the_demo_runs_on_postgres_and_prints_no_password(
    postgres_url: str, tmp_path: Path
) -> None:
    printed = shell(f"mmdb demo --workers 2 --database {postgres_url}", tmp_path)
    assert str(urlsplit(postgres_url).password) not in printed
    for command in next_commands(printed):
        shell(command, tmp_path, MMDB_URL=postgres_url)
