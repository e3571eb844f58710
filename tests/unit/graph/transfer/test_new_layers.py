"""New branches that begin with zero, and what only looks like one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.unit.graph.transfer.carried import carry, images, relative_error, trained, vectors

Forward = Callable[[Any, Tensor], Tensor]
LIMIT = 1e-6


class Of(nn.Module):
    """Layers by name, and a forward over them."""

    def __init__(self, forward: Forward, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self._forward = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def linear(*names: str, **layers: nn.Module) -> dict[str, nn.Module]:
    return {name: nn.Linear(4, 4) for name in names} | layers


def parent() -> nn.Module:
    return Of(lambda m, x: m.b(m.a(x)), **linear("a", "b"))


def beside(branch: Callable[[Any, Tensor], Tensor]) -> nn.Module:
    """Return a child with something beside its first layer; `n` is new."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        out: Tensor = m.b(h + branch(m, h))
        return out

    return Of(forward, **linear("a", "b", "n"))


def sums_at(alpha: int, *, swapped: bool) -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        one, other = m.a(x), m.b(x)
        return torch.add(other, one, alpha=alpha) if swapped else torch.add(one, other, alpha=alpha)

    return Of(forward, **linear("a", "b"))


@pytest.mark.parametrize(
    "branch",
    [
        lambda m, h: m.n(h),
        lambda m, h: F.relu(m.n(h)) / 3.0,
        lambda m, h: m.n(h) * torch.sigmoid(h),
        lambda m, h: m.n(h) * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6),
    ],
)
def test_a_new_branch_begins_with_zero(branch: Callable[[Any, Tensor], Tensor]) -> None:
    old, new = trained(parent()), trained(beside(branch), seed=1)
    assert carry(new, old, vectors()).exact
    assert relative_error(new, old, vectors()) <= LIMIT


@pytest.mark.parametrize(
    "branch",
    [
        lambda m, h: (z := m.n(h)) / z.norm(),
        lambda m, h: m.n(h) / F.relu(h),
        lambda m, h: (z := m.n(h)) * torch.rsqrt(z.pow(2).mean(-1, keepdim=True)),
        lambda m, h: (z := m.n(h)) * (1 / z),
        lambda m, h: (z := m.n(h)) * torch.log(z.abs()),
        lambda m, h: m.n(h) * float("inf"),
    ],
)
def test_a_branch_that_zero_would_make_no_number_is_left_alone(
    branch: Callable[[Any, Tensor], Tensor],
) -> None:
    old, new = trained(parent()), trained(beside(branch), seed=1)
    made = carry(new, old, vectors())
    assert not made.exact
    assert not bool((made.tensors["n.weight"] == 0).all())


def test_a_sum_that_scales_its_second_operand_is_no_plain_sum() -> None:
    def doubled(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        out: Tensor = m.b(torch.add(m.n(h), h, alpha=2))
        return out

    made = carry(
        trained(Of(doubled, **linear("a", "b", "n")), seed=1), trained(parent()), vectors()
    )
    assert not made.exact
    old, new = trained(sums_at(2, swapped=False)), trained(sums_at(2, swapped=True), seed=1)
    made = carry(new, old, vectors())
    assert not made.exact or relative_error(new, old, vectors()) <= LIMIT


def test_what_is_drawn_twice_is_not_the_same() -> None:
    def draws(m: Any, x: Tensor) -> Tensor:
        p = torch.sigmoid(m.a(x))
        out: Tensor = m.b(torch.bernoulli(p) - torch.bernoulli(p))
        return out

    def drawn(m: Any, x: Tensor) -> Tensor:
        r = torch.bernoulli(torch.sigmoid(m.a(x)))
        out: Tensor = m.b(r - r)
        return out

    old, new = (Of(one, **linear("a", "b")) for one in (drawn, draws))
    assert not carry(trained(new, seed=1), trained(old), vectors()).exact


class OwnNorm(nn.Module):
    """A batch norm whose statistics are nowhere in the state dict, or are computed."""

    mean: Tensor
    var: Tensor

    def __init__(self, *, saved: bool, shift: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4), persistent=saved)
        self.register_buffer("var", torch.ones(4), persistent=saved)
        self.weight, self.bias = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))
        self.shift = shift

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mean + self.shift if self.shift else self.mean
        return F.batch_norm(x, mean, self.var, self.weight, self.bias, False)


@pytest.mark.parametrize(("saved", "shift"), [(False, 0.0), (True, 1.0)])
@pytest.mark.parametrize("has_norm", [False, True])
def test_a_new_norm_whose_statistics_cannot_be_set_is_not_exact(
    saved: bool, shift: float, has_norm: bool
) -> None:
    def made(*, grown: bool) -> nn.Module:
        layers: list[nn.Module] = [nn.Conv2d(3, 4, 3, padding=1)]
        layers += [nn.BatchNorm2d(4)] if has_norm else []
        layers.append(nn.ReLU())
        if grown:
            layers += [nn.Conv2d(4, 4, 3, padding=1), OwnNorm(saved=saved, shift=shift), nn.ReLU()]
        return nn.Sequential(*layers, nn.Conv2d(4, 5, 3))

    old, new = trained(made(grown=False)), trained(made(grown=True), seed=1)
    names = {f"{len(new) - 1}": f"{len(old) - 1}"}  # type: ignore[arg-type]
    result = carry(new, old, images(), names=names)
    assert not result.exact or relative_error(new, old, images()) <= LIMIT


@pytest.mark.parametrize("depth", [40, 600])
def test_long_sums_are_followed(depth: int) -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        z = m.n(h)
        for _ in range(depth):
            z = F.relu(z) + torch.tanh(z)
        out: Tensor = m.b(h + z)
        return out

    old, new = trained(parent()), trained(Of(forward, **linear("a", "b", "n")), seed=1)
    assert carry(new, old, vectors()).exact
    assert relative_error(new, old, vectors()) <= LIMIT


def test_a_branch_in_place_of_a_shortcut_hands_on() -> None:
    def plain(m: Any, x: Tensor) -> Tensor:
        h = F.relu(m.a(x))
        out: Tensor = m.b(F.relu(m.c(h) + h))
        return out

    def projected(m: Any, x: Tensor) -> Tensor:
        h = F.relu(m.a(x))
        out: Tensor = m.b(F.relu(m.c(h) + m.n(h)))
        return out

    old, new = Of(plain, **linear("a", "b", "c")), Of(projected, **linear("a", "b", "c", "n"))
    made = carry(trained(new, seed=1), trained(old), vectors())
    assert made.exact and relative_error(new, old, vectors()) <= LIMIT
    assert {o.path: o.operator for o in made.origins}["n.weight"] == "identity"


def test_a_new_norm_keeps_the_scale_in_training() -> None:
    """Its statistics are those of what the norm before it gives, behind a ReLU."""

    def made(*, grown: bool) -> nn.Module:
        layers: list[nn.Module] = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()]
        if grown:
            layers += [nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()]
        return nn.Sequential(*layers, nn.Conv2d(4, 5, 3))

    old, new = trained(made(grown=False)), trained(made(grown=True), seed=1)
    x = images(256)
    result = carry(new, old, x, names={"6": "3"})
    assert result.exact and relative_error(new, old, x) <= LIMIT
    norms = new.train()[:5], new[:3]  # type: ignore[index]
    with torch.no_grad():
        ours, its = norms[0](x), norms[1](x)
    off = (ours - its).std(dim=(0, 2, 3)) / its.std(dim=(0, 2, 3)).clamp_min(1e-3)
    assert float(off.max()) < 0.1
