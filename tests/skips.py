"""What a test may be skipped for: a list of what machines lack. Any other skip is a failure."""

from __future__ import annotations

import re
from collections.abc import Generator

import pytest

#: Reasons, as they begin.
ALLOWED = (
    # Programs and extensions.
    "another C library than glibc",
    "apt does not know the packages of this machine's server",
    "no Chromium",
    "the extension Citus is not installed",
    "the extension vector is not installed",
    "There is no program `(ip|nsenter|openssl|pgbouncer)`",
    "this server has no dblink",
    # Peers that benches are measured against; they are no dependencies.
    "could not import '(h5py|mlflow)'",
    "MMLIB_SOURCE names no checkout",
    "RAY_PYTHON names no Python",
    # The system, and what this user may do.
    "Network namespaces cannot be made",
    "needs Linux",
    "no right to mount a small file system",
    "only root and the server's user may look at its memory",
    "pages are huge ones",
    "there is a GPU here",
    "torch sees no accelerator",
    "torch sees no simulated accelerator",
    "this machine has no IPv6",
)
_ALLOWED = re.compile("|".join(ALLOWED))


def refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Let a report of a skip that is not allowed be one of a failure."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    assert isinstance(report.longrepr, tuple)
    path, line, said = report.longrepr
    reason = said.removeprefix("Skipped: ")
    if not _ALLOWED.match(reason):
        report.outcome = "failed"
        report.longrepr = f"{path}:{line}: skipped, which tests/skips.py does not allow: {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look at the report of a test."""
    report = yield
    refuse(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Look at the report of a file that was collected."""
    report = yield
    refuse(report)
    return report
