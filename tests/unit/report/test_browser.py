"""The page in a real browser, where there is one: all is drawn, reached by keys, and readable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from mmdb.report.file import write_report
from mmdb.report.parts import ReportContent
from mmdb.report.subject_reports import report_of_model as model_report_of
from mmdb.report.subject_reports import report_of_run
from tests.browser import open_browser, opened
from tests.unit.report.rows import BEGIN, NASTY, facts, model_facts

RUN = report_of_run(facts(name=NASTY), BEGIN)
MODEL = model_report_of(model_facts(), BEGIN)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    found = {report.kind: folder / f"{report.kind}.html" for report in (RUN, MODEL)}
    for report in (RUN, MODEL):
        write_report(report, found[report.kind])
    return found


@pytest.mark.parametrize("report", [RUN, MODEL], ids=["run", "model"])
@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 360), ("dark", 360)]
)
def test_all_is_drawn_and_readable(
    browser: Browser,
    files: dict[str, Path],
    report: ReportContent,
    scheme: Literal["light", "dark"],
    width: int,
) -> None:
    file = files[report.kind]
    with opened(browser, file.as_uri(), scheme=scheme, width=width) as seen:
        seen.wait("html[data-drawn]")
        page = seen.page
        charts = sum(len(section.charts) for section in report.sections)
        assert page.locator(".chart > svg, .chart > canvas").count() == charts >= 4
        assert page.locator("html").get_attribute("data-failed") == "0"
        assert page.locator("svg.lineage:visible").count() == 1
        assert not seen.overflows()
        assert seen.complaints == []
        assert seen.requests == [file.as_uri()]
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")
        page.click("#theme")
        seen.wait(f"html[data-theme={'dark' if scheme == 'light' else 'light'}]")


@pytest.mark.parametrize(("kind", "scheme"), [("run", "light"), ("model", "dark")])
def test_contrast_roles_and_names_are_right(
    browser: Browser, files: dict[str, Path], kind: str, scheme: Literal["light", "dark"]
) -> None:
    with opened(browser, files[kind].as_uri(), scheme=scheme, axe=True) as seen:
        seen.wait("html[data-drawn]")
        seen.page.locator(".wide a.node").first.press("Enter")
        assert seen.violations() == []


def test_the_graph_is_clicked_through_by_keys(browser: Browser, files: dict[str, Path]) -> None:
    lineage = RUN.sections[-1].lineage
    assert lineage is not None
    with opened(browser, files["run"].as_uri()) as seen:
        seen.wait("html[data-drawn]")
        page = seen.page
        reached = []
        for _ in range(100):
            page.keyboard.press("Tab")
            reached.append(seen.focused())
            if reached.count("#node-0") > 1:
                break
        nodes = [f"#node-{k}" for k in range(len(lineage.graph.nodes))]
        assert set(nodes) <= set(reached)  # each node, and the button for the colours
        assert "theme" in reached
        (place,) = (k for k, node in enumerate(lineage.graph.nodes) if node.key == "dataset:digits")
        page.locator(f'.wide a.node[data-n="{place}"]').focus()
        page.keyboard.press("Enter")
        told = page.locator(".told")
        assert told.is_visible()
        assert "digits" in told.inner_text() and "6 columns" in told.inner_text()
        lit = page.locator(".wide .node.lit").evaluate_all("all => all.map(e => e.dataset.n)")
        names = {lineage.graph.nodes[int(k)].name for k in lit}
        assert {"digits", "6 columns", "id", "3 partitions", "predicted"} <= names
        assert "base.onnx" not in names and "candidate 100" not in names
        told.get_by_role("link", name="6 columns").press("Enter")  # on to the next one
        assert "column:public.orders.c3" in told.inner_text()
        page.keyboard.press("Escape")
        assert not told.is_visible() and page.locator("svg.dim").count() == 0


def test_without_scripts_a_node_leads_to_its_row(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["model"].as_uri(), scripts=False) as seen:
        page = seen.page
        assert "need JavaScript" in page.locator("noscript").inner_text()
        node = page.locator('.wide a.node[aria-label^="digits"]')
        row = page.locator(str(node.get_attribute("href")))
        assert not row.is_visible()
        node.click()
        row.wait_for(state="visible")
        assert "6 columns" in row.inner_text()
