"""The promise of a fixed order: the same weights whatever engine, worker count or loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mmdb
from mmdb.api import Database
from mmdb.store import states
from mmdb.train.compute.live import weights

ROWS, WIDTH, CLASSES = 1100, 12, 3
SGD = {"name": "sgd", "momentum": 0.9}
STEP = {"name": "step", "step_size": 1, "gamma": 0.5}
SEARCH = {
    "space": {
        "optimizer": [SGD, "adam"],
        "lr": [0.05, 0.01],
        "schedule": [None, STEP],
        "batch_size": 48,
    },
}
ARCHITECTURE = "mlp(hidden=[16, 8], dropout=0.2, batch_norm=True)"


def fill(db: Database, seed: int = 5) -> None:
    """Create a table of separable classes and register it as dataset `d`."""
    source = np.random.default_rng(seed)
    x = source.normal(size=(ROWS, WIDTH)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0).astype(int)
    columns = ", ".join(f"c{k} real" for k in range(WIDTH))
    db.sql(f"CREATE TABLE points ({columns}, y integer)")
    order = np.random.default_rng(0 if db.connection.engine == "duckdb" else 1).permutation(ROWS)
    for start in range(0, ROWS, 100):
        rows = (f"({', '.join(repr(float(v)) for v in x[k])}, {y[k]})" for k in order[start:][:100])
        db.sql(f"INSERT INTO points VALUES {', '.join(rows)}")
    db.create_dataset("d", "SELECT * FROM points", partitions=3, seed=3)


def train(db: Database, name: str, workers: int, **options: Any) -> dict[int, bytes]:
    """Train the eight candidates and return each one's final state hash by ordinal."""
    run = db.create_run(
        name,
        dataset="d",
        architecture=ARCHITECTURE,
        search=SEARCH,
        epochs=2,
        seed=7,
        options=options,
    )
    run.train(workers=workers)
    return final_states(db, name)


def final_states(db: Database, name: str) -> dict[int, bytes]:
    """Return the hash of each candidate's last state by ordinal."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.state_out FROM mmdb.hop h "
        "JOIN mmdb.candidate c ON c.candidate_id = h.candidate_id "
        f"JOIN mmdb.run r ON r.run_id = c.run_id WHERE r.name = '{name}' ORDER BY h.ordinal"
    )
    return {row["candidate"]: bytes(row["state_out"]) for row in rows}


def plain_loop(
    config: dict[str, Any], seed: int, visits: list[tuple[int, int, bool, Any, Any]]
) -> dict[str, torch.Tensor]:
    """Train with PyTorch alone.

    Args:
        seed: of the initial weights.
        visits: (epoch, hop seed, ends epoch, x, y) in the logged order.
    """
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inner, outer in ((WIDTH, 16), (16, 8)):
        layers += [nn.Linear(inner, outer), nn.BatchNorm1d(outer), nn.ReLU(), nn.Dropout(0.2)]
    model = nn.Sequential(*layers, nn.Linear(8, CLASSES))
    kind = config["optimizer"]
    optimizer: torch.optim.Optimizer = (
        torch.optim.Adam(model.parameters(), lr=config["lr"])
        if kind == "adam"
        else torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    )
    schedule = config["schedule"] and torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    loss_function = nn.CrossEntropyLoss()
    model.train()
    for _, hop_seed, ends_epoch, x, y in visits:
        torch.manual_seed(hop_seed)
        for index in torch.randperm(len(x)).split(config["batch_size"]):
            optimizer.zero_grad()
            loss_function(model(x[index]), y[index]).backward()
            optimizer.step()
        if schedule and ends_epoch:
            schedule.step()
    return model.state_dict()


def logged_visits(db: Database, candidate_id: int) -> list[tuple[int, int, bool, Any, Any]]:
    """Return a candidate's train hops in the logged order, with the partitions' rows."""
    from mmdb.data.reader import read_partition

    rows = db.sql(
        "SELECT h.epoch, h.seed, h.part_id, p.content_hash FROM mmdb.hop h "
        "JOIN mmdb.partition p ON p.part_id = h.part_id "
        f"WHERE p.role = 'train' AND h.candidate_id = {candidate_id} ORDER BY h.ordinal"
    )
    visits = []
    for k, row in enumerate(rows):
        x, y = read_partition(db.connection, row["part_id"], bytes(row["content_hash"])).plain
        last = k + 1 == len(rows) or rows[k + 1]["epoch"] != row["epoch"]
        tensors = torch.from_numpy(x), torch.from_numpy(y)
        visits.append((row["epoch"], row["seed"], last, *tensors))
    return visits


def assert_equals_plain_loop(db: Database, name: str) -> None:
    """Compare every candidate's last checkpoint, tensor by tensor, with the plain loop."""
    candidates = db.sql(
        "SELECT c.candidate_id, c.config, c.seed FROM mmdb.candidate c "
        f"JOIN mmdb.run r ON r.run_id = c.run_id WHERE r.name = '{name}'"
    )
    assert len(candidates) == 8
    for candidate in candidates:
        config = candidate["config"]
        config = json.loads(config) if isinstance(config, str) else config
        last = states.checkpoints(db.connection, candidate["candidate_id"])[-1]
        stored = states.read_checkpoint(
            db.connection,
            last["part_id"],
            candidate["candidate_id"],
            bytes(last["state_hash"]).hex(),
        )
        assert stored is not None
        visits = logged_visits(db, candidate["candidate_id"])
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            expected = plain_loop(config, candidate["seed"], visits)
        finally:
            torch.set_num_threads(before)
        found = list(weights(stored).values())
        wanted = sorted(map(_digest, expected.values()))
        assert sorted(map(_digest, found)) == wanted


def _digest(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    return str(tensor.dtype), tuple(tensor.shape), tensor.numpy().tobytes()


def test_fixed_order_gives_the_same_bits_on_both_engines_with_one_worker_and_with_two(
    duckdb_url: str, postgres_url: str
) -> None:
    found = {}
    for url in (duckdb_url, postgres_url):
        with mmdb.connect(url) as db:
            fill(db)
            for workers in (1, 2):
                found[db.connection.engine, workers] = train(db, f"with-{workers}", workers)
            assert_equals_plain_loop(db, "with-2")
    reference = found["duckdb", 1]
    assert len(set(reference.values())) == 8
    for key, states_ in found.items():
        assert states_ == reference, key


@pytest.mark.parametrize("workers", [1, 2])
def test_a_free_order_equals_a_plain_loop_in_the_logged_order(
    database_url: str, workers: int, tmp_path: Path
) -> None:
    with mmdb.connect(database_url) as db:
        fill(db)
        train(db, "free", workers, order="free")
        assert_equals_plain_loop(db, "free")
