"""mmdb trains, keeps and explains deep-learning models inside the database that holds the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdb.api import Database, Run, connect
    from mmdb.errors import MmdbError

__all__ = ["Database", "MmdbError", "Run", "connect"]


def __getattr__(name: str) -> object:
    # Loaded on first use: a database session imports mmdb.server alone, and starts faster.
    if name not in __all__:
        raise AttributeError(f"module 'mmdb' has no attribute {name!r}")
    from mmdb import api, errors

    return getattr(errors if name == "MmdbError" else api, name)


def __dir__() -> list[str]:
    return list(__all__)
