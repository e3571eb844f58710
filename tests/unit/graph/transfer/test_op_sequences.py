from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.unit.graph.transfer.carried import carry, images, relative_error, trained


class Pooled(nn.Module):
    """Convolutions of one width; a 0 is a pool between them."""

    def __init__(self, plan: str) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 5, 3, padding=1), nn.ReLU()]
        for step in plan:
            if step == "0":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(5, 5, 3, padding=1), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.layers(x).mean((2, 3)))
        return y


def test_layers_are_paired_by_the_pools_between_them() -> None:
    parent, child = trained(Pooled("1010")), trained(Pooled("11101110"), seed=1)
    convolutions = [path for path, one in child.named_modules() if isinstance(one, nn.Conv2d)]
    its = [path for path, one in parent.named_modules() if isinstance(one, nn.Conv2d)]
    names = {path: "none" for path in convolutions} | dict(zip(convolutions, its, strict=False))
    made = carry(child, parent, images(), names=names)
    assert made.exact, made.reasons
    assert relative_error(child, parent, images()) == 0
    assert torch.equal(made.tensors["layers.9.weight"], parent.state_dict()["layers.5.weight"])


def test_without_pairs_nothing_is_followed() -> None:
    parent, child = trained(Pooled("1010")), trained(Pooled("1010"), seed=1)
    made = carry(child, parent, images(), names=dict.fromkeys(_paths(child), "none"))
    assert not made.exact
    assert {origin.parent for origin in made.origins} == {None}


def _paths(module: nn.Module) -> list[str]:
    return [path for path, _ in module.named_modules()]
