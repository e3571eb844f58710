"""The bench's networks as MMLib wants them: a class that is built without arguments.

MMLib stores this file beside each model and imports it again to recover one.
"""

from __future__ import annotations

from mmdb.bench.networks import BasicBlock, Bottleneck, MobileNetV2, ResNet


class MobileNetV2ImageNet(MobileNetV2):
    """MobileNetV2 for pictures (3, 224, 224) of 1,000 classes."""

    def __init__(self) -> None:
        super().__init__(3, 1000)


class ResNet18ImageNet(ResNet):
    """ResNet-18 for pictures (3, 224, 224) of 1,000 classes."""

    def __init__(self) -> None:
        super().__init__(3, 1000, BasicBlock, (2, 2, 2, 2))


class ResNet152ImageNet(ResNet):
    """ResNet-152 for pictures (3, 224, 224) of 1,000 classes."""

    def __init__(self) -> None:
        super().__init__(3, 1000, Bottleneck, (3, 8, 36, 3))


CLASSES = {
    "mobilenet_v2": MobileNetV2ImageNet,
    "resnet18": ResNet18ImageNet,
    "resnet152": ResNet152ImageNet,
}
