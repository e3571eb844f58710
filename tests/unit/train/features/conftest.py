from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.train.features.networks import put_rows

#: Key of a partition of rows in the node's cache.
RAW = "1" * 64


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A partition of rows in a node's cache of its own."""
    folder: Path = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMDB_CACHE_DIR", str(folder))
        put_rows(RAW)
        yield RAW
