"""Small models, saved, and what the zoo says of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from mmdb.api import Database


def net(*widths: int, seed: int = 0) -> nn.Sequential:
    """Return linear layers with something in between."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def save(
    db: Database,
    name: str,
    module: nn.Module,
    accuracy: float | None = None,
    dataset: str | None = None,
    **options: Any,
) -> str:
    """Save a model with an accuracy and return it as `name@version`."""
    metrics = {} if accuracy is None else {"accuracy": accuracy}
    return db.save(name, module, metrics=metrics, dataset=dataset, **options).reference


def rows(db: Database, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query as tuples."""
    return [tuple(row.values()) for row in db.sql(sql)]


def events(db: Database) -> list[tuple[Any, ...]]:
    """Return the zoo's decisions in order."""
    return rows(
        db, "SELECT model, version, event, by_rule FROM mmdb.zoo_decisions ORDER BY event_id"
    )
