"""The page in a real browser, where there is one: every chart is drawn, and nothing fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mmdb.report.file import write_report
from mmdb.report.run.report import report_of
from tests.browser import NoSandbox, find_browser, run_browser
from tests.unit.report.rows import BEGIN, NASTY, facts

_WHAT = ("--enable-logging=stderr", "--dump-dom", "--virtual-time-budget=20000")


def test_every_chart_is_drawn(tmp_path: Path) -> None:
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium; run: .venv/bin/python -m scripts.system_packages")
    file = tmp_path / "report.html"
    report = report_of(facts(name=NASTY), BEGIN)
    write_report(report, file)
    try:
        done = run_browser(browser, file.as_uri(), tmp_path / "profile", *_WHAT)
    except NoSandbox:
        pytest.skip("Chromium needs user namespaces, or its package chromium-sandbox")
    assert re.search(r'<html[^>]* data-failed="0"', done.stdout), done.stderr
    charts = sum(len(section.charts) for section in report.sections)
    assert len(re.findall(r'<div class="chart[^>]*><(?:svg|canvas)', done.stdout)) == charts
    assert "CONSOLE" not in done.stderr
