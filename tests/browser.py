"""Finds a Chromium among the programs of this machine, and runs it without windows."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


class NoSandbox(Exception):
    """The system lets this user have no sandbox, and Chromium does not start without one."""


def find_browser() -> str | None:
    """Return the path of a Chromium, None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def run_browser(
    browser: str, url: str, profile: Path, *options: str, limit_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Load a page, and do with it what the options say.

    Args:
        profile: a folder that the browser may write to.
    Raises:
        NoSandbox
    """
    command = [
        browser,
        "--headless",
        "--disable-gpu",
        f"--user-data-dir={profile}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),  # for root it has none
        *options,
        url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    if done.returncode and "No usable sandbox" in done.stderr:
        raise NoSandbox
    done.check_returncode()
    return done
