"""The peers that need other packages give back what they got; skipped where one is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mmdb.bench import store_subject
from tests.bench.store import peer_h5py
from tests.bench.store.peer_mmlib import Approach, MMLib, network, training
from tests.cluster import Cluster

MMLIB = os.environ.get("MMLIB_SOURCE")
needs_mmlib = pytest.mark.skipif(not MMLIB, reason="MMLIB_SOURCE names no checkout of MMLib")


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return sorted(a) == sorted(b) and all(torch.equal(a[path], b[path]) for path in a)


@pytest.fixture(scope="module")
def mobilenet() -> nn.Module:
    return store_subject.filled("mobilenet_v2", 1)


def test_hdf5_keeps_every_dtype_and_reads_rows(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    state = {
        "weight": torch.arange(12.0).reshape(3, 4),
        "half": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
        "count": torch.tensor(7),
    }
    size = peer_h5py.save(state, tmp_path / "state.h5")
    assert size == (tmp_path / "state.h5").stat().st_size
    found = peer_h5py.load(tmp_path / "state.h5")
    assert same(found, state) and found["half"].dtype == torch.bfloat16
    with peer_h5py.H5File(tmp_path / "state.h5") as file:
        assert torch.equal(file.tensor("weight", (1, 3)), state["weight"][1:3])


@pytest.mark.filterwarnings("default")
def test_mlflow_registers_versions_and_leaves_no_database(
    tmp_path: Path, cluster: Cluster, mobilenet: nn.Module
) -> None:
    pytest.importorskip("mlflow")
    from tests.bench.store.peer_mlflow import registry

    server = cluster.create_database("mlflow_peer")
    with registry(server, tmp_path) as mlflow:
        files, _ = mlflow.stored_bytes()
        for _ in range(2):
            mlflow.save("chain", mobilenet)
        more = mlflow.stored_bytes()[0] - files
        assert more > 2 * store_subject.raw_bytes(mobilenet)
        assert same(mlflow.recover("chain", 2).state_dict(), mobilenet.state_dict())
    cluster.drop_database("mlflow_peer")


@needs_mmlib
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("approach", ["baseline", "update", "provenance"])
def test_mmlib_recovers_what_it_saved(
    tmp_path: Path, mobilenet: nn.Module, approach: Approach
) -> None:
    library = MMLib(Path(str(MMLIB)), tmp_path / "store", approach)
    fresh = network("mobilenet_v2", mobilenet)
    base = library.save(fresh)
    before = library.stored_bytes()
    if approach == "provenance":
        data = tmp_path / "data"
        data.mkdir()
        write_pictures(data)
        child, changed = library.train(base, training(fresh, data, tmp_path), fresh)
    else:
        changed = network("mobilenet_v2", store_subject.classifier_changed(mobilenet, 2))
        child = library.save(changed, base)
    share = (library.stored_bytes() - before) / before
    assert (0.9 < share < 1.1) if approach == "baseline" else (0 < share < 0.5)
    assert same(library.recover(child).state_dict(), changed.state_dict())
    assert not torch.are_deterministic_algorithms_enabled()


def write_pictures(folder: Path) -> None:
    import numpy as np

    draw = np.random.default_rng(3)
    np.save(folder / "x.npy", draw.random((16, 3, 32, 32), dtype=np.float32))
    np.save(folder / "y.npy", draw.integers(0, 1000, 16))
