from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mmdb.graph.factories import mlp, resnet
from mmdb.plan.profile.machine_profile import profile_of
from mmdb.plan.step.recording import batch_of
from mmdb.plan.step.roofline import (
    KernelRate,
    Speeds,
    candidate_cost,
    layers,
    line_through,
    part_seconds,
    speeds_of,
    step_seconds,
    update_seconds,
)
from mmdb.plan.step.step_work import Work, work_of


def work(module: nn.Module, shape: tuple[int, ...]) -> Work:
    return work_of(module, batch_of(shape), optimizer=torch.optim.Adam)


@pytest.fixture(scope="module")
def small() -> Work:
    with torch.device("meta"):
        return work(mlp((20,), 3, hidden=[64, 32]), (20,))


def test_a_rate_rises_with_the_size_and_falls_with_a_narrow_side() -> None:
    rate = KernelRate(peak=1e9, half=1e6, half_sides=(0.0, 4.0, 0.0))
    flops, sides = np.array([1e6, 1e12, 0.0]), np.array([[8, 8, 0], [4, 4e9, 0], [8, 8, 0]])
    half, whole, nothing = rate.seconds(flops, sides)
    assert half == pytest.approx(2e6 / 1e9 * 2)
    assert whole == pytest.approx(1e12 / 1e9, rel=1e-4)
    assert nothing == 0


def test_an_operation_takes_the_longer_of_computing_and_moving(small: Work) -> None:
    slow = Speeds(rates={"matmul": KernelRate(peak=1.0)}, bandwidth=1e30)
    flops = small.flops.at(16)[small.sides.at(16)[0] > 0].sum()
    assert step_seconds(small, slow, 16) == pytest.approx(flops)
    narrow = Speeds(rates={"matmul": KernelRate(peak=1e30)}, bandwidth=1.0)
    moved = (small.read.at(16) + small.written.at(16)).sum()
    update = small.update.read + small.update.written
    assert step_seconds(small, narrow, 16) == pytest.approx(moved + update)


def test_kernels_cost_their_start(small: Work) -> None:
    found = Speeds(rates={}, bandwidth=1e30, call_s=1.0, call_backward_s=100.0, update_call_s=1e6)
    calls = small.calls.at(16)
    expected = calls[~small.backward].sum() + 100 * calls[small.backward].sum()
    assert part_seconds(small, found, 16).sum() == pytest.approx(expected)
    assert update_seconds(small, found) == pytest.approx(1e6 * small.update.calls)


def test_little_moves_at_the_caches_speed() -> None:
    found = Speeds(rates={}, bandwidth=1.0, cache_bytes=10, cache_bandwidth=10.0)
    assert found.moving_s(np.array([5.0, 10.0, 30.0])).tolist() == [0.5, 1.0, 21.0]


@pytest.mark.parametrize("seconds", [[1.0, 4.0], [4.0, 1.0], [2.0, 2.0]])
def test_a_line_never_falls_below_zero(seconds: list[float]) -> None:
    fixed, row = line_through([1, 2], seconds)
    assert fixed >= 0
    assert row >= 0


def test_costs_of_a_candidate(small: Work) -> None:
    speeds = Speeds(rates={}, bandwidth=1e9, call_s=1e-6, call_backward_s=1e-6)
    cost = candidate_cost(small, speeds, 64)
    assert cost.step_s + 64 * cost.row_s == pytest.approx(step_seconds(small, speeds, 64), rel=0.01)
    parameters = 20 * 64 + 64 + 64 * 32 + 32 + 32 * 3 + 3
    assert cost.gradient_bytes == 4 * parameters
    assert cost.state_bytes == pytest.approx(12 * parameters, rel=0.01)
    assert cost.memory_bytes + 64 * cost.memory_row_bytes == pytest.approx(small.resident_bytes(64))
    assert candidate_cost(small, speeds, 64, factor=2.0).row_s == pytest.approx(2 * cost.row_s)


def test_layers_are_cut_where_weights_begin() -> None:
    with torch.device("meta"):
        found = work(resnet((3, 8, 8), 10, width=4), (3, 8, 8))
    speeds = Speeds(rates={}, bandwidth=1e9)
    cut = layers(found, speeds, 8)
    assert sum(one.parameter_bytes for one in cut) == found.parameter_bytes
    # Between the first convolution and its norm: 4 channels of 8 x 8.
    assert cut[0].activation_row_bytes == 4 * 8 * 8 * 4
    assert cut[-1].activation_row_bytes == 0
    forward = part_seconds(found, speeds, 8)[~found.backward].sum() / 8
    assert sum(one.forward_row_s for one in cut) == pytest.approx(forward, rel=0.2)


def test_the_peak_grows_with_the_batch_and_holds_the_state(small: Work) -> None:
    peaks = [small.peak_bytes(rows) for rows in (1, 16, 256, 4096)]
    assert peaks == sorted(peaks)
    assert peaks[0] > small.state_bytes + small.gradient_bytes
    assert peaks[-1] > small.state_bytes + small.kept.at(4096)[0]
    grown = [small.resident_bytes(rows) for rows in (1, 16, 256, 4096)]
    assert grown == sorted(grown)
    assert all(grows > peak for grows, peak in zip(grown, peaks, strict=True))


def test_a_profile_that_nobody_measured_gives_ordinary_speeds(small: Work) -> None:
    found = speeds_of(profile_of([]))
    assert found.assumed
    assert found.rates["convolution"].peak == pytest.approx(4e10, rel=0.01)
    assert found.call_s == pytest.approx(6e-6, rel=0.1)
    assert 1e-4 < step_seconds(small, found, 64) < 0.1
