"""The database that all attacks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.scene import Scene
from tests.cluster import Cluster


@pytest.fixture(scope="session")
def scene(cluster: Cluster, template: str) -> Iterator[Scene]:
    """Yield a database with a dataset `d`, a trained run `r`, its model, and a run `s`."""
    attacked = Scene(cluster, template)
    yield attacked
    attacked.close()
