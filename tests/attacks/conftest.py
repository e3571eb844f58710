"""The database that all attacks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.scene import Scene
from tests.bench.attack.hidden import Hidden, hidden_in
from tests.cluster import Cluster


@pytest.fixture(scope="session")
def scene(cluster: Cluster, template: str) -> Iterator[Scene]:
    """Yield a database with a dataset `d`, a trained run `r`, its model, and a run `s`."""
    attacked = Scene(cluster, template)
    yield attacked
    attacked.close()


@pytest.fixture(scope="session")
def hidden(cluster: Cluster, template: str) -> Iterator[Hidden]:
    """Yield a database with teams in which ann hides what she made."""
    with hidden_in(cluster, "mmdb_hidden", template) as made:
        yield made
