"""What notebooks are given: whole HTML, names as text, neither scripts nor outside links."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

import mmdb
from mmdb.api import Database
from mmdb.report.notebook import SHOWN, Differences, LineageRows
from mmdb.store.models.diff import TensorDifference
from tests.run_rows import Writer, add_run, ids
from tests.saved_models import net, save
from tests.unit.report.rows import NASTY

VOID = {"rect", "path", "br", "hr", "img", "input", "link", "meta"}


class Reader(HTMLParser):
    """Reads HTML; each element must be closed in its order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(shown: object) -> Reader:
    """Return what a notebook gets of an object, looked through for what it must not have."""
    html = shown._repr_html_()  # type: ignore[attr-defined]
    found = Reader(html)
    assert not found.tags & {"script", "iframe", "object", "link", "img", "form", "base", "meta"}
    for name, value in found.attributes:
        assert not name.startswith("on") and name not in ("href", "src", "srcdoc", "xlink:href")
        assert "javascript:" not in value and "url(" not in value
    assert "@import" not in html and "url(" not in html
    return found


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Yield a database with a run of many candidates and two versions of a model."""
    with mmdb.connect(f"duckdb:///{tmp_path_factory.mktemp('notebook') / 'zoo.duckdb'}") as opened:
        query = "SELECT i * 1.0 AS a, i * 2.5 AS y FROM range(40) AS g (i)"
        opened.create_dataset("two", query, partitions=2)
        (dataset,) = ids(opened, "dataset", "dataset_id")
        add_run(opened, "search", dataset, metric="rmse", maximize=False, epochs=1, strategy="mop")
        writer = Writer(opened, "search")
        for place in range(SHOWN + 10):
            writer.candidate({"lr": place, "optimizer": NASTY})
        save(opened, "net", net(4, 8, 2))
        save(opened, "net", net(4, 8, 2, seed=1))
        yield opened


def test_a_run_shows_how_far_it_is_and_its_best_candidates(db: Database) -> None:
    shown = read(db.run("search"))
    assert "Run search" in shown.text and "30 candidates" in shown.text
    assert f"{10} more rows" in shown.text and shown.tags >= {"table", "td"}


def test_a_model_shows_its_tensors(db: Database) -> None:
    shown = read(db.model("net@1"))
    assert "Model net@1" in shown.text and "0.weight" in shown.text and "8 x 4" in shown.text


def test_differences_are_a_list_that_shows_itself(db: Database) -> None:
    found = db.diff("net@1", "net@2")
    assert isinstance(found, list) and found[0].change == "changed"
    assert "0.weight" in read(found).text and "From net@1 to net@2" in found._repr_html_()
    assert "No tensor differs." in read(db.diff("net@1", "net@1")).text


def test_names_from_data_are_text() -> None:
    found = read(
        Differences([TensorDifference(path=NASTY, change="added", dtype="float32", shape=())])
    )
    assert NASTY in found.text
    rows = [
        {"depth": 1, "kind": "dataset", "parent": f"dataset:{NASTY}", "child": f"model:{NASTY}@1",
         "via": NASTY},
        {"depth": 2, "kind": "column", "parent": f"column:{NASTY}", "child": f"dataset:{NASTY}",
         "via": NASTY},
    ]  # fmt: skip
    for direction in ("up", "down"):
        assert f"dataset:{NASTY}" in read(LineageRows(rows, direction)).text


def test_a_lineage_is_drawn_above_its_steps() -> None:
    rows = [
        {"depth": 1, "kind": "model", "parent": "model:a@1", "child": "model:a@2", "via": "update"}
    ]
    shown = read(LineageRows(rows))
    assert "svg" in shown.tags and "1 step" in shown.text and LineageRows(rows) == rows
    assert "No lineage is known." in read(LineageRows()).text


def test_what_cannot_be_read_is_said(db: Database) -> None:
    gone = mmdb.Run(db, "gone")
    assert "There is no run named" in read(gone).text
