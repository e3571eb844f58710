"""The baseline behaves as its original was measured to, its defects included."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from tests.bench.warm import language, nasbench
from tests.bench.warm.modelkeeper import ModelKeeper
from tests.bench.warm.modelkeeper_graph import graph_of, sorted_for_matching
from tests.bench.warm.modelkeeper_matching import aligned

X = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def chain(width: int, side: int = 3, depth: int = 4) -> nn.Sequential:
    widths = [3, *[width] * depth]
    return nn.Sequential(*(nn.Conv2d(a, b, side, padding=side // 2) for a, b in pairwise(widths)))


class Residual(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 3, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return x


def self_score(module: nn.Module) -> float:
    return aligned(graph_of(module), graph_of(module), integers=True)[0]


def test_a_chain_matches_itself_layer_by_layer() -> None:
    score, pairs = aligned(graph_of(chain(8)), graph_of(chain(8)), integers=True)
    assert score == 1.0
    assert all(i == j for i, j in pairs) and len(pairs) == 4


@pytest.mark.parametrize("width", [9, 12])
def test_integers_make_a_mismatch_of_each_other_width(width: int) -> None:
    parent, child = graph_of(chain(8)), graph_of(chain(width))
    assert aligned(parent, child, integers=True)[0] < 0
    assert aligned(parent, child, integers=False)[0] > 0.3


def test_branches_are_summed_so_a_deep_network_is_more_like_itself() -> None:
    scores = [self_score(Residual(blocks)) for blocks in (1, 4, 16)]
    assert 1 < scores[0] < scores[1] < scores[2]
    assert scores[2] > 100


def test_a_wider_chain_computes_almost_the_same() -> None:
    torch.manual_seed(0)
    parent, child = chain(8), chain(12)
    child[3] = nn.Conv2d(12, 8, 3, padding=1)  # the last layer keeps its outputs
    ModelKeeper().initialise(child, parent, 0, X)
    error = (child(X) - parent(X)).norm() / parent(X).norm()
    assert error < 0.05


def test_a_new_layer_becomes_an_identity_with_absolute_noise() -> None:
    torch.manual_seed(0)
    parent, child = chain(16, depth=3), chain(16, depth=4)
    ModelKeeper().initialise(child, parent, 0, X)
    error = (child(X) - parent(X)).norm() / parent(X).norm()
    assert 0.2 < error < 1.5


def test_a_larger_kernel_takes_the_smaller_one_at_its_corner() -> None:
    parent, child = chain(8), chain(8, side=5)
    ModelKeeper().initialise(child, parent, 0, X)
    weight = child.get_parameter("1.weight")
    torch.testing.assert_close(weight[..., :3, :3], parent.get_parameter("1.weight"))
    assert not weight[..., 3:, :].any()


def test_running_statistics_stay_behind() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())

    parent, child = make(), make()
    parent(X + 3)
    ModelKeeper().initialise(child, parent, 0, X)
    assert torch.equal(child.get_parameter("0.weight"), parent.get_parameter("0.weight"))
    assert not child.get_buffer("1.running_mean").any()


def test_an_order_for_matching_is_topological() -> None:
    cell = nasbench.Cell((3,) * 6)
    nodes = graph_of(nasbench.network(nasbench.Architecture(cell)))
    place = {k: position for position, k in enumerate(sorted_for_matching(nodes))}
    assert len(place) == len(nodes)
    assert all(place[before] < place[k] for k, node in enumerate(nodes) for before in node.before)


def test_a_transformer_takes_its_own_weights() -> None:
    shape = language.Shape(2, 16, 2, context=8)
    parent, child = language.network(shape), language.network(shape)
    ModelKeeper().initialise(child, parent, 0, torch.zeros(1, 8, dtype=torch.long))
    same = [torch.equal(a, b) for a, b in zip(child.parameters(), parent.parameters(), strict=True)]
    assert sum(same) > 0.6 * len(same)
