"""What tests of the model store look at: its rows, and whether a model came back."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from mmdb.api import Database
from mmdb.db.connection import Connection
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recover import load_tensors
from mmdb.store.models.save import Saved, save_model
from tests.tensors import same_bits

Tensors = Mapping[str, torch.Tensor]
TABLES = ("model", "tensor", "tensor_chunk", "encoding", "manifest", "manifest_tensor")
NOTHING = dict.fromkeys(TABLES, 0)


def rows_of(db: Database, table: str) -> int:
    """Return how many rows a table has."""
    return int(db.sql(f"SELECT count(*) AS n FROM mmdb.{table}")[0]["n"])


def counts(db: Database) -> dict[str, int]:
    """Return how many rows the store's tables have."""
    return {table: rows_of(db, table) for table in TABLES}


def load(connection: Connection, saved: Saved | str) -> dict[str, torch.Tensor]:
    """Return what was saved, verified."""
    reference = saved if isinstance(saved, str) else saved.reference
    return load_tensors(connection, find_model(connection, reference))


def check(connection: Connection, saved: Saved | str, expected: Tensors) -> None:
    """Assert that a model is what was saved, bit for bit and in its order."""
    found = load(connection, saved)
    assert list(found) == list(expected)
    for path, tensor in expected.items():
        assert same_bits(found[path], tensor), path


def check_usable(db: Database) -> None:
    """Assert that nothing was stored, and that the session goes on."""
    assert not db.connection.in_transaction
    assert counts(db) == NOTHING
    model = {"a": torch.randn(100, 100)}
    check(db.connection, save_model(db.connection, "next", model), model)
