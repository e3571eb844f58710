"""README.md and docs/ say what is true: their examples run and print what they show."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.pages import FILE, PAGES, ROOT, allow_workers, examples, run_page


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if examples(page) and page.name != "README.md"],  # see test_demo.py
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_examples_of_a_page_run_and_print_what_it_shows(
    page: Path,
    shop_url: str,
    digits_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(digits_file, FILE.removeprefix("duckdb:///"))
    if page.name != "running.md":  # which tells how
        allow_workers(shop_url)
    run_page(page, shop_url)
