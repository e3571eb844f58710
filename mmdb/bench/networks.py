"""MobileNetV2, ResNet-18 and ResNet-152, with the paths and shapes of their published weights.

Each is a factory that a database can register, such as `mmdb.bench.networks:resnet152`:
(input shape (C, H, W), number of outputs) -> module from (n, C, H, W) to (n, outputs).

Source: He et al. 2016, "Deep Residual Learning for Image Recognition", table 1, with the stride
    in the 3x3 convolution of a bottleneck; Sandler et al. 2018, "MobileNetV2", table 2.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

IMAGENET = ((3, 224, 224), 1000)

#: What stands for the larger ones where a bench measures a share.
SMALL = "mobilenet_v2"

#: Parameters of each network with an input of (3, 224, 224) and 1,000 outputs.
PARAMETERS = {"mobilenet_v2": 3_504_872, "resnet18": 11_689_512, "resnet152": 60_192_808}


def mobilenet_v2(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return MobileNetV2 of width 1."""
    return MobileNetV2(input_shape[0], outputs)


def resnet18(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return the residual network of 18 layers."""
    return ResNet(input_shape[0], outputs, BasicBlock, (2, 2, 2, 2))


def resnet152(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return the residual network of 152 layers."""
    return ResNet(input_shape[0], outputs, Bottleneck, (3, 8, 36, 3))


FACTORIES: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    factory.__name__: factory for factory in (mobilenet_v2, resnet18, resnet152)
}


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: (n, before, H, W) -> (n, width, H/s, W/s)."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(before, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(before, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        out: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions beside a shortcut; (n, before, …) -> (n, 4 width, …)."""

    expansion = 4

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = width * self.expansion
        self.conv1 = _conv(before, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, after, 1)
        self.bn3 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(before, after, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        out: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return out


class ResNet(nn.Module):
    """Four stages of residual blocks: (n, C, H, W) -> (n, outputs)."""

    def __init__(
        self,
        channels: int,
        outputs: int,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        before = 64
        for stage, depth in enumerate(depths):
            blocks: list[nn.Module] = []
            for position in range(depth):
                stride = 2 if stage and not position else 1
                blocks.append(block(before, 64 << stage, stride))
                before = (64 << stage) * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(before, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        out: Tensor = self.fc(x.mean(dim=(2, 3)))  # (n, C, h, w) -> (n, C) -> (n, outputs)
        return out


class InvertedResidual(nn.Module):
    """1x1 up, 3x3 depthwise, 1x1 down; added to the input where the shapes are equal."""

    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.residual = stride == 1 and before == after
        hidden = before * expansion
        layers: list[nn.Module] = [_conv_bn(before, hidden, 1)] if expansion != 1 else []
        layers += [_conv_bn(hidden, hidden, 3, stride, groups=hidden)]
        self.conv = nn.Sequential(*layers, _conv(hidden, after, 1), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.conv(x) if self.residual else self.conv(x)
        return out


class MobileNetV2(nn.Module):
    """Seventeen inverted residuals: (n, C, H, W) -> (n, outputs)."""

    #: Expansion, channels, blocks, stride of the first block.
    STAGES = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv_bn(channels, 32, 3, 2)]
        before = 32
        for expansion, after, depth, stride in self.STAGES:
            for position in range(depth):
                layers.append(InvertedResidual(before, after, 1 if position else stride, expansion))
                before = after
        self.features = nn.Sequential(*layers, _conv_bn(before, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, outputs))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(x).mean(dim=(2, 3)))
        return out


def _conv(before: int, after: int, side: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, side, stride, side // 2, groups=groups, bias=False)


def _conv_bn(before: int, after: int, side: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = _conv(before, after, side, stride, groups)
    return nn.Sequential(layer, nn.BatchNorm2d(after), nn.ReLU6(inplace=True))


def _shortcut(before: int, after: int, stride: int) -> nn.Module | None:
    if stride == 1 and before == after:
        return None
    return nn.Sequential(_conv(before, after, 1, stride), nn.BatchNorm2d(after))


def empty(name: str) -> nn.Module:
    """Return a network for ImageNet on the meta device: shapes, no memory."""
    with torch.device("meta"):
        return FACTORIES[name](*IMAGENET)
