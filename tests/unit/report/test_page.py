"""The page: whole in itself, and what comes from data is never markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from mmdb.report import picture
from mmdb.report.facts import RunFacts
from mmdb.report.page import PageFrame, page
from mmdb.report.parts import ReportContent
from mmdb.report.subject_reports import report_of_model as model_report_of
from mmdb.report.subject_reports import report_of_run
from tests.unit.report.rows import BEGIN, NASTY, facts, model_facts

RUN = ["leaderboard", "learning", "workers", "plan", "outcome"]


class Seen(HTMLParser):
    """Collects a page's elements and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open, data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "libraries", lambda: "window.vegaEmbed = null;")


def report(some: RunFacts | None = None) -> ReportContent:
    return report_of_run(facts() if some is None else some, BEGIN)


def seen(some: RunFacts | None = None) -> Seen:
    return Seen(page(report(some)).decode())


def test_the_page_has_every_section_chart_and_table() -> None:
    found = seen()
    sections = [attributes["id"] for attributes in found.named("section")]
    assert sections == [*RUN, "storage", "lineage"]
    links = [attributes["href"] for attributes in found.named("a")][1:]
    assert links[: len(sections)] == [f"#{name}" for name in sections]
    charts = [a for a in found.named("div") if a.get("class") == "chart"]
    assert len(charts) == 7
    assert all(a["role"] == "img" and len(a["aria-label"] or "") > 40 for a in charts)
    tables = [a for a in found.named("div") if a.get("class") == "scroll"]
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in tables) and len(tables) == 7


def test_the_page_asks_for_nothing() -> None:
    found = seen()
    assert not found.named("link") and not found.named("img") and not found.named("iframe")
    assert all("src" not in attributes for _, attributes in found.elements)
    assert all((a.get("href") or "#").startswith("#") for _, a in found.elements)
    (policy,) = (a["content"] for a in found.named("meta") if a.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")
    text = page(report()).decode()
    text = text.replace('xmlns="http://www.w3.org/2000/svg"', "")  # a name, not an address
    assert not re.search(r"url\(|@import|https?:", text)


def test_the_specifications_are_in_the_page() -> None:
    found = seen()
    (data,) = (text for tag, text in found.texts if text.startswith('{"configs"'))
    given = json.loads(data)
    assert len(given["charts"]) == 7 and set(given["configs"]) == {"light", "dark"}
    whole = report()
    assert given["charts"] == [c.spec for section in whole.sections for c in section.charts]


def test_what_comes_from_data_is_escaped() -> None:
    board = [{**row, "error": NASTY, "parent": NASTY} for row in facts().board]
    hops = [{**hop, "worker": NASTY, "node": NASTY} for hop in facts().hops]
    notes = [{**row, "notes": json.dumps([NASTY])} for row in facts().plan]
    some = facts(name=NASTY, board=board, hops=hops, plan=notes)
    found = seen(some)
    assert len(found.named("script")) == 4
    assert not any("alert" in str(value) for _, a in found.elements for key, value in a.items()
                   if key != "aria-label")  # fmt: skip
    assert any(tag == "h1" and NASTY in text for tag, text in found.texts)
    raw = page(report(some)).decode()
    assert "<script>alert" not in raw and "\u2028" not in raw.split('id="charts"')[1]


def test_a_run_that_was_never_trained_has_a_plan_alone() -> None:
    nothing = dict.fromkeys(("best_value", "started", "ended"))
    fresh = {**facts().run, **nothing, "status": "created"}
    some = replace(
        facts(), run=fresh, board=[], epochs=[], hops=[], models=[], outcome=None, lineage=None
    )
    assert [a["id"] for a in seen(some).named("section")] == ["plan"]
    bare = replace(some, plan=[])
    assert any("mmdb explain search" in text for _, text in seen(bare).texts)


def test_a_page_of_a_model_has_its_sections_and_escapes_what_people_wrote() -> None:
    some = model_facts()
    whole = model_report_of(some, BEGIN)
    found = Seen(page(whole).decode())
    sections = [attributes["id"] for attributes in found.named("section")]
    assert sections == [
        "lineage", "versions", "evaluations", "groups", "predictions", "training", "storage",
        "outcome",
    ]  # fmt: skip
    assert ("dd", "import of /data/churn.onnx") in found.texts
    assert len([a for a in found.named("div") if a.get("class") == "chart"]) == 13
    assert len(found.named("script")) == 4
    notes = [text for tag, text in found.texts if tag == "td" and text == NASTY]
    assert len(notes) == 13  # and what evaluations and groups tell; the tag is among the facts
    assert ("dd", f"stage={NASTY}") in found.texts
    bare = ["versions", "metrics", "aliases", "tags", "notes", "tensors", "epochs", "hops"]
    nothing: dict[str, Any] = {
        key: [] for key in [*bare, "transfers", "predictions", "evaluations", "groups"]
    }
    nothing["figures"] = {}
    least = model_report_of(model_facts(**nothing, outcome=None, lineage=None, origin=None), BEGIN)
    assert [section.key for section in least.sections] == ["versions"]
    assert page(least)


def test_every_node_of_the_graph_has_a_row_that_links_to_its_neighbours() -> None:
    some = facts()
    assert some.lineage is not None
    found = seen(some)
    ids = {attributes["id"] for attributes in found.named("tr") if "id" in attributes}
    assert ids == {f"node-{k}" for k in range(len(some.lineage.nodes))}
    links = [a["href"] for a in found.named("a") if (a["href"] or "").startswith("#node-")]
    drawn = [a["href"] for a in found.named("a") if a.get("class", "") or "data-n" in a]
    assert {link for link in links if link} == {f"#{one}" for one in ids}
    nodes, edges = len(some.lineage.nodes), len(some.lineage.edges)
    assert len(drawn) - 1 == 2 * nodes  # for screens and for phones; and the link to the content
    assert len(links) == 2 * nodes + 2 * edges


def test_scripts_are_named_by_their_hashes() -> None:
    found = seen()
    (policy,) = (a["content"] for a in found.named("meta") if a.get("http-equiv"))
    assert policy is not None and "unsafe-inline" not in policy.split("style-src")[0]
    assert policy.count("'sha256-") == 3


def test_a_page_that_is_served_has_links_and_no_scripts_of_its_own() -> None:
    frame = PageFrame(scripts=("/a.js", "/b.js"), page_of=lambda e: f"/at/{e}", state="/s", tag="t")
    text = page(report(), frame).decode()
    found = Seen(text)
    assert [a.get("src") for a in found.named("script")[1:]] == ["/a.js", "/b.js"]
    assert not any(tag == "script" and "mmdb" in body for tag, body in found.texts[1:])
    assert "http-equiv" not in text and 'data-state="/s" data-tag="t"' in text
    links = [a["href"] for a in found.named("a")]
    assert "/at/dataset:digits" in links and "/at/model:search@1" in links


def test_a_thousand_candidates_are_not_too_many() -> None:
    some = facts(candidates=1000, epochs=5, workers=8)
    whole = page(report(some))
    assert len(whole) < 4_000_000  # Vega is 0.9 MB more
    assert whole.count(b"<tr>") > 1000
