"""An open database, whose zoo is empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mmdb.api import Database, connect


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield it once on each engine."""
    with connect(database_url) as opened:
        yield opened
