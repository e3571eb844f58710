"""Memory that a process has freed is there for its next step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
#: Prints the page faults of five steps, each of which needs 64 MB for a while.
FAULTS = """
import resource, sys
import torch
from mmdb.train.values.runtime import keep_freed_memory
if sys.argv[1] == "kept" and not keep_freed_memory():
    sys.exit(77)
def step():
    torch.ones(16_000_000).add_(1)
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip("another C library than glibc")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(
    "[always]" in (HUGE.read_text() if HUGE.exists() else ""), reason="pages are huge ones"
)
def test_that_the_system_is_not_asked_again() -> None:
    """Five times 16,000 pages are given anew, unless they are kept, but for a block or two."""
    assert _faults("kept") < 40_000 < _faults("left")
