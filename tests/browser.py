"""A Chromium of this machine, without windows, and what pages do in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
#: Milliseconds after which something that a page should do has failed to happen.
LIMIT_MS = 120_000


def find_browser() -> str | None:
    """Return the path of a Chromium, None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start the machine's Chromium; where there is none, the test is skipped."""
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium; run: .venv/bin/python -m scripts.system_packages")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass(frozen=True, slots=True)
class Seen:
    """A page, with all that it asked for and all that it complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)  # addresses
    complaints: list[str] = field(default_factory=list)  # texts of the console, and errors

    def wait(self, selector: str) -> None:
        """Wait until there is such an element."""
        self.page.wait_for_selector(selector, state="attached", timeout=LIMIT_MS)

    def focused(self) -> str:
        """Return the address of the link that has the focus, or what else has it."""
        found: str = self.page.evaluate(
            "(e => e.getAttribute('href') || e.id || e.className || e.tagName)"
            "(document.activeElement)"
        )
        return found

    def overflows(self) -> bool:
        """Return whether the page has to be scrolled sideways."""
        root = "document.documentElement"
        return bool(self.page.evaluate(f"{root}.scrollWidth > {root}.clientWidth"))

    def violations(self) -> list[str]:
        """Return what axe finds wrong with contrast, roles and names, all boxes open."""
        self.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        found = Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:300]}" for one in found]


@contextmanager
def opened(
    browser: Browser,
    url: str,
    *,
    scheme: Literal["light", "dark"] = "light",
    width: int = 1200,
    scripts: bool = True,
    axe: bool = False,
) -> Iterator[Seen]:
    """Open a page.

    Args:
        width: pixels; 360 is a phone.
        axe: let `violations` add its script to the page, whatever the page's policy says.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        java_script_enabled=scripts,
        bypass_csp=axe,
    )
    context.set_default_timeout(LIMIT_MS)
    page = context.new_page()
    seen = Seen(page)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("console", lambda message: seen.complaints.append(message.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    try:
        page.goto(url)
        yield seen
    finally:
        context.close()
