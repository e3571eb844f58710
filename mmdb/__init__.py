"""mmdb trains, keeps and explains deep-learning models inside the database that holds the data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdb.api import Database, Run, connect
    from mmdb.api.saved_models import Model
    from mmdb.data.exported import read_transforms
    from mmdb.errors import EnvironmentDiffers, MmdbError, MmdbWarning
    from mmdb.store.models.recipe import Recipe
    from mmdb.train.compute.exact import rng_state
    from mmdb.train.warm.transfer_rows import Transferred

#: Public names, and the modules that have them.
_MODULES = {
    "Database": "api",
    "EnvironmentDiffers": "errors",
    "MmdbError": "errors",
    "MmdbWarning": "errors",
    "Model": "api.saved_models",
    "Recipe": "store.models.recipe",
    "Run": "api",
    "Transferred": "train.warm.transfer_rows",
    "connect": "api",
    "read_transforms": "data.exported",
    "rng_state": "train.compute.exact",
}
__all__ = [
    "Database",
    "EnvironmentDiffers",
    "MmdbError",
    "MmdbWarning",
    "Model",
    "Recipe",
    "Run",
    "Transferred",
    "connect",
    "read_transforms",
    "rng_state",
]


def __getattr__(name: str) -> object:
    # Loaded on first use: a database session imports mmdb.server alone, and starts faster.
    if name not in _MODULES:
        raise AttributeError(f"module 'mmdb' has no attribute {name!r}")
    return getattr(import_module(f"mmdb.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
