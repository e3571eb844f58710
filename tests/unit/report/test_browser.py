"""The page in a real browser, where there is one: every chart is drawn, and nothing fails."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mmdb.report.file import write_report
from mmdb.report.run.report import report_of
from tests.unit.report.rows import BEGIN, NASTY, facts

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def test_every_chart_is_drawn(tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium; apt-get install chromium-headless-shell")
    file = tmp_path / "report.html"
    report = report_of(facts(name=NASTY), BEGIN)
    write_report(report, file)
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--dump-dom",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=20000",
    ]
    command = [browser, *options, file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert re.search(r'<html[^>]* data-failed="0"', done.stdout), done.stderr
    charts = sum(len(section.charts) for section in report.sections)
    assert len(re.findall(r'<div class="chart[^>]*><(?:svg|canvas)', done.stdout)) == charts
    assert "CONSOLE" not in done.stderr
