from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.train.features.networks import put_rows

#: Key of a partition of rows in the node's cache.
RAW = "1" * 64


@pytest.fixture
def raw(cache_folder: Path) -> str:
    """A partition of rows in the node's cache."""
    put_rows(RAW)
    return RAW
