"""A notebook for real: a kernel runs its cells, and what it shows is drawn by a browser.

A screenshot is kept as `notebook.png` in the folder `pictures`.
"""

from __future__ import annotations

import json
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.bi.conftest import Shop
from tests.bi.environments import CLIENTS, output, program
from tests.cluster import ROOT

CELLS = (
    "import mmdb\nfrom sqlalchemy import select\ndb = mmdb.connect(URL)",
    "db.run('search')",
    "db.model('search@champion')",
    "db.lineage('model:search@1')",
    "db.lineage('column:public.digits.pixels', 'down')",
    "db.diff('search', 'wild')",
    "from mmdb import orm\ns = orm.session(db)\nsorted(s.scalars(select(orm.Run.name)))",
)


@pytest.fixture(scope="module")
def shown(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """Return the outputs of the cells, each a list by MIME type; the kernel has mmdb's packages."""
    folder = tmp_path_factory.mktemp("notebook")
    cells = json.dumps([cell.replace("URL", repr(shop.owner_url)) for cell in CELLS])
    variables = {"PYTHONPATH": str(ROOT), "HOME": str(folder)}
    command = (program("bi", "python"), CLIENTS / "notebook.py", sys.executable, str(folder), cells)
    found: list[list[Any]] = json.loads(output(*command, variables=variables))
    return found


def test_runs_models_differences_and_lineage_show_themselves(shown: list[list[Any]]) -> None:
    imported, *others, names = shown
    assert imported == [] and literal_eval(names[0]["text/plain"]) == ["search", "wild"]
    for cell, bundles in zip(CELLS[1:-1], others, strict=True):
        (bundle,) = bundles
        assert {"text/plain", "text/html"} <= set(bundle), cell
        html = bundle["text/html"]
        assert "<script" not in html and "http://" not in html.replace(SVG, "")
        assert "<table" in html, cell


SVG = "http://www.w3.org/2000/svg"


def test_lineage_is_drawn(shown: list[list[Any]]) -> None:
    for bundles in (shown[3], shown[4]):
        html = bundles[0]["text/html"]
        assert "<svg" in html and "search@1" in html and "digits" in html


def test_a_browser_shows_it(shown: list[list[Any]], browser: Browser, pictures: Path) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 1600})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    body = "<hr>".join(bundles[0]["text/html"] for bundles in shown[1:-1])
    page.set_content(f"<!doctype html><body style='font-family: sans-serif'>{body}")
    page.screenshot(path=pictures / "notebook.png", full_page=True)
    assert errors == [] and page.locator("svg").count() >= 2
    width = page.locator("svg").first.evaluate("svg => svg.getBoundingClientRect().width")
    assert width > 100
