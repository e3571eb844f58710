"""Members of an ensemble: plain convolutional networks that differ in width and depth.

Source: Wasay et al. 2020, "MotherNets: Rapid Deep Ensemble Learning" (MLSys), section 4: variants
    of VGG; the layers are those of Simonyan and Zisserman 2015 with BatchNorm.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Member:
    """Channels and convolutions of each stage; a stage ends in a 2x2 maximum pooling."""

    widths: tuple[int, ...]
    depths: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join(f"{d}x{w}" for w, d in zip(self.widths, self.depths, strict=True))


#: The smallest is inside every other one; no two are equal.
MEMBERS = (
    Member((8, 16, 32), (1, 1, 1)),
    Member((12, 24, 48), (1, 1, 1)),
    Member((8, 16, 32), (1, 2, 2)),
    Member((10, 20, 40), (2, 1, 1)),
    Member((12, 24, 32), (1, 1, 2)),
    Member((8, 24, 48), (1, 2, 1)),
    Member((16, 32, 64), (1, 1, 1)),
    Member((8, 16, 48), (2, 2, 2)),
    Member((12, 16, 32), (1, 2, 3)),
)


def network(member: Member, outputs: int = 10, inputs: int = 3) -> nn.Module:
    """Return the module: (n, inputs, H, W) -> (n, outputs)."""
    return Vgg(member, outputs, inputs)


class Vgg(nn.Module):
    """Stages of 3x3 convolutions, the mean over places, one linear layer."""

    def __init__(self, member: Member, outputs: int, inputs: int) -> None:
        super().__init__()
        before = inputs
        self.stages = nn.ModuleList()
        for width, depth in zip(member.widths, member.depths, strict=True):
            layers: list[nn.Module] = []
            for _ in range(depth):
                layers += [nn.Conv2d(before, width, 3, padding=1, bias=False)]
                layers += [nn.BatchNorm2d(width), nn.ReLU()]
                before = width
            self.stages.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
        self.classifier = nn.Linear(before, outputs)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        out: Tensor = self.classifier(x.mean(dim=(2, 3)))  # (n, C, h, w) -> (n, C) -> (n, outputs)
        return out
