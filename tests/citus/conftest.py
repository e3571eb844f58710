"""A Citus cluster of two nodes that the tests share, each with a database of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mmdb.db.install import install
from tests.citus_cluster import CitusCluster, has_citus


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs Citus where it is missing."""
    if has_citus():
        return
    skip = pytest.mark.skip(reason="the extension Citus is not installed")
    for item in items:
        if item.get_closest_marker("citus"):
            item.add_marker(skip)


@pytest.fixture(scope="module")
def citus() -> Iterator[CitusCluster]:
    """Yield a coordinator with two nodes."""
    with CitusCluster(nodes=2) as running:
        yield running


@pytest.fixture(scope="module")
def new_citus_database(citus: CitusCluster) -> Callable[[str], str]:
    """Return what makes a database of a name with mmdb installed, and returns its URL."""

    def create(name: str) -> str:
        url = citus.create_database(name)
        install(url)
        return url

    return create
