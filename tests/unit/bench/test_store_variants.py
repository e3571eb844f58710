"""Filled networks are reproducible, and variants change what their names say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mmdb.bench import store_subject


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return store_subject.filled("mobilenet_v2", 1)


def changed(before: nn.Module, after: nn.Module) -> set[str]:
    old = before.state_dict()
    return {path for path, t in after.state_dict().items() if not torch.equal(t, old[path])}


def test_a_seed_decides_every_weight(network: nn.Module) -> None:
    assert not changed(network, store_subject.filled("mobilenet_v2", 1))
    other = changed(network, store_subject.filled("mobilenet_v2", 2))
    assert other == {path for path in network.state_dict() if "num_batches" not in path}


def test_a_filled_network_computes_finite_outputs(network: nn.Module) -> None:
    with torch.no_grad():
        y: Tensor = network(torch.rand(2, 3, 64, 64))
    assert y.isfinite().all() and y.std() > 0


def test_variants_change_what_their_names_say(network: nn.Module) -> None:
    head = {"classifier.1.weight", "classifier.1.bias"}
    block = {path for path in network.state_dict() if path.startswith("features.18.")}
    assert len(block) == 6
    assert changed(network, store_subject.classifier_changed(network, 3)) == head
    assert changed(network, store_subject.last_block_changed(network, 3)) == head | block
    assert changed(network, store_subject.every_weight_moved(network, 3)) == set(
        network.state_dict()
    )


def test_a_step_has_the_size_asked_for(network: nn.Module) -> None:
    before = network.state_dict()["features.18.0.weight"]
    after = store_subject.every_weight_moved(network, 3).state_dict()["features.18.0.weight"]
    step = (after - before).std() / before.std()
    assert step == pytest.approx(store_subject.STEP, rel=0.02)


def test_variances_stay_positive(network: nn.Module) -> None:
    moved = store_subject.every_weight_moved(network, 3).state_dict()
    assert all((t > 0).all() for path, t in moved.items() if path.endswith("running_var"))


def test_bfloat16_halves_the_floats_and_leaves_the_original_alone(network: nn.Module) -> None:
    half = store_subject.in_bfloat16(network)
    kinds = {t.dtype for t in half.state_dict().values()}
    assert kinds == {torch.bfloat16, torch.int64}
    assert network.state_dict()["classifier.1.weight"].dtype == torch.float32


def test_changed_bytes_counts_whole_tensors(network: nn.Module) -> None:
    moved = store_subject.classifier_changed(network, 3)
    assert store_subject.changed_bytes(network, moved) == 4 * (1000 * 1280 + 1000)
    assert store_subject.raw_bytes(network) == 4 * (3_504_872 + 2 * 17_056) + 8 * 52
