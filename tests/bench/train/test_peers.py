"""The contenders of the training bench train the same models on the same rows, and are measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
import torch

from mmdb.graph import factories
from tests.bench.train.contenders import Peer, contenders
from tests.bench.train.memory import PeakMemory, memory_bytes, parent_of, tree
from tests.bench.train.workload import CLASSES, WORKLOADS, Workload, draw_points, write_work

SMALL = replace(WORKLOADS[0], rows=4_000, epochs=1, arguments={"hidden": [16]})
RAY = os.environ.get("RAY_PYTHON")


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_peer_begins_with_the_weights_of_mmdbs_factory(workload: Workload) -> None:
    torch.manual_seed(3)
    ours = getattr(factories, workload.architecture)(
        tuple(workload.shape), CLASSES, **workload.arguments
    )
    torch.manual_seed(3)
    theirs = workload.module()
    x = torch.rand(2, *workload.shape)
    assert torch.equal(ours(x), theirs(x))
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the small workload."""
    x, y = draw_points(SMALL.rows)
    labels, rows = y.astype(np.int64), SMALL.rows // 5
    write_work(tmp_path, SMALL, list(range(8)), [x[rows:], labels[rows:], x[:rows], labels[:rows]])
    return tmp_path


def test_ranks_train_all_candidates_together(folder: Path) -> None:
    program = "tests.bench.train.ddp"
    peer = Peer("PyTorch DDP", program, folder, copies_rows=False, python=sys.executable)
    found = peer.train()
    assert len(found.accuracies) == 8
    assert 0 < found.train_s < found.whole_s
    assert max(found.accuracies) > 2 / CLASSES, "it has learnt nothing"
    assert found.peak_bytes > 100e6, "torch alone takes more"
    assert found.data_bytes > SMALL.rows * 64 * 4


@pytest.mark.skipif(not RAY, reason="RAY_PYTHON names no Python with ray[tune]")
def test_ray_trains_all_candidates_as_the_plain_loop_does(folder: Path) -> None:
    found = {}
    for name, python in (("ray", str(RAY)), ("loop", sys.executable)):
        peer = Peer(name, f"tests.bench.train.{name}", folder, copies_rows=True, python=python)
        found[name] = peer.train().accuracies
    assert np.allclose(found["ray"], found["loop"], atol=0.05)


def test_mmdb_and_the_plain_loop_come_to_the_same_accuracy(
    installed_duckdb_url: str, tmp_path: Path
) -> None:
    with contenders([installed_duckdb_url], SMALL, tmp_path / "work", None) as found:
        by_name = {contender.name: contender for contender in found}
        assert set(by_name) == {"mmdb, DuckDB", "plain loop", "PyTorch DDP"}
        measured = {name: by_name[name].train() for name in ("mmdb, DuckDB", "plain loop")}
    ours, plain = measured["mmdb, DuckDB"], measured["plain loop"]
    assert len(ours.accuracies) == len(plain.accuracies) == 8
    assert abs(mean(ours.accuracies) - mean(plain.accuracies)) < 0.1
    assert 0 < ours.train_s < ours.whole_s
    head = json.loads((tmp_path / "work" / "work.json").read_text())
    assert len(set(head["seeds"])) == 8


def test_memory_is_counted_over_a_process_tree() -> None:
    code = "import sys, time; held = bytearray(200_000_000); print(flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    process = subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        with PeakMemory([process.pid]) as memory:
            process.stdout.readline()  # the child holds its bytes now
            members = tree([process.pid])
            (child,) = members - {process.pid}
            assert parent_of(child) == process.pid
            assert memory_bytes(child) > 200e6
            while memory.peak_bytes < 200e6 and process.poll() is None:
                pass
        assert memory.peak_bytes > 200e6
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
    assert memory_bytes(child) == 0, "it is gone"
