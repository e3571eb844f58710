"""The database that all attacks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.scene import Scene
from tests.cluster import Cluster


@pytest.fixture(scope="session")
def scene(
    cluster: Cluster, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """Yield a database with a dataset `d`, a trained run `r`, its model, and a run `s`."""
    attacked = Scene(cluster, template, tmp_path_factory.mktemp("attacks"))
    yield attacked
    attacked.close()
