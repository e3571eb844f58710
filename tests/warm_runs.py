"""Runs whose candidates begin with the tensors of a model `parent`, and what they logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mmdb.api import Database
from mmdb.data.reader import read_partition
from mmdb.store import states
from mmdb.train.compute.live import weights
from tests.integration.test_same_bits import fill

ADAM = {"optimizer": "adam", "batch_size": 64}
GRID = {"space": {"lr": [0.05, 0.01], **ADAM}}
ONE = {"space": {"lr": 0.05, **ADAM}}
PARENT = "mlp(hidden=[16, 8], batch_norm=True)"
WIDE = "mlp(hidden=[24, 8], batch_norm=True)"
DEEP = "mlp(hidden=[16, 8, 8], batch_norm=True, dropout=0.1)"
SLOWER = {"warm_start": {"lr_epochs": 1}}
#: Runs that begin with the model `parent`.
RUNS: dict[str, dict[str, Any]] = {
    "wide": {"architecture": WIDE, "search": GRID, "epochs": 2},
    "slower": {"architecture": WIDE, "search": GRID, "epochs": 2, "options": SLOWER},
    "deep": {"architecture": DEEP, "search": ONE, "epochs": 1},
    "shrunk": {
        "architecture": WIDE,
        "search": ONE,
        "epochs": 1,
        "options": {"warm_start": {"shrink": 0.7}},
    },
    "task": {"architecture": WIDE, "search": GRID, "epochs": 2, "strategy": "task"},
    "average": {
        "architecture": WIDE,
        "search": ONE,
        "epochs": 2,
        "strategy": "model_average",
        "options": SLOWER,
    },
    "group": {
        "architecture": WIDE,
        "search": ONE,
        "epochs": 2,
        "strategy": "data_parallel",
        "options": SLOWER,
    },
}
#: Three candidates, one after the other where one worker trains them.
GROWING: dict[str, Any] = {
    "architecture": "mlp(batch_norm=True)",
    "search": {"space": {"architecture.hidden": [[8], [12], [16]], "lr": 0.05, **ADAM}},
    "epochs": 2,
    "strategy": "task",
    "options": {"warm_start": {"within_run": True, "threshold": 0.5}},
}


def add_parent(db: Database) -> None:
    """Make dataset `d`, and train the model `parent` on it."""
    fill(db)
    run = db.create_run("parent", dataset="d", architecture=PARENT, search=ONE, epochs=3, seed=7)
    run.train(workers=1)


def create(db: Database, name: str, like: str) -> None:
    """Create a run as RUNS has it, that begins with `parent`."""
    db.create_run(name, dataset="d", warm_start="parent", seed=3, **RUNS[like])


def chain(db: Database, run: str) -> list[tuple[int, int, str, str, str]]:
    """Return candidate, epoch, role and the states around each hop of a run, in order."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, p.role, h.state_in, h.state_out"
        " FROM mmdb.hop AS h JOIN mmdb.candidate AS c ON c.candidate_id = h.candidate_id"
        " JOIN mmdb.partition AS p ON p.part_id = h.part_id JOIN mmdb.run AS r"
        f" ON r.run_id = c.run_id WHERE r.name = '{run}' ORDER BY c.ordinal, h.ordinal"
    )
    return [
        (r["candidate"], r["epoch"], r["role"], hexed(r["state_in"]), hexed(r["state_out"]))
        for r in rows
    ]


def hexed(state: Any) -> str:
    """Return the name of a state."""
    return bytes(state).hex()


def warm(db: Database, run: str) -> list[Mapping[str, Any]]:
    """Return what the candidates of a run began with, in order."""
    return db.sql(
        "SELECT w.*, s.state_hash FROM mmdb.warm_start_overview AS w JOIN mmdb.warm_start AS s"
        f" ON s.candidate_id = w.candidate_id WHERE w.run = '{run}' ORDER BY w.candidate"
    )


def first_weights(db: Database, row: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights that a candidate began with, out of its checkpoint."""
    for checkpoint in states.checkpoints(db.connection, row["candidate_id"]):
        if bytes(checkpoint["state_hash"]) == bytes(row["state_hash"]):
            place = (checkpoint["part_id"], row["candidate_id"], hexed(row["state_hash"]))
            state = states.read_checkpoint(db.connection, *place)
            assert state is not None and checkpoint["epoch"] == -1
            return weights(state)
    raise AssertionError("its first state is gone")


def held_out(db: Database) -> tuple[Tensor, Tensor]:
    """Return the rows of dataset `d` that candidates are validated on."""
    (row,) = db.sql("SELECT part_id, content_hash FROM mmdb.partition WHERE role = 'validation'")
    x, y = read_partition(db.connection, row["part_id"], bytes(row["content_hash"])).plain
    return torch.from_numpy(x), torch.from_numpy(y)
